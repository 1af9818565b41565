"""Clients at work while brokers come and go: a producer, two members of a group, and somebody who watches the offsets.

    with Work(client, bootstrap, topic, partitions=3) as work:
        ...                                     brokers come and go
        work.wait_for(100)                      so many more values were acknowledged, and so many read
    work.check()                                nothing acknowledged is missing, no committed offset went back

Each value is a number that is written once, to the partition that it is a rest of. Members commit after each poll, by
the client's own call. A client that has lost its coordinator says so in its own way, and so it may: what counts is
that it goes on.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Protocol

from confluent_kafka import Producer

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.verifying import SETTLE_SECONDS, read_all
from tests.conformance.model import Joining, Member
from tests.conformance.programs import GoProgram, JavaProgram, Machine, Program
from tests.conformance.with_aiokafka import AioKafka
from tests.conformance.with_confluent_kafka import ConfluentKafka
from tests.conformance.with_programs import ProgramClient
from tests.eventually import eventually

DELIVERY_SECONDS = 50
VALUES_AT_ONCE = 20
PAUSE_SECONDS = 0.02
POLL_SECONDS = 0.2


class Writer(Protocol):
    """A producer that lives as long as the test."""

    def send(self, topic: str, values: Sequence[tuple[int, int]]) -> None:
        """(partition, value) each; returns when all are acknowledged, raises when one is not."""

    def close(self) -> None:
        """The end of it."""


class Kind(Protocol):
    """One of the clients."""

    name: str

    def missing(self) -> str | None:
        """Why it cannot run here."""

    def writer(self, bootstrap: str) -> Writer:
        """An idempotent producer with acks=all."""

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """A member of a group; each call is a process or a thread of its own."""


def _named(client: str, protocol: str) -> str:
    return client if protocol == "classic" else f"{client}-KIP-848"


class Confluent:
    """confluent-kafka; with the protocol "consumer" its members are those of KIP-848."""

    def __init__(self, protocol: str = "classic") -> None:
        self._protocol = protocol
        self.name = _named("confluent-kafka", protocol)

    def missing(self) -> str | None:
        """Why it cannot run here."""
        return ConfluentKafka().missing()

    def writer(self, bootstrap: str) -> Writer:
        """Producer."""
        return ConfluentWriter(bootstrap)

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """Consumer."""
        return ConfluentKafka().join(bootstrap, topic, group, Joining(protocol=self._protocol))


class ConfluentWriter:
    """confluent-kafka's Producer."""

    def __init__(self, bootstrap: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": DELIVERY_SECONDS * 1000,
        }
        self._producer = Producer(settings)

    def send(self, topic: str, values: Sequence[tuple[int, int]]) -> None:
        """And flush."""
        failures: list[object] = []
        for partition, value in values:
            self._producer.produce(
                topic,
                str(value).encode(),
                partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        left = self._producer.flush(DELIVERY_SECONDS + 10)
        assert not failures and left == 0, failures[:1]

    def close(self) -> None:
        """It goes with the last reference."""


class Aio:
    """aiokafka."""

    name = "aiokafka"

    def missing(self) -> str | None:
        """Why it cannot run here."""
        return AioKafka().missing()

    def writer(self, bootstrap: str) -> Writer:
        """AIOKafkaProducer on a loop of its own."""
        return AioWriter(bootstrap)

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """AIOKafkaConsumer on a loop of its own."""
        return AioKafka().join(bootstrap, topic, group, Joining())


class AioWriter:
    """AIOKafkaProducer."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = self._run(_aio_producer(bootstrap))

    def send(self, topic: str, values: Sequence[tuple[int, int]]) -> None:
        """All at once."""
        self._run(self._send(topic, values))

    def close(self) -> None:
        """Stops it and its loop."""
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DELIVERY_SECONDS)
        self._loop.close()

    async def _send(self, topic: str, values: Sequence[tuple[int, int]]) -> None:
        sent = [
            await self._producer.send(topic, str(value).encode(), partition=partition) for partition, value in values
        ]
        await asyncio.gather(*sent)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DELIVERY_SECONDS + 10)


async def _aio_producer(bootstrap: str) -> Any:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=DELIVERY_SECONDS * 1000,
    )
    await producer.start()
    return producer


class Programs:
    """A client behind a program: one process for the producer, and one for each member."""

    def __init__(self, name: str, version: str, program: Program, protocol: str = "classic") -> None:
        self._client_name, self._version, self._program, self._protocol = name, version, program, protocol
        self.name = _named(name, protocol)

    def missing(self) -> str | None:
        """Why it cannot run here."""
        return self._client().missing()

    def writer(self, bootstrap: str) -> Writer:
        """A process."""
        return ProgramWriter(self._program, bootstrap)

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        """A process."""
        return self._client().join(bootstrap, topic, group, Joining(protocol=self._protocol))

    def _client(self) -> ProgramClient:
        return ProgramClient(self._client_name, self._version, self._program)


class ProgramWriter:
    """The producer that a program keeps."""

    def __init__(self, program: Program, bootstrap: str) -> None:
        self._machine = Machine(program, {"bootstrap": bootstrap})

    def send(self, topic: str, values: Sequence[tuple[int, int]]) -> None:
        """All at once."""
        records = [
            {"partition": partition, "value": base64.b64encode(str(value).encode()).decode()}
            for partition, value in values
        ]
        self._machine.ask("write", topic=topic, records=records)

    def close(self) -> None:
        """Ends the process."""
        self._machine.stop()


KINDS: tuple[Kind, ...] = (
    Programs("java", "4.3.1", JavaProgram("4.3.1")),
    Programs("java", "4.3.1", JavaProgram("4.3.1"), "consumer"),
    Confluent(),
    Confluent("consumer"),
    Programs("franz-go", "1.22.2", GoProgram("franz")),
    Aio(),
)


class Work:
    """A producer, two members and a watcher, on threads of their own from entering to leaving."""

    def __init__(self, kind: Kind, bootstrap: str, topic: str, *, partitions: int) -> None:
        self.bootstrap, self.topic, self.group, self.partitions = bootstrap, topic, f"{topic}-group", partitions
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.committed: dict[int, int] = {}
        self.went_back: list[str] = []
        self.looks = 0
        self.refused: list[str] = []
        self.complaints: list[str] = []
        self._lock, self._is_written, self._is_over = Lock(), Event(), Event()
        self._writer = kind.writer(bootstrap)
        self._members = [kind.member(bootstrap, topic, self.group) for _ in range(2)]
        self._threads = [
            Thread(target=self._write, name="writer", daemon=True),
            Thread(target=self._watch, name="watcher", daemon=True),
            *(Thread(target=self._consume, args=(each,), name="member", daemon=True) for each in self._members),
        ]

    def __enter__(self) -> "Work":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Lets the members read to the end, unless the test has failed already."""
        self._is_written.set()
        self._threads[0].join(DELIVERY_SECONDS + 20)
        try:
            if kind is None:
                self.until(lambda: self.read >= self.acknowledged, "all that is acknowledged is read")
                self.until(self._is_committed, "all that is read is committed")
        finally:
            self._is_over.set()
            for thread in self._threads:
                thread.join(DELIVERY_SECONDS + 20)
            self._writer.close()
            for member in self._members:
                with suppress(Exception):
                    member.close()

    def wait_for(self, count: int) -> None:
        """Returns once so many values more are acknowledged, and values acknowledged from now on are read."""
        begun = max(self.acknowledged, default=-1)
        wanted, before = len(self.acknowledged) + count, dict(self.committed)
        self.until(lambda: len(self.acknowledged) >= wanted, f"{wanted} acknowledged")
        self.until(lambda: len({each for each in self._seen() if each > begun}) >= count, f"{count} new ones read")
        self.until(
            lambda: all(self.committed.get(each, -1) > before.get(each, -1) for each in range(self.partitions)),
            f"later offsets than {before} committed in every partition",
        )

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits; AssertionError, with all that was complained of, when it takes too long."""
        eventually(holds, what, within_s=SETTLE_SECONDS, state=self.state)

    def state(self) -> str:
        """For a failure's report."""
        return (
            f"{len(self.acknowledged)} acknowledged, {len(self.read)} read, committed {self.committed}, "
            f"refused {self.refused[-3:]}, complaints ({len(self.complaints)}) {self.complaints[-6:]}"
        )

    def check(self) -> None:
        """Everything that must hold at the end."""
        assert not self.refused, self.state()
        assert not self.went_back, f"{self.went_back[:5]}; {self.state()}"
        reads = read_all(self.bootstrap, self.topic, self.partitions)
        there = [value for _, _, value in reads]
        assert self.acknowledged <= set(there), f"lost: {sorted(self.acknowledged - set(there))[:20]}"
        assert len(there) == len(set(there)), "an idempotent producer wrote a value twice"
        assert self.acknowledged <= self.read, f"never read: {sorted(self.acknowledged - self.read)[:20]}"
        assert self.looks > 10

    def _seen(self) -> set[int]:
        with self._lock:
            return set(self.read)

    def _is_committed(self) -> bool:
        return sum(self.committed.values()) >= len(self.acknowledged)

    def _write(self) -> None:
        value = 0
        while not self._is_written.is_set():
            values = range(value, value + VALUES_AT_ONCE)
            try:
                self._writer.send(self.topic, [(each % self.partitions, each) for each in values])
            except Exception as error:  # whatever the client says, the test says it
                self.refused.append(f"{values}: {error!r}")
                return
            self.acknowledged |= set(values)
            value += VALUES_AT_ONCE
            time.sleep(PAUSE_SECONDS)

    def _consume(self, member: Member) -> None:
        while not self._is_over.is_set():
            try:
                values = {int(each.message.value or b"-1") for each in member.poll(POLL_SECONDS)}
                with self._lock:
                    self.read |= values
                if values:
                    member.commit()
            except Exception as error:  # a rebalance, a coordinator that is away: each client names them its own way
                self.complaints.append(repr(error)[:200])
                time.sleep(PAUSE_SECONDS)

    def _watch(self) -> None:
        while not self._is_over.is_set():
            try:
                found = committed_offsets(self.bootstrap, self.group)
            except (OSError, KafkaError) as error:
                self.complaints.append(f"watcher: {error!r}"[:200])
                time.sleep(PAUSE_SECONDS)
                continue
            self.looks += 1
            for partition, before in self.committed.items():
                if found.get(partition, -1) < before:
                    self.went_back.append(f"partition {partition}: {before}, then {found.get(partition)}")
            self.committed |= found
            time.sleep(PAUSE_SECONDS)


def coordinator(bootstrap: str, group: str) -> tuple[int, str]:
    """The broker that coordinates a group and its address, as the first says that answers; -1 and '' when none does.

    Who is said to coordinate may be gone by now.
    """
    for address in bootstrap.split(","):
        with suppress(OSError), Asker(address) as asker:
            answer = asker.ask(m.FindCoordinatorRequest(key=group), 1)
            if answer.error_code == 0:
                return answer.node_id, f"{answer.host}:{answer.port}"
    return -1, ""


def committed_offsets(bootstrap: str, group: str) -> dict[int, int]:
    """By partition, for a group of one topic, asked without a client's retries. OSError, KafkaError: ask again."""
    number, address = coordinator(bootstrap, group)
    if number < 0:
        raise KafkaError("no broker knows the coordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with Asker(address) as asker:
        answer = asker.ask(m.OffsetFetchRequest(group_id=group, topics=None, require_stable=True), 7)
    if answer.error_code:
        raise KafkaError(f"broker {number} refuses", ErrorCode(answer.error_code))
    partitions = [each for topic in answer.topics for each in topic.partitions]
    if wrong := next((each for each in partitions if each.error_code), None):
        raise KafkaError(f"partition {wrong.partition_index}", ErrorCode(wrong.error_code))
    return {each.partition_index: each.committed_offset for each in partitions if each.committed_offset >= 0}
