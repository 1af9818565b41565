"""The shortest way of a plain fetch, compiled and not, gives the answers of the general way, byte for byte."""

import gc
import random
import socket
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from headrace.broker.fetch import plain_fetch, plain_session, waiting_fetch
from headrace.broker.fetch.plain_fetch import PlainFetches
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.shortcuts import Shortcuts
from headrace.errors import ErrorCode
from headrace.log.partition_log import PartitionLog
from headrace.network import connection as connections
from headrace.network.answer_order import Slot
from headrace.network.connection import WAITS, Connection, Shortcut
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.testing import Broker
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import receive_frame
from tests.uncompiled import uncompiled
from tests.wire import Wire

PLAIN, OTHER, DONE, ZSTD, COMPACTED = "plain", "other", "transactions", "zstd", "compacted"
TOPICS = {PLAIN: 3, OTHER: 2, DONE: 2, ZSTD: 1, COMPACTED: 1}
WAYS = ("compiled", "uncompiled", "general")
Wanted = m.FetchRequest.FetchPartition


class Uncompiled(Shortcut):
    """Lets a compiled connection use the shortest way of the uncompiled module."""

    def __init__(self, module: ModuleType, dispatcher: Dispatcher, fetches: PlainFetches) -> None:
        super().__init__()
        self.plain: Any = module.PlainFetches(dispatcher._services, fetches.times)

    def answer(self, connection: Connection, octets: memoryview, start: int, end: int, at: int) -> int:
        plain = self.plain
        answer_end = int(plain.answer(connection, memoryview(octets), start, end, at))
        if answer_end not in (0, WAITS):
            self.out[at:answer_end] = plain.out[at:answer_end]
            for number, each in enumerate(plain.files):
                self.files.append(each)
                self.cuts[number] = plain.cuts[number]
            plain.files.clear()
        return answer_end


def dispatcher_of(broker: Broker) -> Dispatcher:
    """The one of this broker; other modules' may live in the process."""
    dispatchers = [each for each in gc.get_objects() if type(each) is Dispatcher]
    (found,) = (each for each in dispatchers if each._services.config.log_dirs == (str(broker.data),))
    return found


class Setting(NamedTuple):
    """A broker, and its shortest ways by name."""

    bootstrap: str
    dispatcher: Dispatcher
    shortcuts: dict[str, Any]
    ids: dict[str, bytes]

    def taken(self) -> dict[str, int]:
        fetches = {"compiled": self.shortcuts["compiled"].fetches, "uncompiled": self.shortcuts["uncompiled"].plain}
        return {way: each.taken + each.waited for way, each in fetches.items()}


def batch(count: int = 2, size: int = 50, codec: Codec = Codec.NONE, key: bytes | None = None) -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(encode_batch([Record(i, now_ms, key, bytes(size), ()) for i in range(count)], codec=codec))


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker(settings={"fetch.max.bytes": 60_000}) as broker, Wire(broker.bootstrap) as wire:
        chance = random.Random(1)
        small = {"segment.bytes": "1048576", "index.interval.bytes": "300"}
        for topic, count in TOPICS.items():
            special = {ZSTD: {"compression.type": "zstd"}, COMPACTED: {"cleanup.policy": "compact"}}
            assert wire.create_topic(topic, count, small | special.get(topic, {})) == 0
        for number in range(120):
            for topic, partition in ((PLAIN, number % 2), (PLAIN, 2), (OTHER, 1)):
                records = batch(chance.choice((1, 2, 5)), chance.choice((0, 100, 3_000)))
                assert wire.produce(topic, records, partition=partition).error_code == 0
        for _ in range(12):
            wire.produce(PLAIN, batch(3, 100_000), partition=2)  # rolls
            wire.produce(COMPACTED, batch(key=b"k"))
        wire.produce(ZSTD, batch(codec=Codec.ZSTD))
        _open = transact(broker.bootstrap)  # its end would end the open transaction
        found = dispatcher_of(broker)
        compiled = found.shortcut
        assert isinstance(compiled, Shortcuts)
        module = uncompiled(plain_fetch, connections, waiting_fetch, plain_session)
        shortcuts = {"compiled": compiled, "uncompiled": Uncompiled(module, found, compiled.fetches), "general": None}
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in TOPICS]
        answer, _ = m.MetadataResponse.decode(
            12, wire.ask(3, 12, b"\0" + m.MetadataRequest(topics=wanted).encode(12)), 1
        )
        ids = {each.name: each.topic_id for each in answer.topics if each.name is not None}
        yield Setting(broker.bootstrap, found, shortcuts, ids)


