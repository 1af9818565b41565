"""The shortest way of plain produces, compiled and not, does what the short and the general way do, byte for byte.

The same requests go all four ways, each to topics of its own. The answers, the logs, what they know of producers, and
the counters are the same.
"""

import gc
import itertools
import random
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from headrace.broker.produce import commit_queue, produce_shortcut, waiting_answer
from headrace.broker.produce.produce_shortcut import ProduceShortcut
from headrace.broker.request import dispatch
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.shortcuts import Shortcuts
from headrace.errors import ErrorCode, StorageError
from headrace.log import appending
from headrace.log.partition_log import PartitionLog
from headrace.network import connection as connections
from headrace.network.answer_order import Slot
from headrace.network.connection import WAITS, Connection, Shortcut
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.replication.isr import committed
from headrace.replication.partition_state import LeaderAndIsr
from headrace.testing import Broker
from headrace.types import BrokerId
from tests.broker.refusing_disk import refusing
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame
from tests.uncompiled import uncompiled
from tests.wire import Wire

WAYS = ("compiled", "uncompiled", "short", "general")
TOPICS = {"small": 4, "rolls": 3, "stamped": 1}
SETTINGS = {
    "small": {"max.message.bytes": "5000"},
    "rolls": {"segment.bytes": "1048576", "index.interval.bytes": "300"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
WIDE = 110
"""Partitions of a topic that has many."""
NOW_MS = int(time.time() * 1000)
Parts = list[tuple[str, list[tuple[int, bytes]]]]


def name_of(way: str, topic: str) -> str:
    return f"{way:-<10}-{topic}"


class Uncompiled(Shortcut):
    """Lets a compiled connection use the shortest way of the uncompiled module."""

    def __init__(self, module: ModuleType, dispatcher: Dispatcher) -> None:
        super().__init__()
        times = dispatcher.handlers[ApiKey.PRODUCE].times
        self.plain: Any = module.ProduceShortcut(
            dispatcher._services, times, dispatcher._append_rest, module.CommitQueues(dispatcher._services),
            dispatcher._refuse_waiting,
        )  # fmt: skip

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        answer_end = int(self.plain.answer(connection, memoryview(octets), start, end, at))
        if answer_end not in (0, WAITS):
            self.out[at:answer_end] = self.plain.out[at:answer_end]
        return answer_end


class Setting(NamedTuple):
    """A broker, and its shortest ways by name."""

    broker: Broker
    dispatcher: Dispatcher
    shortcuts: dict[str, Any]
    ids: dict[str, bytes]

    def taken(self) -> list[int]:
        found: list[ProduceShortcut] = [self.shortcuts["compiled"].produces, self.shortcuts["uncompiled"].plain]
        return [each.taken for each in found]

    def log(self, way: str, topic: str, number: int) -> PartitionLog:
        return self.dispatcher._services.replicas.partitions[(name_of(way, topic), number)].log


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        for way in WAYS:
            for topic, count in TOPICS.items():
                assert wire.create_topic(name_of(way, topic), count, SETTINGS[topic]) == 0
        for way in WAYS[:2]:
            assert wire.create_topic(name_of(way, "wide"), WIDE) == 0
        dispatchers = [each for each in gc.get_objects() if type(each) is Dispatcher]
        (found,) = (each for each in dispatchers if each._services.config.log_dirs == (str(broker.data),))
        assert isinstance(found.shortcut, Shortcuts)
        module = uncompiled(produce_shortcut, connections, commit_queue, waiting_answer)
        shortcuts = {"compiled": found.shortcut, "uncompiled": Uncompiled(module, found)}
        names = [name_of(way, topic) for way in WAYS for topic in TOPICS]
        asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names])
        answer, _ = m.MetadataResponse.decode(12, wire.ask(3, 12, b"\0" + asked.encode(12)), 1)
        ids = {each.name: each.topic_id for each in answer.topics if each.name is not None}
        yield Setting(broker, found, shortcuts, ids)


