"""The grid's face of the clients in other languages: Java, franz-go, sarama, kafkajs."""

import atexit
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.conformance.model import (
    MESSAGES,
    NEW_REGEX,
    NEW_STATIC,
    NO_NEW_GROUPS,
    NO_SHARES,
    NO_STREAMS,
    STREAMS,
    Consumed,
    FromOffset,
    FromTime,
    GroupState,
    Joining,
    Message,
    Transforming,
    Writing,
)
from tests.conformance.programs import (
    GoProgram,
    JavaProgram,
    Machine,
    NodeProgram,
    Program,
    consumed,
    java_command,
    missing_tools,
    record_line,
)
from tests.conformance.sharing import FranzShareMember, JavaShareMember
from tests.conformance.transforming import transformed
from tests.eventually import collected
from tests.peers.kafka_streams import build_word_count, start_word_count
from tests.peers.share_consumers import PROGRAM, JavaShareConsumers


class ProgramClient:
    """A client behind a program that is started by the first call."""

    is_program = True
    messages: Sequence[Message] = MESSAGES
    always: Mapping[str, object] = {}
    """What the program is told with every command."""

    def __init__(self, name: str, version: str, program: Program, gaps: Mapping[str, str] | None = None) -> None:
        self.name, self._version, self.program, self.gaps = name, version, program, gaps or {}
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine:
        """The running program."""
        if self._machine is None:
            self._machine = Machine(self.program, self.always)
        return self._machine

    def secure_with(self, how: Mapping[str, object] | None) -> None:
        """Say with every command from now on how connections are secured; None for plain text."""
        self.machine.always = {**self.always, **({} if how is None else {"secure": how})}

    def prepare(self) -> None:
        """Build and start the program, which may take minutes the first time."""
        assert self.machine is not None

    def missing(self) -> str | None:
        """Why it cannot run here; None when its tools are installed."""
        reason = missing_tools(self.program.tools)
        return f"{self.name} {reason}" if reason else None

    def version(self) -> str:
        """As it is pinned in pom.xml's property, go.mod and package.json."""
        return self._version

    def seen(self, message: Message) -> Message:
        """All of it."""
        return message

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """CreateTopics."""
        self.machine.ask("create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """All messages through one producer."""
        records = [record_line(each) for each in messages]
        self.machine.ask("produce", bootstrap=bootstrap, topic=topic, records=records, **how._asdict())

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """By assignment, where the client has it."""
        how = "time" if isinstance(start, FromTime) else "offset"
        return self._read(bootstrap, topic, how, start[0], count)

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """The end is known when the program answers."""
        return self._read(bootstrap, topic, "end", 0, count, write)

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> "ProgramMember":
        """A new member of a group."""
        member = ProgramMember(self.machine)
        self.machine.ask(
            "join", consumer=member.consumer, bootstrap=bootstrap, topic=topic, group=group, **how._asdict()
        )
        return member

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """With the client's isolation level."""
        return self._read(bootstrap, topic, "offset", 0, count, isolation="read_committed")

    def transactional(self, bootstrap: str, transactional_id: str) -> "ProgramTransactions":
        """Initialized at once; kafkajs initializes it with its first transaction."""
        return ProgramTransactions(self.machine, bootstrap, transactional_id)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With a consumer and a producer."""
        member = self.join(bootstrap, what.source, what.group, Joining(protocol=what.protocol))
        producer = self.transactional(bootstrap, what.transactional_id)
        return transformed(member, producer, what, commit, lambda: producer.send_offsets(member, what))

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """ListOffsets."""
        return int(self.machine.ask("list_offset", bootstrap=bootstrap, topic=topic, position=when))

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """DescribeConfigs."""
        return dict(self.machine.ask("topic_settings", bootstrap=bootstrap, topic=topic))

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """IncrementalAlterConfigs; kafkajs: AlterConfigs."""
        self.machine.ask("set_topic_setting", bootstrap=bootstrap, topic=topic, name=name, value=value)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """CreatePartitions."""
        self.machine.ask("add_partitions", bootstrap=bootstrap, topic=topic, partitions=total)

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """DeleteRecords."""
        self.machine.ask("delete_records", bootstrap=bootstrap, topic=topic, position=before)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """DeleteTopics."""
        self.machine.ask("delete_topic", bootstrap=bootstrap, topic=topic)

    def groups(self, bootstrap: str) -> set[str]:
        """ListGroups."""
        return set(self.machine.ask("groups", bootstrap=bootstrap))

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """DescribeGroups."""
        return GroupState(**self.machine.ask("group_state", bootstrap=bootstrap, group=group))

    def delete_group(self, bootstrap: str, group: str) -> None:
        """DeleteGroups."""
        self.machine.ask("delete_group", bootstrap=bootstrap, group=group)

    def _read(
        self,
        bootstrap: str,
        topic: str,
        how: str,
        position: int,
        count: int,
        then: Callable[[], None] = lambda: None,
        isolation: str = "read_uncommitted",
    ) -> list[Consumed]:
        reader = ProgramMember(self.machine)
        where = {"bootstrap": bootstrap, "topic": topic, "how": how, "position": position, "isolation": isolation}
        self.machine.ask("open", consumer=reader.consumer, **where)
        try:
            then()
            return collected(lambda _: reader.poll(0.2), count)[:count]
        finally:
            reader.close()


class ProgramMember:
    """A consumer inside a program."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.consumer = machine, machine.new_name()

    def assignment(self) -> set[int]:
        """The partitions it holds now."""
        return set(self.machine.ask("assignment", consumer=self.consumer))

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived."""
        return [consumed(each) for each in self.machine.ask("poll", consumer=self.consumer, ms=int(seconds * 1_000))]

    def commit(self) -> None:
        """Commit what was polled."""
        self.machine.ask("commit", consumer=self.consumer)

    def close(self) -> None:
        """Leave the group, and end."""
        self.machine.ask("close", consumer=self.consumer)


class ProgramTransactions:
    """A producer with a transactional id inside a program."""

    def __init__(self, machine: Machine, bootstrap: str, transactional_id: str) -> None:
        self.machine, self.producer = machine, machine.new_name()
        self._ask("transactional", bootstrap=bootstrap, name=transactional_id)

    def begin(self) -> None:
        """Begin a transaction."""
        self._ask("begin_transaction")

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""
        self._ask("send", topic=topic, partition=0, records=[record_line(each) for each in messages])

    def send_offsets(self, member: ProgramMember, what: Transforming) -> None:
        """Commit the positions of a group member with the transaction."""
        self._ask("send_offsets", consumer=member.consumer, group=what.group, topic=what.source)

    def commit(self) -> None:
        """Commit."""
        self._ask("commit_transaction")

    def abort(self) -> None:
        """Abort."""
        self._ask("abort_transaction")

    def close(self) -> None:
        """Close the connections."""
        self._ask("close_producer")

    def _ask(self, what: str, **how: object) -> None:
        self.machine.ask(what, producer=self.producer, **how)


SHORTEST_SESSION_MS = 6_000  # that a broker takes, unless it is told otherwise


class Java(ProgramClient):
    """A release of Apache Kafka's client, and of Kafka Streams."""

    def __init__(self, version: str, gaps: Mapping[str, str]) -> None:
        self.java = JavaProgram(version)
        super().__init__(f"java {version}", version, self.java, gaps)

    def build_word_count(self) -> None:
        """Fetch Kafka Streams."""
        build_word_count(self.version())

    def count_words(
        self, bootstrap: str, source: str, target: str, directory: Path, protocol: str
    ) -> subprocess.Popen[bytes]:
        """WordCount.java with Kafka Streams of this release."""
        return start_word_count(bootstrap, source, target, directory, protocol, self.version(), SHORTEST_SESSION_MS)


class JavaOfToday(Java):
    """A release that has share consumers. Theirs is a JVM beside Grid's, which all tests share."""

    _shares: JavaShareConsumers | None = None

    def share(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> JavaShareMember:
        """A KafkaShareConsumer."""
        if self._shares is None:
            self._shares = JavaShareConsumers([*java_command(self.java.library(), str(PROGRAM)), bootstrap])
            atexit.register(self._shares.stop)
        return JavaShareMember(self._shares, topic, group, is_explicit)


class FranzGo(ProgramClient):
    """franz-go has one object that consumes, produces and commits offsets in transactions."""

    def share(self, bootstrap: str, topic: str, group: str, is_explicit: bool) -> FranzShareMember:
        """A client of a share group; it may acknowledge either way."""
        return FranzShareMember(self.machine, bootstrap, topic, group)

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """With its GroupTransactSession."""
        how = {"topic": what.source, "target": what.target, "group": what.group, "name": what.transactional_id}
        how["protocol"] = what.protocol
        read = self.machine.ask("transform", bootstrap=bootstrap, position=what.records, commit=commit, **how)
        return [consumed(each) for each in read]


class KafkaJs(ProgramClient):
    """kafkajs has headers as an object: a name's values stay in order, the names among each other do not."""

    messages = tuple(each for each in MESSAGES if len({name for name, _ in each.headers}) == len(each.headers))

    def seen(self, message: Message) -> Message:
        """Headers by name."""
        names = list(dict.fromkeys(name for name, _ in message.headers))
        return message._replace(headers=tuple(sorted(message.headers, key=lambda header: names.index(header[0]))))


NO_STREAMS_PROTOCOL = {STREAMS: "has no streams protocol"}
NO_PLUGIN = "has it from a plugin that is a native add-on"
PROGRAMS: tuple[ProgramClient, ...] = (
    JavaOfToday("4.3.1", {}),
    Java("3.9.2", {NEW_REGEX: "evaluates regular expressions itself", **NO_SHARES, **NO_STREAMS_PROTOCOL}),
    Java(
        "2.8.2",
        {**NO_NEW_GROUPS, **NO_SHARES, **NO_STREAMS_PROTOCOL},
    ),
    FranzGo(
        "franz-go",
        "1.22.2",
        GoProgram("franz"),
        {
            NEW_STATIC: "leaves without its instance id, so that it cannot return before its session has ended",
            **NO_STREAMS,
        },
    ),
    ProgramClient(
        "sarama",
        "1.61.1",
        GoProgram("sarama"),
        {
            "by key": "places keys by FNV-1a",
            "cooperative": "has eager rebalances only",
            **NO_NEW_GROUPS,
            **NO_SHARES,
            **NO_STREAMS,
        },
    ),
    KafkaJs(
        "kafkajs",
        "2.2.4",
        NodeProgram(),
        {
            "lz4": NO_PLUGIN,
            "zstd": NO_PLUGIN,
            "cooperative": "has eager rebalances only",
            "static": "has no static members",
            **NO_NEW_GROUPS,
            **NO_SHARES,
            **NO_STREAMS,
        },
    ),
)