def transact(bootstrap: str) -> Producer:
    """Commits, aborts, and leaves open."""
    settings = {"transactional.id": "t", "transaction.timeout.ms": 600_000, "linger.ms": 0, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions(WITHIN_SECONDS)
    for ends in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction, None):
        producer.begin_transaction()
        for partition in (0, 1) if ends is not producer.abort_transaction else (0,):
            producer.produce(DONE, b"x" * 200, partition=partition)
        producer.flush(WITHIN_SECONDS)
        if ends is not None:
            ends(WITHIN_SECONDS)
    return producer


class Client:
    """A connection by one of the ways, with a session."""

    def __init__(self, setting: Setting, way: str) -> None:
        self.setting, self.way = setting, way
        host, _, port = setting.bootstrap.rpartition(":")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(setting.dispatcher, "shortcut", setting.shortcuts[way])
            self.socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)
            self.ask(m.ApiVersionsRequest(), 0)  # the connection is there, with its shortcut
        self.session_id = 0

    def send(self, request: Any, version: int) -> None:
        body = write_request_header(request.API_KEY, version, 7, self.way[:4]) + request.encode(version)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self) -> bytes:
        return receive_frame(self.socket)

    def ask(self, request: Any, version: int) -> bytes:
        self.send(request, version)
        return self.receive()

    def begin_session(self, request: m.FetchRequest, version: int) -> bytes:
        request.session_id, request.session_epoch = self.session_id, 0
        answer = self.ask(request, version)
        at = id_at(version)
        self.session_id = int.from_bytes(answer[at : at + 4], "big")
        return masked(answer, version)

    def fetch(self, request: m.FetchRequest, version: int) -> bytes:
        if request.session_epoch > 0:
            request.session_id = self.session_id
        return masked(self.ask(request, version), version)

    def close(self) -> None:
        self.socket.close()


def id_at(version: int) -> int:
    return 11 if version >= 12 else 10


def masked(answer: bytes, version: int) -> bytes:
    """An answer without its session's id, which is random."""
    at = id_at(version)
    return answer if version < 7 else answer[:at] + bytes(4) + answer[at + 4 :]


@pytest.fixture
def clients(setting: Setting) -> Iterator[list[Client]]:
    found = [Client(setting, way) for way in WAYS]
    yield found
    for each in found:
        each.close()


def request_for(setting: Setting, parts: list[tuple[str, Wanted]], **more: Any) -> m.FetchRequest:
    topics: list[m.FetchRequest.FetchTopic] = []
    for name, wanted in parts:
        if not topics or topics[-1].topic != name:
            topics.append(
                m.FetchRequest.FetchTopic(topic=name, topic_id=setting.ids.get(name, b"?" * 16), partitions=[])
            )
        topics[-1].partitions.append(wanted)
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
    return m.FetchRequest(replica_id=-1, topics=topics, **limits)


def drawn(chance: random.Random, setting: Setting) -> list[tuple[str, Wanted]]:
    everything = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    if chance.random() < 0.05:
        everything += [("nowhere", 0), (PLAIN, 9)]
    found = []
    for topic, number in sorted(chance.sample(everything, chance.choice((1, 1, 2, 4, 7)))):
        offset = chance.choice((0, 1, 5, 20, 40, chance.randrange(400), chance.randrange(400)))
        epoch = chance.choice((-1, -1, 0, 0, 0, 0, 1)) if chance.random() < 0.2 else -1
        most = chance.choice((0, 70, 500, 3_000, 20_000, 1 << 20))
        found.append(
            (topic, Wanted(partition=number, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=most))
        )
    if chance.random() < 0.05:
        found.append(found[0])
    return found


def counted(setting: Setting) -> dict[str, tuple[int, ...]]:
    traffic = setting.dispatcher._services.replicas.traffic
    return {topic: (t.fetches, t.bytes_out, t.failed_fetches) for topic, t in traffic if topic in TOPICS}


