"""What every message and every struct in one can do; their fields and codecs come from compiler.py.

    message, pos = ProduceRequest.decode(version, buf, pos)
    data = message.encode(version)
    pieces = message.encode_chunks(version)       file ranges stay file ranges

Values: `records` are memoryview slices of what was decoded, `bytes` are bytes, UUIDs are 16 bytes, times stay int.
"""

import struct
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

from headrace.errors import InvalidRequest
from headrace.protocol.wire import Buffer, Chunk

_SHOWN_BYTES = 32


class Struct:
    """A group of fields: a message, or a struct in one."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.FIELDS is not other.FIELDS:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # fields can be assigned

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.FIELDS)
        return f"{type(self).__name__}({fields})"


class Codec(NamedTuple):
    """The two generated functions of one version."""

    decode: Callable[[memoryview, int], tuple["Message", int]]
    encode: Callable[["Message", list[Any], list[int]], None]


class Message(Struct):
    """A whole message. Its class has its API key (None for a record), its versions, and the first flexible one."""

    __slots__ = ()
    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    codecs: ClassVar[dict[int, Codec]] = {}

    @classmethod
    def decode(cls, version: int, buf: Buffer, pos: int = 0) -> tuple[Self, int]:
        """The message that starts at `pos`, and the position after it.

        InvalidRequest when the bytes are not such a message; UnsupportedVersion when there is no such version.
        """
        decode = cls.codecs[version].decode
        try:
            return decode(memoryview(buf), pos)  # type: ignore[return-value]
        except (struct.error, IndexError, ValueError) as error:
            raise InvalidRequest(f"malformed {cls.__name__} v{version}: {error}") from error

    def encode(self, version: int) -> bytes:
        """The message's bytes.

        UnsupportedVersion when a field that the version lacks, and that may not be ignored, holds a value.
        ValueError when a value does not fit its field.
        """
        pieces, cuts = self._pieces(version)
        if cuts:
            raise ValueError(f"{type(self).__name__} holds file ranges: use encode_chunks")
        return b"".join(pieces)

    def encode_chunks(self, version: int) -> list[bytes | Chunk]:
        """The message's bytes, with each `records` value that is not plain bytes as a chunk of its own in its place."""
        pieces, cuts = self._pieces(version)
        chunks: list[bytes | Chunk] = []
        start = 0
        for cut in cuts:
            chunks += (b"".join(pieces[start:cut]), pieces[cut])
            start = cut + 1
        if start < len(pieces):
            chunks.append(b"".join(pieces[start:]))
        return chunks

    def _pieces(self, version: int) -> tuple[list[Any], list[int]]:
        """What the generated encoder appends, and where among it the chunks are."""
        encode = self.codecs[version].encode
        pieces: list[Any] = []
        cuts: list[int] = []
        try:
            encode(self, pieces, cuts)
        except (struct.error, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{type(self).__name__} v{version}: {error}") from error
        return pieces, cuts


def _shown(value: object) -> str:
    """A value as repr shows it; long bytes are cut."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return repr(value)
    shown = bytes(value[:_SHOWN_BYTES])
    return repr(shown) if len(value) <= _SHOWN_BYTES else f"<{len(value)} bytes {shown!r}...>"
