"""ZooKeeper's multi, which kazoo has too: here without an object for each part of each operation and of its result.

A new controller writes the states of tens of thousands of partitions, a thousand in each multi.

    request     [header(code, 0, -1), operation] ... header(-1, 1, -1)
    create      path | data | number of rights | [rights int32 | scheme | id] ... | flags int32
    set         path | data | version int32
    delete      path | version int32
    check       path | version int32
    response    [header(code, 0, 0), result] ... header(-1, 1, -1)      the path of a create, the stat of a set
    refused     [header(-1, 0, error), error int32] ... header(-1, 1, -1)

Text and bytes have their length before them, null is -1.
Source: ZooKeeper's `MultiOperationRecord`, `MultiResponse`, `ZooDefs.OpCode`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from kazoo.exceptions import EXCEPTIONS
from kazoo.security import ACL

from headrace.metastore.store import Create, Delete, Op, Set

_HEADER = Struct("!iBi")
_INT = Struct("!i")
_CREATE, _DELETE, _SET, _CHECK = 1, 2, 5, 13
_HEADERS = {code: _HEADER.pack(code, 0, -1) for code in (_CREATE, _DELETE, _SET, _CHECK)}
_END = _HEADER.pack(-1, 1, -1)
_NULL = _INT.pack(-1)
_STAT_BYTES = 68
_VERSION_AT = 32  # in a stat


class MultiWrite(NamedTuple):
    """The operations, which are executed together or not at all. Its interface is that of kazoo's requests."""

    ops: Sequence[Op]
    rights: Callable[[str], Sequence[ACL]]
    """The access control list of a new node."""

    @property
    def type(self) -> int:
        """The code of the operation."""
        return 14

    def serialize(self) -> bytes:
        """The request behind its header."""
        parts: list[bytes] = []
        length = _INT.pack
        for op in self.ops:
            text = op.path.encode()
            if isinstance(op, Set):
                parts += (_HEADERS[_SET], length(len(text)), text, length(len(op.data)), op.data, length(op.version))
            elif isinstance(op, Create):
                # A null value for empty data, as Apache Kafka writes it: its controller parses other values as JSON.
                data = length(len(op.data)) + op.data if op.data else _NULL
                flags = length(int(op.ephemeral) | int(op.sequential) << 1)
                parts += (_HEADERS[_CREATE], length(len(text)), text, data, _rights(tuple(self.rights(op.path))), flags)
            else:
                code = _DELETE if isinstance(op, Delete) else _CHECK
                parts += (_HEADERS[code], length(len(text)), text, length(op.version))
        parts.append(_END)
        return b"".join(parts)

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        """Of each operation its path, its version or None. If the operations were refused, kazoo's exception of each:
        `RolledBackError` before the one that is the reason."""
        results: list[Any] = []
        while True:
            kind, is_end, error = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                return results
            if kind == _SET:
                results.append(_INT.unpack_from(data, offset + _VERSION_AT)[0])
                offset += _STAT_BYTES
            elif kind == _CREATE:
                start = offset + _INT.size
                offset = start + _INT.unpack_from(data, offset)[0]
                results.append(data[start:offset].decode())
            elif kind in (_DELETE, _CHECK):
                results.append(None)
            else:
                results.append(EXCEPTIONS[error]())
                offset += _INT.size


@lru_cache(maxsize=100)
def _rights(acls: tuple[ACL, ...]) -> bytes:
    parts = [_INT.pack(len(acls))]
    for acl in acls:
        parts.append(_INT.pack(acl.perms))
        for text in (acl.id.scheme.encode(), acl.id.id.encode()):
            parts += (_INT.pack(len(text)), text) if text else (_NULL,)
    return b"".join(parts)