def same(setting: Setting, clients: list[Client], ask: Callable[[Client], bytes], what: object) -> bytes:
    """The answer, which is the same by all ways, and so is what they count."""
    answers, counts = [], []
    for client in clients:
        before = counted(setting)
        answers.append(ask(client))
        counts.append(
            {
                topic: tuple(b - a for a, b in zip(before[topic], now, strict=True))
                for topic, now in counted(setting).items()
            }
        )
    assert answers[0] == answers[1] == answers[2], what
    assert counts[0] == counts[1] == counts[2], what
    return answers[0]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetches_without_a_session_are_answered_alike(setting: Setting, clients: list[Client], version: int) -> None:
    chance, before = random.Random(version), setting.taken()
    for _ in range(60):
        request = request_for(
            setting,
            drawn(chance, setting),
            isolation_level=chance.randrange(2),
            min_bytes=chance.choice((0, 1, 1 << 20)),
            max_bytes=chance.choice((0, 100, 5_000, 1 << 20, 1 << 20)),
            session_epoch=-1,
        )
        same(setting, clients, lambda client, r=request: client.fetch(r, version), request)  # type: ignore[misc]
    for way, taken in setting.taken().items():
        assert taken - before[way] > 5, f"the {way} way was not gone"


@pytest.mark.parametrize("version", [7, 11, 12, 13, 16, 18])
@pytest.mark.parametrize("isolation", [0, 1])
def test_fetches_in_a_session_are_answered_alike(
    setting: Setting, clients: list[Client], version: int, isolation: int
) -> None:
    chance, before = random.Random(version + isolation), setting.taken()
    epoch = 0
    partitions: dict[tuple[str, int], Wanted] = {}
    for step in range(90):
        if step % 30 == 0:
            epoch, some = 0, TOPICS if step == 0 else (PLAIN, OTHER, COMPACTED)  # the others go the general way
            parts = [
                (t, Wanted(partition=n, fetch_offset=0, partition_max_bytes=5_000))
                for t in some
                for n in range(TOPICS[t])
            ]
            partitions = {(t, each.partition): each for t, each in parts}
        else:
            keys = sorted(chance.sample(sorted(partitions), chance.choice((0, 1, 1, 2, 5))))
            parts = []
            for topic, number in keys:
                offset = partitions[topic, number].fetch_offset + chance.choice((0, 1, 3, 10))
                if chance.random() < 0.03:
                    offset = 1 << 40
                most = chance.choice((100, 5_000, 1 << 20))
                parts.append(
                    (topic, Wanted(partition=number, fetch_offset=min(offset, 1 << 41), partition_max_bytes=most))
                )
                if offset < 1 << 39:
                    partitions[topic, number] = parts[-1][1]
        request = request_for(
            setting, parts, isolation_level=isolation, session_epoch=epoch,
            max_bytes=chance.choice((1, 3_000, 1 << 20)), min_bytes=chance.choice((0, 1)),
        )  # fmt: skip
        if step % 30 != 0 and chance.random() < 0.04:
            gone = [m.FetchRequest.ForgottenTopic(topic=OTHER, topic_id=setting.ids[OTHER], partitions=[0])]
            request.forgotten_topics_data = gone
            partitions.pop((OTHER, 0), None)
        if chance.random() < 0.03 and epoch:
            request.session_epoch += 5
            same(setting, clients, lambda client, r=request: client.fetch(r, version), request)  # type: ignore[misc]
            continue
        if epoch == 0:
            same(setting, clients, lambda client, r=request: client.begin_session(r, version), request)  # type: ignore[misc]
        else:
            same(setting, clients, lambda client, r=request: client.fetch(r, version), request)  # type: ignore[misc]
        epoch += 1
        if chance.random() < 0.1:
            with Wire(setting.bootstrap) as wire:
                wire.produce(PLAIN, batch(1), partition=chance.randrange(3))
    for way, taken in setting.taken().items():
        assert taken - before[way] > 5, f"the {way} way was not gone"


