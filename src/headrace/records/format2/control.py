"""Control batches: the markers that a transaction's coordinator writes to each partition to end it.

A control batch has the control bit set and holds one record:

    key    version int16 (0) | kind int16: 0 abort, 1 commit; others (2 to 6 are Raft's) are no transaction markers
    value  version int16 (0) | coordinator_epoch int32

Consumers do not get the record, but it has an offset. Source: Kafka's ControlRecordType and EndTransactionMarker;
KIP-98.
"""

from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.batch import Record, decode_records, encode_batch, read_header

ABORT = 0
COMMIT = 1

_key = Struct(">hh")
_value = Struct(">hi")


class Marker(NamedTuple):
    """The end of a transaction, or another kind of control record, which has the coordinator epoch -1."""

    kind: int
    coordinator_epoch: int

    @property
    def is_abort(self) -> bool:
        """Whether the marker aborts the transaction."""
        return self.kind == ABORT

    @property
    def is_commit(self) -> bool:
        """Whether the marker commits the transaction."""
        return self.kind == COMMIT


def read_marker(batch: Bytes) -> Marker:
    """The marker in a control batch. Later versions of a marker may be longer.

    Raises CorruptMessage when the batch is no control batch, or its record is missing or too short.
    """
    header = read_header(batch)
    if not header.is_control:
        raise CorruptMessage(f"the batch at offset {header.base_offset} is not a control batch")
    records = decode_records(batch, header)
    if not records:
        raise CorruptMessage(f"the control batch at offset {header.base_offset} has no record")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _key.size:
        raise CorruptMessage(f"the control record at offset {header.base_offset} has no type")
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
    """Encode the control batch that ends a producer's transaction."""
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
