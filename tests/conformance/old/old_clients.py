"""Releases of clients from 0.8.2 on, each with what it knows of records: the older know no times and no headers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.conformance.model import Message
from tests.conformance.old.old_programs import OldJavaProgram
from tests.conformance.programs import GoProgram, Program
from tests.conformance.with_kafka_python import KafkaPython
from tests.conformance.with_programs import ProgramClient

FIRST_CODECS = ("none", "gzip", "snappy", "lz4")
"""Those before zstd."""


class Knows(NamedTuple):
    """What a release knows of."""

    magic: int
    """The message format that it writes, which is also the newest that it reads."""
    times: bool = True
    """Asks for an offset by time."""
    offset_versions: Sequence[int] = (1,)
    """Versions of OffsetCommit and OffsetFetch that are tried, where that is not the client's choice."""

    def of(self, message: Message) -> Message:
        """What it writes and reads of a message."""
        headers = message.headers if self.magic == 2 else ()
        return message._replace(headers=headers, timestamp_ms=message.timestamp_ms if self.magic else None)


class OldProgram(ProgramClient):
    """An old release, or a new one that takes the broker for an old one, as a program."""

    def __init__(
        self,
        name: str,
        version: str,
        program: Program,
        knows: Knows,
        gaps: Mapping[str, str] | None = None,
        always: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name, version, program, gaps)
        self.knows, self.always = knows, always or {}

    def seen(self, message: Message) -> Message:
        """Without what its releases did not have yet."""
        return self.knows.of(message)

    def commit_offset(self, bootstrap: str, topic: str, group: str, offset: int, metadata: str, version: int) -> None:
        """Commit an offset of partition 0 without being a member, as was done before groups."""
        what = {"topic": topic, "group": group, "position": offset, "name": metadata}
        self.machine.ask("commit_offset", bootstrap=bootstrap, **what, **self._in(version))

    def committed_offset(self, bootstrap: str, topic: str, group: str, version: int) -> tuple[int, str]:
        """The offset and the text beside it; -1 where there is none."""
        what = {"topic": topic, "group": group}
        offset, metadata = self.machine.ask("committed_offset", bootstrap=bootstrap, **what, **self._in(version))
        return int(offset), str(metadata)

    def _in(self, version: int) -> dict[str, object]:
        return {} if "version" in self.always else {"version": version}


class OldKafkaPython(KafkaPython):
    """kafka-python, told that the broker is of an old version."""

    def __init__(self, api_version: tuple[int, ...], knows: Knows, gaps: Mapping[str, str] | None = None) -> None:
        self.name = f"kafka-python as {'.'.join(map(str, api_version))}"
        self.settings = {"api_version": api_version}
        self.knows, self.gaps = knows, gaps or {}

    def seen(self, message: Message) -> Message:
        """Without what that version did not have yet."""
        return self.knows.of(message)

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """By a consumer: its admin client wants a broker of a later version."""
        from kafka import KafkaConsumer, TopicPartition

        partition = TopicPartition(topic, 0)
        consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, **self.settings)
        try:
            ends = consumer.end_offsets if when == -1 else consumer.beginning_offsets
            return int(ends([partition])[partition])
        finally:
            consumer.close()

    def commit_offset(self, bootstrap: str, topic: str, group: str, offset: int, metadata: str, version: int) -> None:
        """Commit an offset of partition 0 without being a member."""
        from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

        partition = TopicPartition(topic, 0)
        consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **self.settings)
        try:
            consumer.assign([partition])
            consumer.commit({partition: OffsetAndMetadata(offset, metadata, -1)})
        finally:
            consumer.close(autocommit=False)

    def committed_offset(self, bootstrap: str, topic: str, group: str, version: int) -> tuple[int, str]:
        """The offset and the text beside it; -1 where there is none."""
        from kafka import KafkaConsumer, TopicPartition

        partition = TopicPartition(topic, 0)
        consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **self.settings)
        try:
            found = consumer.committed(partition, metadata=True)
            return (-1, "") if found is None else (int(found.offset), str(found.metadata))
        finally:
            consumer.close(autocommit=False)


def _java(version: str, knows: Knows) -> OldProgram:
    return OldProgram(f"java {version}", version, OldJavaProgram(version), knows)


def _sarama(version: str, knows: Knows, gaps: Mapping[str, str] | None = None) -> OldProgram:
    return OldProgram(f"sarama as {version}", "1.61.1", GoProgram("sarama"), knows, gaps, {"version": version})


V0_8 = Knows(0, offset_versions=(0, 1))
NO_GROUPS = {"group": "has its groups in ZooKeeper"}
SCALA_GAPS = {**NO_GROUPS, "too large": "says only that it gave up after three tries"}
SARAMA_BEFORE_0_10 = {"lz4": "has lz4 for brokers from 0.10 on", "group": "has groups for brokers from 0.10.2 on"}

OLD_CLIENTS: tuple[OldProgram | OldKafkaPython, ...] = (
    OldProgram("scala 0.8.2.2", "0.8.2.2", OldJavaProgram("0.8.2.2"), V0_8, SCALA_GAPS, {"by": "scala"}),
    OldProgram("java 0.8.2.2", "0.8.2.2", OldJavaProgram("0.8.2.2"), V0_8, NO_GROUPS),
    _java("0.9.0.1", Knows(0, times=False)),
    _java("0.10.2.2", Knows(1)),
    _java("1.1.1", Knows(2)),
    OldKafkaPython((0, 8, 2), Knows(0, times=False), {"group": "has groups for brokers from 0.9 on"}),
    OldKafkaPython((0, 9), Knows(0, times=False)),
    OldKafkaPython((0, 10), Knows(1, times=False)),
    _sarama("0.8.2.0", Knows(0), SARAMA_BEFORE_0_10),
    _sarama("0.9.0.1", Knows(0), SARAMA_BEFORE_0_10),
    _sarama("0.10.2.1", Knows(1)),
    _sarama("0.11.0.0", Knows(2)),
    _sarama("1.1.1", Knows(2)),
)