@pytest.mark.parametrize("version", [7, 13])
def test_a_session_without_partitions_ends_with_its_next_request(
    setting: Setting, clients: list[Client], version: int
) -> None:
    none = request_for(setting, [], max_wait_ms=60_000)
    same(setting, clients, lambda client: client.begin_session(none, version), "the first request")

    def goes_on(client: Client) -> bytes:
        none.session_id, none.session_epoch = client.session_id, 1
        return client.ask(none, version)

    at = id_at(version) - 2
    answer = same(setting, clients, goes_on, "the next request")
    assert answer[at : at + 6] == bytes(6), "an error, or a session that lives on"
    answer = same(setting, clients, goes_on, "one after the end")
    assert int.from_bytes(answer[at : at + 2], "big") == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_aborted_transactions_that_cannot_be_read_are_an_error_of_the_partition(
    setting: Setting, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError("the disk has failed")

    monkeypatch.setattr(PartitionLog, "aborted_transactions", fails)
    parts = [(DONE, Wanted(partition=0, fetch_offset=0, partition_max_bytes=1 << 20))]
    request = request_for(setting, parts, isolation_level=1, session_epoch=-1)
    answer = same(setting, clients, lambda client: client.fetch(request, 12), request)
    assert ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big") in answer


def tail(setting: Setting, *numbers: int, topic: str = PLAIN, **more: Any) -> m.FetchRequest:
    """A fetch at the end of partitions."""
    with Wire(setting.bootstrap) as wire:
        ends = [wire.list_offset(topic, -1, partition=number)[2] for number in numbers]
    parts = [
        (topic, Wanted(partition=number, fetch_offset=end, partition_max_bytes=1 << 20))
        for number, end in zip(numbers, ends, strict=True)
    ]
    return request_for(setting, parts, **{"session_epoch": -1, "max_wait_ms": 60_000, **more})


def waiting(setting: Setting) -> int:
    return len(setting.dispatcher._services.purgatory)


def answers_of_waiting(
    setting: Setting, clients: list[Client], request: m.FetchRequest, version: int, then: Callable[[], object]
) -> list[bytes]:
    for number, client in enumerate(clients):
        if request.session_epoch > 0:
            request.session_id = client.session_id
        client.send(request, version)
        eventually(lambda count=number + 1: waiting(setting) == count)  # type: ignore[misc]
    then()
    return [masked(client.receive(), version) for client in clients]


@pytest.mark.parametrize("version", [4, 11, 12, 15])
def test_a_fetch_that_waits_gets_what_is_appended(setting: Setting, clients: list[Client], version: int) -> None:
    before = setting.taken()
    with Wire(setting.bootstrap) as wire:
        request = tail(setting, 0, 1)
        answers = answers_of_waiting(
            setting, clients, request, version, lambda: wire.produce(PLAIN, batch(3), partition=1)
        )
        assert answers[0] == answers[1] == answers[2]
        request = tail(setting, 0, 1, min_bytes=400)
        held = answers_of_waiting(
            setting,
            clients,
            request,
            version,
            lambda: [wire.produce(PLAIN, batch(1, 100), partition=number) for number in (0, 1, 0, 1)],
        )
        assert held[0] == held[1] == held[2]
        assert len(held[0]) > len(answers[0])
    assert all(now - before[way] == 2 for way, now in setting.taken().items())


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_fetch_in_a_session_waits_for_news_of_it(setting: Setting, clients: list[Client], version: int) -> None:
    before = setting.taken()
    request = tail(setting, 0, 1, max_wait_ms=0)
    begun = [client.begin_session(request, version) for client in clients]
    assert begun[0] == begun[1] == begun[2]
    nothing = request_for(setting, [], session_epoch=1, max_wait_ms=30)
    assert len({client.fetch(nothing, version) for client in clients}) == 1
    with Wire(setting.bootstrap) as wire:
        nothing.max_wait_ms, nothing.session_epoch = 60_000, 2
        answers = answers_of_waiting(
            setting, clients, nothing, version, lambda: wire.produce(PLAIN, batch(3), partition=1)
        )
    assert answers[0] == answers[1] == answers[2]
    assert all(now - before[way] == 2 for way, now in setting.taken().items())


def test_the_end_of_the_wait_answers_with_what_there_is(setting: Setting, clients: list[Client]) -> None:
    request = tail(setting, 2, min_bytes=1 << 20, max_wait_ms=40)
    request.topics[0].partitions[0].fetch_offset -= 1
    request.topics[0].partitions[0].partition_max_bytes = 5_000
    answers = [client.fetch(request, 12) for client in clients]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) > 60


