"""ZooKeeper's request for many nodes at once, which kazoo lacks: a list of reads, each with a result of its own.

    request     [header(4, 0, -1), path, watch 0] ... header(-1, 1, -1)
    response    [header(4, 0, 0), data, stat  |  header(-1, 0, error), error] ... header(-1, 1, -1)

Servers know it since 3.6. Older ones answer that they do not implement it.
Source: ZooKeeper's `ZooDefs.OpCode.multiRead`, `MultiOperationRecord`, `MultiResponse`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from kazoo.exceptions import EXCEPTIONS

from headrace.metastore.store import Node

_HEADER = Struct("!iBi")
_LENGTH = Struct("!i")
_STAT = Struct("!qq16xi8xq16x")  # czxid, mzxid, version, owner
_GET_DATA = 4
_READ = _HEADER.pack(_GET_DATA, 0, -1)
_END = _HEADER.pack(-1, 1, -1)


class MultiRead(NamedTuple):
    """The data of these paths, without watches. Its interface is that of kazoo's requests."""

    paths: Sequence[str]

    @property
    def type(self) -> int:
        """The code of the operation."""
        return 22

    def serialize(self) -> bytes:
        """The request behind its header."""
        parts: list[bytes] = []
        for path in self.paths:
            text = path.encode()
            parts += (_READ, _LENGTH.pack(len(text)), text, b"\0")
        parts.append(_END)
        return b"".join(parts)

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        """Of each path the node, or kazoo's exception."""
        results: list[Any] = []
        while True:
            kind, is_end, error = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                return results
            if kind != _GET_DATA:
                results.append(EXCEPTIONS[error]())
                offset += _LENGTH.size
                continue
            (length,) = _LENGTH.unpack_from(data, offset)
            offset += _LENGTH.size
            end = offset + max(length, 0)
            czxid, mzxid, version, owner = _STAT.unpack_from(data, end)
            results.append(Node(data[offset:end], version, czxid, mzxid, owner))
            offset = end + _STAT.size
