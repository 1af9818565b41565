"""The base classes of messages and their structs; the compiler adds fields and codecs.

    message, pos = ProduceRequest.decode(version, buf, pos)
    data = message.encode(version)
    pieces = message.encode_chunks(version)       file ranges stay file ranges

`decode_in_slices` and `encode_in_slices` are generators for large messages: between two slices the event loop serves
others.

Values: `records` are memoryview slices of what was decoded, `bytes` are bytes, UUIDs are 16 bytes, times stay int.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar, NamedTuple, Self

from headrace.errors import InvalidRequest
from headrace.protocol.codec.wire import Buffer, Chunk

_SHOWN_BYTES = 32


class Struct:
    """A group of fields: a message, or a struct in one."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    """The fields that are arrays of structs, strings or bytes."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.FIELDS is not other.FIELDS:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # fields can be assigned

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.FIELDS)
        return f"{type(self).__name__}({fields})"


class VersionCodec(NamedTuple):
    """The two generated functions of one version."""

    decode: Callable[[memoryview, int], tuple["Message", int]]
    encode: Callable[["Message", list[Any], list[int]], None]


class SlicedCodec(NamedTuple):
    """The two generators of one version."""

    decode: Callable[[memoryview, int], Generator[None, None, tuple["Message", int]]]
    encode: Callable[["Message", list[Any], list[int]], Iterator[None]]


class Message(Struct):
    """A whole message. Its class has its API key (None for a record), its versions, and the first flexible one."""

    __slots__ = ()
    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    codecs: ClassVar[dict[int, VersionCodec]] = {}
    sliced_codecs: ClassVar[dict[int, SlicedCodec]] = {}

    @classmethod
    def decode(cls, version: int, buf: Buffer, pos: int = 0) -> tuple[Self, int]:
        """The message that starts at `pos`, and the position after it.

        Raises InvalidRequest if the bytes are malformed, UnsupportedVersion if the message has no such version.
        """
        decode = cls.codecs[version].decode
        try:
            return decode(memoryview(buf), pos)  # type: ignore[return-value]
        except (struct.error, IndexError, ValueError) as error:
            raise InvalidRequest(f"malformed {cls.__name__} v{version}: {error}") from error

    @classmethod
    def decode_in_slices(cls, version: int, buf: Buffer, pos: int = 0) -> Generator[None, None, tuple[Self, int]]:
        """As `decode`, but yields after every slice."""
        decode = cls.sliced_codecs[version].decode
        try:
            return (yield from decode(memoryview(buf), pos))  # type: ignore[return-value]
        except (struct.error, IndexError, ValueError) as error:
            raise InvalidRequest(f"malformed {cls.__name__} v{version}: {error}") from error

    def encode(self, version: int) -> bytes:
        """The message's bytes.

        Raises UnsupportedVersion if a field that the version lacks, and that is not ignorable, has a value.
        Raises ValueError if a value does not fit its field.
        """
        pieces, cuts = self._pieces(version)
        if cuts:
            raise ValueError(f"{type(self).__name__} contains file ranges: use encode_chunks")
        return b"".join(pieces)

    def encode_chunks(self, version: int) -> list[bytes | Chunk]:
        """The message's bytes in chunks; each `records` value that is not plain bytes is a chunk of its own."""
        return _chunks(*self._pieces(version))

    def encode_in_slices(self, version: int) -> Generator[None, None, list[bytes | Chunk]]:
        """As `encode_chunks`, but yields after every slice. The message must not change meanwhile.

        Each slice has its own chunks: to join all pieces at the end would take as long as ten slices."""
        chunks: list[bytes | Chunk] = []
        pieces: list[Any] = []
        cuts: list[int] = []
        encode = self.sliced_codecs[version].encode
        try:
            for _ in encode(self, pieces, cuts):
                chunks += _chunks(pieces, cuts)
                pieces.clear()
                cuts.clear()
                yield
        except (struct.error, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{type(self).__name__} v{version}: {error}") from error
        return chunks + _chunks(pieces, cuts)

    def _pieces(self, version: int) -> tuple[list[Any], list[int]]:
        """The pieces that the generated encoder appends, and the positions of the chunks among them."""
        encode = self.codecs[version].encode
        pieces: list[Any] = []
        cuts: list[int] = []
        try:
            encode(self, pieces, cuts)
        except (struct.error, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{type(self).__name__} v{version}: {error}") from error
        return pieces, cuts


def has_more_elements(message: Struct, count: int) -> bool:
    """Whether all arrays of a message together have more than `count` elements. Arrays of numbers are not counted."""
    return _left(message, count) < 0


def _left(struct: Struct, left: int) -> int:
    """`left` less the elements in a struct; negative when there are more."""
    for name in struct.ARRAYS:
        elements = getattr(struct, name)
        if not elements:
            continue
        left -= len(elements)
        if left >= 0 and getattr(elements[0], "ARRAYS", None):
            for each in elements:
                left = _left(each, left)
                if left < 0:
                    break
        if left < 0:
            break
    return left


def _chunks(pieces: list[Any], cuts: list[int]) -> list[bytes | Chunk]:
    """Joins the pieces between the cuts."""
    chunks: list[bytes | Chunk] = []
    start = 0
    for cut in cuts:
        chunks += (b"".join(pieces[start:cut]), pieces[cut])
        start = cut + 1
    if start < len(pieces):
        chunks.append(b"".join(pieces[start:]))
    return chunks


def _shown(value: object) -> str:
    """A value as repr shows it; long bytes are cut."""
    if not isinstance(value, bytes | bytearray | memoryview):
        return repr(value)
    shown = bytes(value[:_SHOWN_BYTES])
    return repr(shown) if len(value) <= _SHOWN_BYTES else f"<{len(value)} bytes {shown!r}...>"
