"""What happens to whom, while a group of KIP-848, a share group or Kafka Streams takes the records of a producer: each
acknowledged record comes, no committed offset goes back, no record of a share group comes again that was accepted, and
a streams group counts each record once.

    {clean stop, kill -9, bounce, SIGSTOP} x {leader, coordinator, controller, ZooKeeper}
        x {consumer group, share group, streams group}

Every run of the tests does each fault once, with others of the other two dimensions the next day; the whole grid is
marked `soak`. Kafka Streams needs Java and Maven.
"""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Protocol, Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ConfluentError

from headrace.errors import KafkaError
from tests.cluster.faults import FAULTS, do_to_broker, do_to_zookeeper, find_victim
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.share_members import GROUP_TYPE, PARTITIONS, Group, Member, Record
from tests.cluster.stall_report import stall_report
from tests.cluster.transactional_clients import FAST, WAIT_S
from tests.cluster.verifying import VerifyingProducer
from tests.cluster.working_clients import committed_offsets
from tests.eventually import eventually
from tests.harness import stop_process, tail
from tests.peers import kafka
from tests.peers.kafka_streams import start_word_count
from tests.rotation import seed
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.xdist_group("cluster")]

VICTIMS = ("leader", "coordinator", "controller", "zookeeper")
KINDS = ("consumer", "share", "streams")
PER_SECOND = 100
"""Few enough for members that ask one request at a time."""
ROTATION = seed()

Cell = tuple[str, str, str]
GRID = list(product(FAULTS, VICTIMS, KINDS))