class Client:
    """A connection by one of the ways."""

    def __init__(self, setting: Setting, way: str) -> None:
        self.setting, self.way = setting, way
        host, _, port = setting.broker.bootstrap.rpartition(":")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(setting.dispatcher, "shortcut", setting.shortcuts.get(way))
            self.socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)
            body = write_request_header(ApiKey.API_VERSIONS, 0, 7, "t")
            self.socket.sendall(len(body).to_bytes(4, "big") + body)
            receive_frame(self.socket)  # the connection is there, with its shortcut

    def framed(self, version: int, acks: int, parts: Parts, correlation_id: int = 7) -> bytes:
        topics = []
        for topic, partitions in parts:
            name = name_of(self.way, topic)
            data = [m.ProduceRequest.PartitionProduceData(index=i, records=r) for i, r in partitions]
            topic_id = self.setting.ids.get(name, b"?" * 16)
            topics.append(m.ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=data))
        request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
        body = write_request_header(ApiKey.PRODUCE, version, correlation_id, "t") + request.encode(version)
        return len(body).to_bytes(4, "big") + body

    def ask(self, version: int, acks: int, parts: Parts) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            if self.way == "general":
                patch.setattr(dispatch, "append_plainly", lambda *_: None)
            self.socket.sendall(self.framed(version, acks, parts))
            answer = receive_frame(self.socket)
        for topic, _ in parts:
            name = name_of(self.way, topic)
            for called in (name.encode(), self.setting.ids.get(name, b"?" * 16)):
                answer = answer.replace(called, topic.encode().ljust(len(called), b"~"))
        return answer


@pytest.fixture
def clients(setting: Setting) -> Iterator[list[Client]]:
    found = [Client(setting, way) for way in WAYS]
    yield found
    for each in found:
        each.socket.close()


def batch(count: int = 1, size: int = 50, *, producer: int = -1, epoch: int = 0, sequence: int = -1,
          codec: Codec = Codec.NONE) -> bytes:  # fmt: skip
    records = [Record(i, NOW_MS + i, None, bytes(size), ()) for i in range(count)]
    return bytes(
        encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence,
        )
    )


