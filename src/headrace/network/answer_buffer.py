# cython: language_level=3, annotation_typing=False, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False
"""The buffer to which a shortcut writes answers, and the file ranges that belong between its bytes.

    out     answer | answer … before the cut │ … behind it | room for a long last answer
    cuts    the place in `out` before which each of `files` is sent, ascending

Shortcuts of one dispatcher share a buffer. Compiled, as they are; it also runs uncompiled.
"""

from array import array

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.limits import REQUESTS_PER_TURN_MAX, SHORT_ANSWER_BYTES_MAX
from headrace.network.outbound import Chunks

if not cython.compiled:
    from headrace.octets import bytes_at

OUT_BYTES = REQUESTS_PER_TURN_MAX * SHORT_ANSWER_BYTES_MAX
"""How far a buffer is filled with answers."""

LONG_ANSWER_BYTES_MAX = 72 << 10
"""The size of the last answer in a buffer, which has room behind the others."""

_FILES_MAX = 64  # of one answer


class AnswerBuffer:
    """The answers that were written and are not sent."""

    __slots__ = ("cuts", "files", "out")

    def __init__(self) -> None:
        self.out = memoryview(bytearray(OUT_BYTES + LONG_ANSWER_BYTES_MAX))
        self.files: Chunks = []
        """The file ranges of the last answer, or their bytes. The connection takes them out."""
        self.cuts = memoryview(array("q", bytes(8 * _FILES_MAX)))

    def share(self, other: "AnswerBuffer") -> None:
        """Writes to the buffers of another one from now on."""
        self.out, self.files, self.cuts = other.out, other.files, other.cuts

    def take(self, size: int) -> Chunks:
        """The first `size` bytes of `out` with the file ranges between them, which are taken out."""
        files, pos = self.files, 0
        chunks: Chunks = []
        for number in range(len(files)):
            cut = self.cuts[number]
            if cut > pos:
                chunks.append(bytes_at(self.out, pos, cut))
            chunks.append(files[number])
            pos = cut
        files.clear()
        chunks.append(bytes_at(self.out, pos, size))
        return chunks
