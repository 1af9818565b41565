"""Control batches: the markers that a transaction's coordinator writes to each partition to end it.

A control batch has the control bit set and holds one record:

    key    version int16 (0) | kind int16: 0 abort, 1 commit; others (2 to 6: Raft's) are not a transaction's
    value  version int16 (0) | coordinator_epoch int32

Consumers never see it; it takes up an offset. Source: Kafka's ControlRecordType and EndTransactionMarker; KIP-98.
"""

from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.records.batch import Record, decode_records, encode_batch, read_header
from headrace.records.compression import Bytes

ABORT = 0
COMMIT = 1

_key = Struct(">hh")
_value = Struct(">hi")


class Marker(NamedTuple):
    """How a transaction ended, or another kind of control record (then without a coordinator: epoch -1)."""

    kind: int
    coordinator_epoch: int

    @property
    def is_abort(self) -> bool:
        """Whether the records of the transaction never count."""
        return self.kind == ABORT

    @property
    def is_commit(self) -> bool:
        """Whether the records of the transaction count from here on."""
        return self.kind == COMMIT


def read_marker(batch: Bytes) -> Marker:
    """The marker in a control batch. CorruptMessage when it is none, or cut short; later versions may be longer."""
    header = read_header(batch)
    if not header.is_control:
        raise CorruptMessage(f"the batch at offset {header.base_offset} is no control batch")
    records = decode_records(batch, header)
    if not records:
        raise CorruptMessage(f"the control batch at offset {header.base_offset} holds no record")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _key.size:
        raise CorruptMessage(f"the control record at offset {header.base_offset} has no kind")
    _version, kind = _key.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return Marker(kind, -1)
    if value is None or len(value) < _value.size:
        raise CorruptMessage(f"the transaction marker at offset {header.base_offset} has no coordinator epoch")
    _version, coordinator_epoch = _value.unpack_from(value)
    return Marker(kind, coordinator_epoch)


def encode_marker(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction."""
    record = Record(base_offset, timestamp_ms, _key.pack(0, marker.kind), _value.pack(0, marker.coordinator_epoch))
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