@pytest.mark.parametrize("version", [12, 16])
def test_a_topic_that_goes_while_a_fetch_waits_is_said_to_be_gone(
    setting: Setting, clients: list[Client], version: int
) -> None:
    with Wire(setting.bootstrap) as wire:
        assert wire.create_topic("going", 1) == 0
        wanted = [m.MetadataRequest.MetadataRequestTopic(name="going")]
        told = wire.ask(3, 12, b"\0" + m.MetadataRequest(topics=wanted).encode(12))
        setting.ids["going"] = m.MetadataResponse.decode(12, told, 1)[0].topics[0].topic_id
        wire.produce("going", batch())
        request = tail(setting, 0, topic="going")
        delete = m.DeleteTopicsRequest(topic_names=["going"], timeout_ms=30_000)
        answers = answers_of_waiting(
            setting, clients, request, version, lambda: wire.ask(20, 4, b"\0" + delete.encode(4))
        )
    assert answers[0] == answers[1] == answers[2]
    answer, _ = m.FetchResponse.decode(version, answers[0], 5)
    assert answer.responses[0].partitions[0].error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )  # fmt: skip


def test_a_session_that_goes_on_behind_a_fetch_that_waits_refuses_that(setting: Setting, clients: list[Client]) -> None:
    request = tail(setting, 0, max_wait_ms=0)
    nothing = request_for(setting, [], session_epoch=1, max_wait_ms=60_000)
    for client in clients:
        client.begin_session(request, 12)
        nothing.session_id = client.session_id
        client.send(nothing, 12)
    eventually(lambda: waiting(setting) == len(clients))
    with Wire(setting.bootstrap) as wire:
        for client in clients:
            nothing.session_id, nothing.session_epoch, nothing.max_wait_ms = client.session_id, 2, 0
            client.send(nothing, 12)
        eventually(lambda: all(epoch_of(setting, client) == 3 for client in clients))
        wire.produce(PLAIN, batch(), partition=0)
        answers = [[masked(client.receive(), 12), masked(client.receive(), 12)] for client in clients]
    assert answers[0] == answers[1] == answers[2]
    assert int.from_bytes(answers[0][0][9:11], "big") == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def epoch_of(setting: Setting, client: Client) -> int:
    session = setting.dispatcher._services.fetch_sessions.get(client.session_id)
    assert session is not None
    return session.epoch


def test_a_client_that_leaves_takes_its_fetch_out_of_the_purgatory(setting: Setting) -> None:
    client = Client(setting, "compiled")
    client.send(tail(setting, 0), 12)
    eventually(lambda: waiting(setting) == 1)
    client.close()
    eventually(lambda: waiting(setting) == 0)


def test_answers_to_fetches_sent_at_once_come_in_order_and_whole(setting: Setting) -> None:
    """More than the socket takes: the answers go on where they were cut."""
    client = Client(setting, "compiled")
    part = (PLAIN, Wanted(partition=2, fetch_offset=0, partition_max_bytes=50_000))
    body = request_for(setting, [part], session_epoch=-1).encode(12)
    frames = [write_request_header(ApiKey.FETCH, 12, number, "late") + body for number in range(400)]
    client.socket.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
    answers = [client.receive() for _ in frames]
    client.close()
    assert [int.from_bytes(each[:4], "big") for each in answers] == list(range(400))
    assert len({each[4:] for each in answers}) == 1


def test_a_fetch_that_waited_holds_no_file_of_what_it_was_answered_with(setting: Setting) -> None:
    """And the purgatory, which keeps a handle until its deadline, does not hold the fetch."""
    purgatory = setting.dispatcher._services.purgatory
    client = Client(setting, "compiled")
    with Wire(setting.bootstrap) as wire:
        client.send(tail(setting, 0), 12)
        eventually(lambda: waiting(setting) == 1)
        (fetch,) = [each for each in purgatory.operations() if isinstance(each, waiting_fetch.WaitingFetch)]
        wire.produce(PLAIN, batch(), partition=0)
        assert len(client.receive()) > 100
    assert fetch not in [each.operation for _, _, each in purgatory._deadlines]
    slots = [each for each in gc.get_referents(fetch) if isinstance(each, Slot)]
    assert not [slot.chunks for slot in slots if slot.chunks is not None]
    client.close()
