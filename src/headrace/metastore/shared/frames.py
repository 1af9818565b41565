"""The frames between the server of a shared tree and its clients: a size of four bytes, then a JSON array in UTF-8.

    to the server       [id, "open", time-out in ms]           begins the session of this connection
                        [id, "ping"]
                        [id, "data" | "stat" | "children", path, watch]        watch: a number, or null
                        [id, "write", [operation, ...]]
                        [id, "end"]                            ends the session; the server closes the connection
    from the server     [id, null, result]
                        [id, name of the error, index, text]
                        [0, kind, watch]                       a watch has fired

    operation           ["create", path, data, ephemeral, sequential] | ["set", path, data, version]
                        | ["delete", path, version] | ["check", path, version]
    stat                [czxid, mzxid, pzxid, version, owner]

Bytes are text of the same code points (Latin-1).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headrace.metastore.store import (
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    StoreError,
    StoreRefused,
)

SIZE_BYTES = 4
FRAME_BYTES_MAX = 16 << 20
"""Of a frame to the server. A write of 1 MiB takes at most six times as much when all its bytes are escaped."""

_ERRORS: dict[str, type[StoreError]] = {
    each.__name__: each for each in (BadPath, BadVersion, NoChildrenForEphemerals, NodeExists, NoNode, NotEmpty)
}


class BadFrame(Exception):
    """What came is no frame."""


class StatFrame(NamedTuple):
    """See `headrace.metastore.zookeeper.link.Stat`."""

    czxid: int
    mzxid: int
    pzxid: int
    version: int
    ephemeralOwner: int  # ZooKeeper's name


class Frames:
    """Cuts frames out of the bytes of one connection."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """The messages that are complete with these bytes. Raises `BadFrame`."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= SIZE_BYTES:
            size = int.from_bytes(self._buffer[start : start + SIZE_BYTES])
            if self._bytes_max is not None and size > self._bytes_max:
                raise BadFrame(f"a frame of {size} bytes is larger than {self._bytes_max}")
            end = start + SIZE_BYTES + size
            if len(self._buffer) < end:
                break
            yield _message(bytes(self._buffer[start + SIZE_BYTES : end]))
            start = end
        del self._buffer[:start]


def _message(body: bytes) -> list[Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame is not JSON: {error}") from None
    if not isinstance(message, list) or not message:
        raise BadFrame("a frame is not an array")
    return message


def pack(message: Sequence[Any]) -> bytes:
    """The frame of a message."""
    # An error names the path that is none, which may have what UTF-8 cannot express; `json.loads` reads it again.
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    return len(body).to_bytes(SIZE_BYTES) + body


def text_of(data: bytes) -> str:
    """Bytes as text."""
    return data.decode("latin-1")


def bytes_of(text: str) -> bytes:
    """Text as bytes. Raises `UnicodeEncodeError`."""
    return text.encode("latin-1")


def packed_op(op: Op) -> list[Any]:
    """An operation as JSON."""
    match op:
        case Create(path, data, ephemeral, sequential):
            return ["create", path, text_of(data), ephemeral, sequential]
        case Set(path, data, version):
            return ["set", path, text_of(data), version]
        case Delete(path, version):
            return ["delete", path, version]
        case Check(path, version):
            return ["check", path, version]


def unpacked_op(given: Sequence[Any]) -> Op:
    """An operation from JSON. Raises `BadFrame`."""
    match given:
        case ["create", str(path), str(data), bool(ephemeral), bool(sequential)]:
            return Create(path, bytes_of(data), ephemeral, sequential)
        case ["set", str(path), str(data), int(version)]:
            return Set(path, bytes_of(data), version)
        case ["delete", str(path), int(version)]:
            return Delete(path, version)
        case ["check", str(path), int(version)]:
            return Check(path, version)
    raise BadFrame(f"not an operation: {str(given)[:100]}")


def packed_error(error: Exception) -> list[Any]:
    """[name, index, text] of an error. One that a client does not know becomes `StoreRefused`."""
    if isinstance(error, StoreError) and type(error).__name__ in _ERRORS:
        return [type(error).__name__, error.index, ""]
    return [StoreRefused.__name__, 0, f"{type(error).__name__}: {error}"]


def unpacked_error(name: str, index: int, text: str) -> StoreError:
    """The error, without a path."""
    found = _ERRORS.get(name)
    if found is not None:
        return found("", index)
    refused = StoreRefused("", index)
    refused.args = ("", text)
    return refused