def cells_of(rotation: int) -> Iterator[Cell]:
    """Each fault once, each victim once, each kind once or twice."""
    for number, fault in enumerate(FAULTS):
        yield fault, VICTIMS[(number + rotation) % 4], KINDS[(number + rotation // 4) % 3]


def test_every_cell_has_its_day() -> None:
    assert {cell for rotation in range(12) for cell in cells_of(rotation)} == set(GRID)


class Taking(Protocol):
    """A group that takes records on a thread of its own, from entering to leaving."""

    name: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def values(self) -> set[int]:
        """What has come."""

    def check(self) -> None:
        """What must hold at the end."""

    def state(self) -> str:
        """How far it is, for a failure's report."""


class ConsumerGroup:
    """Two members of confluent-kafka with `group.protocol=consumer`, which commit what they have read."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.name = f"{topic}-group"
        self._cluster = cluster
        settings = {**FAST, "bootstrap.servers": cluster.bootstrap, "group.id": self.name, "group.protocol": "consumer"}
        self._members = [
            Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}) for _ in range(2)
        ]
        for each in self._members:
            each.subscribe([topic])
        self._values: set[int] = set()
        self._committed: list[dict[int, int]] = []
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for each in self._members:
            each.close()

    def values(self) -> set[int]:
        """See `Taking`."""
        return set(self._values)

    def check(self) -> None:
        """No committed offset went back."""
        for earlier, later in zip(self._committed, self._committed[1:], strict=False):
            for partition, offset in earlier.items():
                assert later.get(partition, offset) >= offset, (earlier, later)
        assert self._committed, "no offset was seen"

    def state(self) -> str:
        """See `Taking`."""
        return f"the last committed offsets are {self._committed[-1:]}"

    def _run(self) -> None:
        looked = 0.0
        while not self._stopping.is_set():
            for member in self._members:
                came = [each for each in member.consume(200, 0.05) if each.error() is None]
                self._values |= {int(each.value() or b"") for each in came}
                if came:
                    with suppress(KafkaException):  # its partitions have moved, or the coordinator
                        member.commit(asynchronous=False)
            if time.monotonic() - looked > 0.5:
                looked = time.monotonic()
                with suppress(OSError, KafkaError):
                    self._committed.append(committed_offsets(self._cluster.bootstrap, self.name))


class ShareGroup:
    """Two members of a share group, which accept what they get."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        group = Group(cluster, topic)
        self.name = group.name
        eventually(lambda: group.alter(0), "the first offsets", within_s=WAIT_S, state=cluster.logs)
        self._members = [Member(cluster, group.name, topic, name) for name in ("one", "two")]
        self._accepted: set[Record] = set()
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def values(self) -> set[int]:
        """See `Taking`."""
        return {int(value) for member in self._members for value in list(member.values)}

    def check(self) -> None:
        """Nothing came again after its acceptance was answered."""
        assert [member.again for member in self._members] == [[], []]

    def state(self) -> str:
        """See `Taking`."""
        return f"{len(self._accepted)} are accepted"

    def _run(self) -> None:
        while not self._stopping.is_set():
            for member in self._members:
                member.take(self._accepted)


class StreamsGroup:
    """Two instances of a word count of Kafka Streams with `group.protocol=streams` and exactly-once. Each value is a
    word of its own."""

    def __init__(self, cluster: LocalCluster, topic: str, directory: Path) -> None:
        self.name, target = f"count-{topic}", f"{topic}-counts"
        cluster.create_topic(target, PARTITIONS, 3)
        self._start = [partial(_word_count, cluster, topic, target, directory / name) for name in ("one", "two")]
        self._processes: list[subprocess.Popen[bytes]] = []
        settings = {**FAST, "bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "auto.offset.reset": "error"}
        self._reader = Consumer(settings)
        self._reader.assign([TopicPartition(target, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        self._counts: dict[int, list[int]] = {}
        self._read: dict[int | None, int | None] = {}
        self._resets: list[str] = []
        self._gave_up: list[object] = []
        self._logs = [directory / name / "streams.log" for name in ("one", "two")]
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._processes = [start() for start in self._start]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._reader.close()
        self._gave_up = [each.args for each in self._processes if each.poll() is not None]
        for each in self._processes:
            stop_process(each)

    def values(self) -> set[int]:
        """See `Taking`. AssertionError if an instance gave up: no more would come."""
        assert all(each.poll() is None for each in self._processes), self.state()
        return set(self._counts)

    def check(self) -> None:
        """Each value was counted once, no instance gave up, and nobody was told that its position is lost."""
        assert self._resets == []
        assert {value: counts for value, counts in self._counts.items() if counts != [1]} == {}
        assert self._gave_up == []

    def state(self) -> str:
        """See `Taking`. The JVMs write their threads to their logs, too. Nothing is asked of the reader: a call from
        another thread, while it consumes, can wait for ever."""
        said = [f"the last counts that were read are at offsets {self._read}, resets {self._resets}"]
        for process, log in zip(self._processes, self._logs, strict=True):
            said.append(f"---- {log}, status {process.poll()} ----\n{tail(log, 16_000)}")
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
        return "\n".join(said)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for each in self._reader.consume(200, 0.1):
                if (error := each.error()) is None:
                    self._counts.setdefault(int(each.key() or b""), []).append(int(each.value() or b""))
                    self._read[each.partition()] = each.offset()
                elif error.code() == ConfluentError._AUTO_OFFSET_RESET:
                    self._resets.append(error.str())


def _word_count(cluster: LocalCluster, topic: str, target: str, directory: Path) -> subprocess.Popen[bytes]:
    directory.mkdir()
    return start_word_count(cluster.bootstrap, topic, target, directory, "streams")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_group_takes_what_was_acknowledged(
    cluster: LocalCluster, zookeeper: ZooKeeperServer, tmp_path: Path, fault: str
) -> None:
    [cell] = [each for each in cells_of(ROTATION) if each[0] == fault]
    print(f"rotation {ROTATION}: {cell}")
    go_through(cluster, zookeeper, tmp_path, cell)


@pytest.mark.soak
@pytest.mark.parametrize("cell", GRID, ids="-".join)
def test_the_whole_grid(cluster: LocalCluster, zookeeper: ZooKeeperServer, tmp_path: Path, cell: Cell) -> None:
    go_through(cluster, zookeeper, tmp_path, cell)


def go_through(cluster: LocalCluster, zookeeper: ZooKeeperServer, directory: Path, cell: Cell) -> None:
    """One cell of the grid."""
    fault, victim, kind = cell
    if kind == "streams" and (reason := kafka.missing_tools()):
        pytest.skip(reason)
    topic = f"{fault}-{victim}-{kind}-{time.monotonic_ns()}".replace(" ", "-")
    cluster.create_topic(topic, PARTITIONS, 3)
    taking: Taking
    match kind:
        case "consumer":
            taking = ConsumerGroup(cluster, topic)
        case "share":
            taking = ShareGroup(cluster, topic)
        case _:
            taking = StreamsGroup(cluster, topic, directory)

    def state() -> str:
        report = stall_report(cluster, topic, taking.name, kind)
        return f"{taking.state()}\n{report}\n{cluster.logs()}"

    with taking:
        with VerifyingProducer(cluster.bootstrap, topic, partitions=PARTITIONS, per_second=PER_SECOND) as producer:
            producer.wait_for(PER_SECOND)
            eventually(lambda: len(taking.values()) > 0, "the first records", within_s=WAIT_S, state=state)
            if victim == "zookeeper":
                do_to_zookeeper(zookeeper, fault)
            else:
                do_to_broker(cluster, _victim(cluster, victim, topic, taking.name), fault, producer)
            producer.wait_for(PER_SECOND)
            cluster.wait_until_ready()
            producer.wait_for(PER_SECOND)
        assert not producer.failed
        wanted = set(producer.acknowledged)
        eventually(
            lambda: taking.values() >= wanted,
            "all records",
            within_s=2 * WAIT_S,
            state=lambda: f"{len(wanted - taking.values())} of {len(wanted)} are missing\n{state()}",
        )
    taking.check()


def _victim(cluster: LocalCluster, victim: str, topic: str, group: str) -> int:
    if victim != "coordinator":
        return find_victim(cluster, victim, topic)
    found = Group(cluster, topic).coordinator(GROUP_TYPE, group)
    assert found is not None
    return found.node_id
