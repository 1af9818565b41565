"""A `__cluster_metadata-0` as Kafka writes it, made by the tests: segments, snapshots, control records."""

from pathlib import Path

from headrace.log.files import LocalFiles
from headrace.migrate.metadata_log import MetadataLog, read_metadata_log
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.codec.wire import write_uvarint
from headrace.records.format2.batch import Record, encode_batch, set_base_offset

KINDS = {
    "RegisterBrokerRecord": 0,
    "UnregisterBrokerRecord": 1,
    "TopicRecord": 2,
    "PartitionRecord": 3,
    "ConfigRecord": 4,
    "PartitionChangeRecord": 5,
    "RemoveTopicRecord": 9,
    "DelegationTokenRecord": 10,
    "UserScramCredentialRecord": 11,
    "FeatureLevelRecord": 12,
    "ClientQuotaRecord": 14,
    "ProducerIdsRecord": 15,
    "AccessControlEntryRecord": 18,
    "RemoveAccessControlEntryRecord": 19,
    "NoOpRecord": 20,
    "ZkMigrationStateRecord": 21,
    "BeginTransactionRecord": 23,
    "EndTransactionRecord": 24,
    "AbortTransactionRecord": 25,
    "ClearElrRecord": 28,
}
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))


def framed(message: Message, version: int | None = None, kind: int | None = None) -> bytes:
    """A record's value."""
    name = type(message).__name__
    number = message.VERSIONS[-1] if version is None else version
    parts = (write_uvarint(1), write_uvarint(KINDS[name] if kind is None else kind), write_uvarint(number))
    return b"".join(parts) + message.encode(message.VERSIONS[-1] if version is None else version)


def batch(offset: int, *messages: Message, epoch: int = 1) -> bytes:
    """One batch of metadata records."""
    return of_values(offset, [framed(each) for each in messages], epoch)


def of_values(offset: int, values: list[bytes], epoch: int = 1) -> bytes:
    """One batch of these values."""
    made = encode_batch([Record(0, 0, None, value) for value in values])
    set_base_offset(made, offset, epoch)
    return bytes(made)


def control(offset: int, kind: int, message: Message, epoch: int = 1) -> bytes:
    """One control record of Raft."""
    key = b"\0\0" + kind.to_bytes(2, "big")
    made = encode_batch([Record(0, 0, key, message.encode(0))], is_control=True)
    set_base_offset(made, offset, epoch)
    return bytes(made)


def snapshot(*messages: Message) -> bytes:
    """A whole snapshot."""
    head, foot = m.SnapshotHeaderRecord(), m.SnapshotFooterRecord()
    body = batch(1, *messages)
    return control(0, 3, head) + body + control(1 + len(messages), 4, foot)


def write(directory: Path, files: dict[str, bytes]) -> Path:
    """A `__cluster_metadata-0` with these files; segments are named by their base offset alone."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / (f"{int(name):020d}.log" if name.isdigit() else name)).write_bytes(data)
    return directory


def read(directory: Path) -> MetadataLog:
    """What our reader makes of it."""
    return read_metadata_log(LocalFiles(), directory)


def topic(name: str = "flights", topic_id: bytes = TOPIC_ID) -> m.TopicRecord:
    return m.TopicRecord(name=name, topic_id=topic_id)


def partition(number: int = 0, **fields: object) -> m.PartitionRecord:
    """A partition of broker 1 alone."""
    values: dict[str, object] = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    values |= {"directories": [bytes(16)], "topic_id": TOPIC_ID, **fields}
    return m.PartitionRecord(partition_id=number, **values)  # type: ignore[arg-type]


def change(number: int = 0, **fields: object) -> m.PartitionChangeRecord:
    """A change of a partition."""
    return m.PartitionChangeRecord(partition_id=number, topic_id=TOPIC_ID, **fields)  # type: ignore[arg-type]


def setting(name: str, value: str | None, *, kind: int = 2, owner: str = "flights") -> m.ConfigRecord:
    return m.ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value)