class Drawn:
    """Draws requests, with producers that mostly send what comes next."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.next: dict[tuple[str, int, int], int] = {}
        self.epochs = {10 + seed * 10: 0, 11 + seed * 10: 0}

    def batch(self, topic: str, number: int) -> bytes:
        chance = self.chance
        count, size = chance.choice((1, 1, 2, 5)), chance.choice((0, 60, 800))
        if topic == "rolls" and chance.random() < 0.3:
            count, size = 1, 90_000
        codec = Codec.GZIP if chance.random() < 0.03 else Codec.NONE
        producer = chance.choice((-1, *self.epochs))
        if producer < 0:
            made = batch(count, size, codec=codec)
        else:
            if chance.random() < 0.01:
                self.epochs[producer] += 1
                for key in [key for key in self.next if key[2] == producer]:
                    del self.next[key]
            key = (topic, number, producer)
            sequence = self.next.get(key, 0)
            if chance.random() < 0.06:
                sequence = max(0, sequence + chance.randrange(-6, 3))  # a repetition or a gap
            else:
                self.next[key] = sequence + count
            epoch = self.epochs[producer] - (1 if chance.random() < 0.02 else 0)
            made = batch(count, size, producer=producer, epoch=max(epoch, 0), sequence=sequence, codec=codec)
        if chance.random() < 0.02:
            made = made[:-1] + bytes([made[-1] ^ 1])
        return made

    def parts(self) -> Parts:
        chance = self.chance
        places = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        if chance.random() < 0.8:
            places = [each for each in places if each[0] != "stamped"]
        if chance.random() < 0.03:
            places = [*places[:2], ("small", 9), ("nowhere", 0)]
        chosen = chance.sample(places, chance.choice((1, 2, 3, 3, min(6, len(places)))))
        if chance.random() < 0.05:
            chosen.append(chosen[0])
        parts: Parts = []
        for topic, number in chosen:
            if not parts or parts[-1][0] != topic:
                parts.append((topic, []))
            parts[-1][1].append((number, self.batch(topic, number)))
        return parts


def state_of(setting: Setting, way: str) -> dict[str, object]:
    """All that is stored, by partition; the times of stamped batches differ."""
    found: dict[str, object] = {}
    for topic, count in TOPICS.items():
        for number in range(count):
            log = setting.log(way, topic, number)
            state = setting.dispatcher._services.replicas.partitions[(name_of(way, topic), number)].state
            directory = Path(setting.broker.data, f"{name_of(way, topic)}-{number}")
            found[f"{topic}-{number}"] = (
                (log.log_start_offset, log.log_end_offset, log.producers.end_offset, state.high_watermark),
                [(each.base_offset, each.size) for each in log.segments],
                {key: (each.epoch, each.batches) for key, each in log.producers.entries.items() if topic != "stamped"},
                {each.name: each.read_bytes() for each in directory.glob("*.log") if topic != "stamped"},
            )
        traffic = setting.dispatcher._services.replicas.traffic.of(name_of(way, topic))
        found[topic] = {
            each: getattr(traffic, each) for each in ("produces", "messages_in", "bytes_in", "failed_produces")
        }
    return found


@pytest.mark.parametrize("seed", range(4))
def test_all_ways_store_and_answer_the_same(setting: Setting, clients: list[Client], seed: int) -> None:
    drawn, before = Drawn(seed), setting.taken()
    for number in range(90):
        version, acks, parts = drawn.chance.randrange(3, 14), drawn.chance.choice((1, -1)), drawn.parts()
        answers = [client.ask(version, acks, parts) for client in clients]
        is_stamped = any(topic == "stamped" for topic, _ in parts)
        assert len({len(each) if is_stamped else each for each in answers}) == 1, (number, version, parts)
    for way in WAYS[:-1]:
        assert state_of(setting, way) == state_of(setting, "general")
    taken = [now - then for now, then in zip(setting.taken(), before, strict=True)]
    assert min(taken) > 15, "the shortest way took next to nothing"  # none of a large request received in parts


@pytest.mark.parametrize("version", [7, 12, 13])
def test_what_the_first_partition_has_stays_when_a_later_one_is_refused(
    setting: Setting, clients: list[Client], version: int
) -> None:
    """A gap, a repetition, a new producer and a fenced one, behind a batch that is appended at once."""
    producer = 1000 + version
    ask = [client.ask for client in clients]
    first = [("small", [(n, batch(2, producer=producer, epoch=1, sequence=0)) for n in (0, 1, 2)])]
    assert len({each(version, -1, first) for each in ask}) == 1
    before = setting.taken()
    for second in (
        batch(producer=producer, epoch=1, sequence=9),
        batch(2, producer=producer, epoch=1, sequence=0),
        batch(producer=producer + 500, sequence=0),
        batch(producer=producer, epoch=0, sequence=2),
    ):
        answers = {each(version, -1, [("small", [(3, batch()), (1, second), (2, batch())])]) for each in ask}
        assert len(answers) == 1
    assert setting.taken() == before
    for way in WAYS[:-1]:
        assert state_of(setting, way) == state_of(setting, "general")


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_disk_that_fails_for_one_of_several_partitions(
    setting: Setting, clients: list[Client], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    append = appending.append

    def fails(log: PartitionLog, *arguments: Any, **how: Any) -> object:
        if log.partition.partition == failing:
            raise StorageError("no space")
        return append(log, *arguments, **how)

    parts: Parts = [("small", [(n, batch()) for n in range(3)])]
    assert len({each.ask(12, -1, parts) for each in clients}) == 1
    ends = [setting.log("compiled", "small", n).log_end_offset for n in range(3)]
    with monkeypatch.context() as disk:
        disk.setattr(appending, "append", fails)
        for way in WAYS:
            disk.setattr(setting.log(way, "small", failing).active.records, "plain_fd", -1)
        (answer,) = {each.ask(12, -1, parts) for each in clients}
    response, _ = m.ProduceResponse.decode(12, memoryview(answer), 5)
    codes = [each.error_code for each in response.responses[0].partition_responses]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR if n == failing else ErrorCode.NONE for n in range(3)]
    assert [setting.log("compiled", "small", n).log_end_offset for n in range(3)] == [
        end + (n != failing) for n, end in enumerate(ends)
    ]
    for way in WAYS[:-1]:
        assert state_of(setting, way) == state_of(setting, "general")


@pytest.mark.parametrize("way", WAYS[:2])
def test_answers_of_requests_that_were_sent_together_keep_their_order(setting: Setting, way: str) -> None:
    """Of some the rest is appended by the dispatcher, and their answers wait for the end of the turn."""
    client, version, count = Client(setting, way), 9, 40
    base = setting.log(way, "wide", 0).log_end_offset
    frames = []
    for number in range(count):
        second = batch(producer=2000 + number, sequence=0) if number % 3 == 1 else batch()
        frames.append(client.framed(version, -1, [("wide", [(0, batch()), (1, second)])], number))
    client.socket.sendall(b"".join(frames))
    offsets = []
    for number in range(count):
        answer = receive_frame(client.socket)
        assert int.from_bytes(answer[:4], "big") == number
        response, _ = m.ProduceResponse.decode(version, memoryview(answer), 5)
        assert [each.error_code for each in response.responses[0].partition_responses] == [0, 0]
        offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(base, base + count))
    client.socket.close()


@pytest.mark.parametrize("way", WAYS[:2])
def test_answers_that_do_not_fit_into_one_turn_are_sent_too(setting: Setting, way: str) -> None:
    client, version, count = Client(setting, way), 11, 20
    parts: Parts = [("wide", [(n, batch(size=1)) for n in range(WIDE)])]
    bases = [setting.log(way, "wide", n).log_end_offset for n in range(WIDE)]
    client.socket.sendall(b"".join(client.framed(version, 1, parts, number) for number in range(count)))
    found = []
    for number in range(count):
        answer = receive_frame(client.socket)
        assert int.from_bytes(answer[:4], "big") == number
        response, _ = m.ProduceResponse.decode(version, memoryview(answer), 5)
        found.append([each.base_offset for each in response.responses[0].partition_responses])
    assert found == [[base + number for base in bases] for number in range(count)]
    client.socket.close()


def test_a_client_that_leaves_does_not_disturb_what_is_left_to_the_dispatcher(setting: Setting) -> None:
    """It closes its side behind requests whose answers wait for the end of the turn."""
    for way in WAYS[:2]:
        client = Client(setting, way)
        client.ask(9, -1, [("wide", [(0, batch()), (1, batch())])])  # the first of a segment are the dispatcher's
        ends = [setting.log(way, "wide", n).log_end_offset for n in (0, 1)]
        second = batch(producer=3000, sequence=0)
        client.socket.sendall(client.framed(9, -1, [("wide", [(0, batch()), (1, second)])]) + b"\xff" * 4)
        client.socket.settimeout(WITHIN_SECONDS)
        while client.socket.recv(4096):
            pass
        client.socket.close()
        assert [setting.log(way, "wide", n).log_end_offset for n in (0, 1)] == [end + 1 for end in ends]


FOLLOWER = BrokerId(99)
_NUMBERS = itertools.count()


class Replicated:
    """A topic of a way, partition 0 of which has a follower that fetches when the test says so."""

    def __init__(self, setting: Setting, way: str) -> None:
        self._services, self.topic = setting.dispatcher._services, f"waits-{next(_NUMBERS)}"
        self.client = Client(setting, way)
        with Wire(setting.broker.bootstrap) as wire:
            assert wire.create_topic(name_of(way, self.topic), 2) == 0
        for number in (0, 1):  # the first of a segment is the dispatcher's
            self.client.ask(9, -1, [(self.topic, [(number, batch())])])
        self.partition = self._services.replicas.partitions[(name_of(way, self.topic), 0)]
        state = self.partition.state
        both = (state.local_id, FOLLOWER)
        replicated = LeaderAndIsr(both[0], state.leader_epoch, both, state.partition_epoch + 1, both)
        self._in_loop(lambda: self.partition.apply(replicated, NOW_MS))
        self.fetched(1)

    def _in_loop(self, call: Callable[[], object]) -> None:
        done = threading.Event()

        def called() -> None:
            call()
            done.set()

        self._services.loop.call_soon_threadsafe(called)
        assert done.wait(WITHIN_SECONDS)

    def fetched(self, offset: int) -> None:
        def fetch() -> None:
            self.partition.state.follower_fetched(FOLLOWER, offset, self._services.now_ms())
            self._services.purgatory.touch(self.partition.key)

        self._in_loop(fetch)

    def send(self, *requests: tuple[int, int, Sequence[int]]) -> None:
        """Requests in one piece: their number, acks, and the partitions to which they send a batch each."""
        frames = [
            self.client.framed(9, acks, [(self.topic, [(each, batch()) for each in partitions])], number)
            for number, acks, partitions in requests
        ]
        self.client.socket.sendall(b"".join(frames))

    def answers(self, count: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """The numbers of the next answers, with error and base offset of each batch."""
        found = []
        for _ in range(count):
            answer = receive_frame(self.client.socket)
            response, _ = m.ProduceResponse.decode(9, memoryview(answer), 5)
            parts = [(each.error_code, each.base_offset) for each in response.responses[0].partition_responses]
            found.append((int.from_bytes(answer[:4], "big"), parts))
        return found

    def is_silent(self) -> bool:
        """Whether nothing is answered, after the broker has had a few turns."""
        for _ in range(3):
            self._in_loop(lambda: None)
        self.client.socket.setblocking(False)
        try:
            self.client.socket.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.client.socket.settimeout(WITHIN_SECONDS)
        return False


@pytest.fixture(params=WAYS)
def replicated(setting: Setting, request: pytest.FixtureRequest) -> Iterator[Replicated]:
    found = Replicated(setting, request.param)
    yield found
    found.client.socket.close()


ALL, OTHER, BOTH = (0,), (1,), (1, 0)
"""The partition with a follower, the other one, and both."""


def test_answers_wait_for_the_follower_and_keep_their_order(replicated: Replicated) -> None:
    """Those behind them that have nothing to wait for, too."""
    replicated.send((0, -1, ALL), (1, 1, ALL), (2, -1, OTHER), (3, -1, BOTH), (4, -1, ALL))
    assert replicated.is_silent()
    replicated.fetched(2)
    assert replicated.answers(3) == [(0, [(0, 1)]), (1, [(0, 2)]), (2, [(0, 1)])]
    assert replicated.is_silent()
    replicated.send((5, 1, OTHER))
    assert replicated.is_silent()
    replicated.fetched(4)
    assert replicated.answers(1) == [(3, [(0, 2), (0, 3)])]
    replicated.fetched(5)
    assert replicated.answers(2) == [(4, [(0, 4)]), (5, [(0, 3)])]


def test_what_did_not_wait_is_answered_before_the_rest_of_what_was_sent_with_it(replicated: Replicated) -> None:
    replicated.send((0, 1, ALL), (1, -1, OTHER), (2, -1, ALL))
    assert replicated.answers(2) == [(0, [(0, 1)]), (1, [(0, 1)])]
    assert replicated.is_silent()
    replicated.fetched(3)
    assert replicated.answers(1) == [(2, [(0, 2)])]


def test_a_leader_that_is_replaced_fails_what_waits(replicated: Replicated) -> None:
    replicated.send((0, -1, BOTH), (1, -1, ALL))
    assert replicated.is_silent()

    def step_down() -> None:
        replicated.partition.state.step_down()
        replicated._services.purgatory.touch(replicated.partition.key)

    replicated._in_loop(step_down)
    gone = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert replicated.answers(2) == [(0, [(0, 1), gone]), (1, [gone])]


def test_requests_of_one_turn_share_a_look_at_the_clock_and_no_later_one_does(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connected:
        received_ns = looked_ns = 0
        place = Slot

    plain, now_s = setting.shortcuts["uncompiled"].plain, 10.0
    monkeypatch.setattr(plain, "_clock", lambda: now_s)
    (plain._found[0], *_) = setting.dispatcher._services.replicas.partitions.values()
    plain._request[:] = memoryview(array("q", bytes(8 * len(plain._request))))  # no header, and no time

    def deadline(mask: int) -> float:
        plain.mask = mask
        found: float = plain._waiting(Connected(), memoryview(b""), 0, 1, 0, 0).deadline
        return found

    assert deadline(0) == 10
    now_s = 11.0
    assert (deadline(1), deadline(0)) == (11, 11)
    now_s = 12.0
    assert deadline(1) == 11
    plain.wake_late()
    assert (deadline(1), deadline(0)) == (12, 12)
    plain.wake_late()
    plain._found[0] = None


def test_too_few_replicas_refuse_what_has_not_been_appended(replicated: Replicated) -> None:
    replicated.partition.state.min_insync_replicas = 2
    replicated.partition.state.isr_state = committed((replicated.partition.state.local_id,))
    replicated.send((0, -1, ALL), (1, 1, ALL))
    assert replicated.answers(2) == [(0, [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]), (1, [(0, 1)])]


def test_a_write_that_the_disk_refuses_fails_what_waits_for_it(replicated: Replicated) -> None:
    """The log and the replica are as before; what another log took is told of as stored, in the order of requests."""
    log, state = replicated.partition.log, replicated.partition.state
    before = (log.log_end_offset, state.log_end_offset, state.high_watermark)
    with refusing(log):
        replicated.send((0, -1, ALL), (1, -1, OTHER), (2, 1, BOTH), (3, -1, ALL))
        gone = ErrorCode.KAFKA_STORAGE_ERROR, -1
        assert replicated.answers(4) == [(0, [gone]), (1, [(0, 1)]), (2, [(0, 2), gone]), (3, [gone])]
        assert (log.log_end_offset, state.log_end_offset, state.high_watermark) == before
    replicated.send((4, -1, ALL))
    assert replicated.is_silent()
    replicated.fetched(2)
    assert replicated.answers(1) == [(4, [(0, 1)])]
