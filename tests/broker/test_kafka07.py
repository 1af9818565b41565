"""A listener of protocol KAFKA07: its requests, its offsets, its errors, and what it refuses."""

import gzip
import random
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.exposure import refuse_exposure
from headrace.broker.kafka07.produce import Placed, translated
from headrace.broker.options import INSECURE, StartRefused
from headrace.client import (
    Admin,
    Consumer,
    ConsumerSettings,
    FetchRequest,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from headrace.client.consumer.simple_consumer_07 import SimpleConsumer07
from headrace.config import parse_broker
from headrace.errors import ErrorCode, InvalidConfig
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, MESSAGES_PER_REQUEST_07_MAX
from headrace.network.listeners import endpoints, inter_broker_listener, parse_listeners, parse_protocols
from headrace.protocol.wire_07 import (
    ErrorCode07,
    FetchedPart07,
    FetchPart,
    ProducePart,
    ProduceRequest07,
    encode_request,
)
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import encode_entry, encode_set
from headrace.security.access import ResourceType
from headrace.topics import INTERNAL_TOPICS
from tests.asker import Asker
from tests.broker.acl_requests import AUTHORIZED, create, rule
from tests.broker.admin_requests import delete_records
from tests.broker.quota_requests import set_quota
from tests.client_07 import ENABLED, Client07, Server07, sizes
from tests.eventually import eventually, eventually_equal
from tests.harness import receive_exactly, unused

LATEST, EARLIEST = -1, -2
OK = ErrorCode07.NO_ERROR


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server07]:
    made = Server07.on(tmp_path_factory.mktemp("kafka07") / "data", {"auto.create.topics.enable": "true"})
    made.start()
    yield made
    assert made.stop() == 0
    assert "Traceback" not in made.stderr_file.read_text()


@pytest.fixture
def old(server: Server07) -> Iterator[Client07]:
    with Client07(server.port_07) as client:
        yield client


def new_topic(server: Server07, partitions: int = 1, **configs: str) -> str:
    name = unused("old")
    settings = {**ENABLED, **{key.replace("_", "."): value for key, value in configs.items()}}
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, configs=settings)])
    return name


def send(server: Server07, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with Producer(server.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key=key, headers=[("h", b"v")])


def read_today(server: Server07, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    with Consumer(server.bootstrap, settings=ConsumerSettings(auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def is_enough() -> bool:
            found.extend((each.key, each.value) for each in consumer.poll(100))
            return len(found) >= count

        eventually(is_enough, f"{count} records", state=lambda: found)
    return found


def test_messages_of_every_form_are_read_by_clients_old_and_new(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    old.produce(topic, encode_set([b"magic 0"], magic=0))
    old.produce(topic, encode_set([b"magic 1", b""], magic=1))
    for codec in (Codec.GZIP, Codec.SNAPPY):
        old.produce(topic, encode_set([b"in", codec.name.encode()], codec=codec))
    old.produce(topic, encode_entry(zlib_set([b"by hand"]), codec=Codec.GZIP))
    wanted = [b"magic 0", b"magic 1", b"", b"in", b"GZIP", b"in", b"SNAPPY", b"by hand"]
    assert old.read(topic, len(wanted)) == wanted
    assert read_today(server, topic, len(wanted)) == [(None, value) for value in wanted]


def zlib_set(values: list[bytes]) -> bytes:
    packed = zlib.compressobj(wbits=31)
    return packed.compress(encode_set(values, magic=0)) + packed.flush()


def test_records_of_today_lose_what_kafka_0_7_had_not(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    send(server, topic, b"value", None, key=b"key")
    assert old.read(topic, 2) == [b"value", b""]


def test_a_fetch_has_the_bytes_of_kafka_0_7(server: Server07, old: Client07) -> None:
    """The seed's tables: total length, error code, messages; length, magic, attributes, CRC of the payload, payload."""
    topic = new_topic(server)
    send(server, topic, b"value")
    old.read(topic, 1)
    request = b"\0\1" + struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iqi", 0, 0, 100)
    old.socket.sendall(struct.pack(">i", len(request)) + request)
    assert old.socket.recv(100) == bytes.fromhex("00000011 0000  0000000b 01 00 1d775834 76616c7565")


def test_every_request_by_hand_has_the_bytes_of_kafka_0_7(server: Server07, old: Client07) -> None:
    """The seed's tables: a multifetch's total length and error, then whole fetch results, each with its own."""
    topic = new_topic(server, 2)
    name = struct.pack(">h", len(topic)) + topic.encode()
    magic_0 = bytes.fromhex("0000000a 00 1d775834 76616c7565")  # length, magic, CRC of the payload, payload
    magic_1 = bytes.fromhex("0000000b 01 00 1d775834 76616c7565")

    def send_raw(kind: int, body: bytes) -> None:
        old.socket.sendall(struct.pack(">ih", 2 + len(body), kind) + body)

    send_raw(0, name + struct.pack(">ii", 0, len(magic_0)) + magic_0)
    both = [name + struct.pack(">ii", number, len(magic_1)) + magic_1 for number in range(2)]
    send_raw(3, struct.pack(">h", 2) + b"".join(both))
    send_raw(4, name + struct.pack(">iqi", 0, EARLIEST, 1))
    assert receive_exactly(old.socket, 18) == bytes.fromhex("0000000e 0000 00000001 0000000000000000")
    eventually_equal(lambda: [old.offsets(topic, LATEST, 1, number) for number in range(2)], [[30], [15]])
    places = [(0, 0), (1, 0), (0, 7), (0, 30)]
    send_raw(2, struct.pack(">h", 4) + b"".join(name + struct.pack(">iqi", *place, 99) for place in places))
    results = [
        bytes.fromhex("00000020 0000") + magic_1 * 2,
        bytes.fromhex("00000011 0000") + magic_1,
        bytes.fromhex("00000002 0001"),
        bytes.fromhex("00000002 0000"),
    ]
    whole = struct.pack(">ih", 2 + len(b"".join(results)), 0) + b"".join(results)
    assert receive_exactly(old.socket, len(whole)) == whole


@pytest.mark.slow
def test_sizes_added_up_lead_from_message_to_message(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    chance = random.Random(7)
    values = [chance.randbytes(chance.randrange(200)) for _ in range(500)]
    with Producer(server.bootstrap) as producer:
        for start in range(0, 500, 50):
            for value in values[start : start + 25]:
                producer.send(topic, value)
            producer.flush()
            codec = chance.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY])
            old.produce(topic, encode_set(values[start + 25 : start + 50], codec=codec))
            eventually_equal(lambda: old.offsets(topic, LATEST, 1), [sizes(values[: start + 50])])
    whole = b"".join(encode_entry(value) for value in values)
    assert old.read(topic, 500, max_bytes=300) == values
    offset = 0
    for value in values:
        size = chance.randrange(1, 500)
        assert old.fetch(topic, offset, size) == (OK, whole[offset : offset + size])
        offset += 10 + len(value)
    assert old.fetch(topic, offset) == (OK, b"")


def test_what_no_message_begins_at_is_out_of_range(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    old.produce(topic, encode_set([b"a", b"bb"]))
    eventually_equal(lambda: old.offsets(topic, LATEST, 1), [23])
    for offset in (-1, 1, 10, 12, 24, 1 << 62):
        assert old.fetch(topic, offset) == (ErrorCode07.OFFSET_OUT_OF_RANGE, b""), offset
    assert old.fetch(topic, 11) == (OK, encode_entry(b"bb"))


@pytest.mark.slow
def test_each_error_has_the_code_of_kafka_0_7(server: Server07, old: Client07) -> None:
    topic, other = new_topic(server), unused("new")
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(other, 1, 1)])
    found = old.multifetch(
        FetchPart(topic, 0, 0, 10), FetchPart(topic, 0, 5, 10), FetchPart(topic, 1, 0, 10), FetchPart(topic, 0, 0, -1),
        FetchPart("no-such", 0, 0, 10), FetchPart(other, 0, 0, 10), FetchPart(topic, 0, 0, 0),
    )  # fmt: skip
    assert [int(error) for error, _ in found] == [0, 1, 3, 4, 3, 3, 0]
    assert old.multifetch() == []


def test_a_multifetch_answers_in_the_order_of_its_parts(server: Server07, old: Client07) -> None:
    topics = [new_topic(server, 2), new_topic(server)]
    parts = [ProducePart(topics[0], 1, encode_set([b"one"])), ProducePart(topics[1], 0, encode_set([b"two"]))]
    old.socket.sendall(encode_request(ProduceRequest07(parts)))
    eventually_equal(lambda: [old.offsets(*each) for each in ((topics[1], LATEST, 1),)], [[13]])
    found = old.multifetch(
        FetchPart(topics[1], 0, 0, 99), FetchPart(topics[0], 1, 0, 99), FetchPart(topics[1], 0, 13, 99),
        FetchPart(topics[1], 0, 0, 5),
    )  # fmt: skip
    assert found == [(OK, encode_entry(value)) for value in (b"two", b"one")] + [
        FetchedPart07(OK), FetchedPart07(OK, encode_entry(b"two")[:5])
    ]  # fmt: skip


def test_offsets_are_positions_of_segments(server: Server07, old: Client07) -> None:
    topic = new_topic(server, segment_bytes="1000")
    assert (old.offsets(topic, LATEST), old.offsets(topic, EARLIEST)) == ([0], [0])
    values = [b"%03d" % number * 60 for number in range(20)]
    for value in values:
        send(server, topic, value)
    found = old.offsets(topic, LATEST)
    assert found[0] == sizes(values) and found[-1] == 0 and sorted(found, reverse=True) == found
    assert len(found) > 3
    borders = {sizes(values[:count]) for count in range(21)}
    assert set(found) <= borders
    assert old.offsets(topic, LATEST, 2) == found[:2] and old.offsets(topic, LATEST, -1) == []
    assert old.offsets(topic, 0) == [] and old.offsets(topic, EARLIEST) == [0]


@pytest.mark.slow
def test_positions_survive_restarts_and_deleted_records(tmp_path: Path) -> None:
    server = Server07.on(tmp_path / "data", {"log.retention.check.interval.ms": "200"})
    server.start()
    try:
        topic = new_topic(server, segment_bytes="2000", file_delete_delay_ms="0")
        values = [b"%04d" % number * 20 for number in range(200)]
        for start in range(0, 200, 10):
            send(server, topic, *values[start : start + 10])
        end, middle = sizes(values), sizes(values[:105])
        with Client07(server.port_07) as old, Asker(server.bootstrap) as asker:
            assert old.offsets(topic, LATEST, 1) == [end]
            assert delete_records(asker, topic, {0: 105}) == {0: (105, "NONE")}
            eventually_equal(lambda: old.offsets(topic, EARLIEST), [middle])
            first = tmp_path / "data" / f"{topic}-0" / "00000000000000000000.log"
            eventually(lambda: not first.exists(), "the first segment to go")
        for is_lost, stop in ((False, server.stop), (True, server.stop), (False, server.kill)):
            file = tmp_path / "data" / f"{topic}-0" / "kafka07-positions"
            eventually(file.exists, "the index to be written")
            stop()
            if is_lost:
                file.unlink()
            server.restart()
            with Client07(server.port_07) as old:
                assert (old.offsets(topic, LATEST, 1), old.offsets(topic, EARLIEST)) == ([end], [middle])
                assert old.read(topic, 95, middle) == values[105:]
                assert old.fetch(topic, middle - 10)[0] is ErrorCode07.OFFSET_OUT_OF_RANGE
    finally:
        server.stop()


def test_any_partition_and_a_topic_that_is_created(server: Server07, old: Client07) -> None:
    name = unused("made")
    for _ in range(3):
        old.produce(name, encode_set([b"hello"]), partition=-1)
    assert old.read(name, 3) == [b"hello"] * 3
    with Admin(server.bootstrap) as admin:
        configs = admin.describe_configs(ResourceType.TOPIC, name)
        assert [each.value for each in configs if each.name == "headrace.kafka07.enable"] == ["true"]


@pytest.mark.slow
def test_produces_that_cannot_be_stored_close_the_connection(server: Server07) -> None:
    topic, other = new_topic(server), unused("new")
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(other, 1, 1)])
    good = encode_set([b"good"])
    bad_crc = good[:-1] + b"!"
    bomb = encode_entry(zlib_bomb(), codec=Codec.GZIP)
    many = encode_entry(zlib_set([b""] * (MESSAGES_PER_REQUEST_07_MAX + 1)), codec=Codec.GZIP)
    huge = encode_entry(random.Random(1).randbytes(2 << 20))
    cases = [
        (other, good, 0), (topic, good, 1), (topic, good, -2), (topic, bad_crc, 0), (topic, good[:-1], 0),
        (topic, bomb, 0), (topic, many, 0), (topic, huge, 0), ("__consumer_offsets", good, 0), ("no/such", good, 0),
    ]  # fmt: skip
    for name, messages, partition in cases:
        with Client07(server.port_07) as old:
            old.produce(name, messages, partition)
            assert old.is_closed(), (name, messages[:20], partition)
    with Client07(server.port_07) as old:  # the good part of a produce is stored all the same
        old.socket.sendall(
            encode_request(ProduceRequest07([ProducePart(topic, 0, bad_crc), ProducePart(topic, 0, good)]))
        )
        assert old.is_closed()
    with Client07(server.port_07) as old:
        assert old.read(topic, 1) == [b"good"]


def zlib_bomb() -> bytes:
    packed = zlib.compressobj(wbits=31)
    return b"".join(packed.compress(bytes(1 << 20)) for _ in range(300)) + packed.flush()


def test_the_limit_of_a_message_is_for_what_was_sent_and_what_is_stored(server: Server07, old: Client07) -> None:
    """Kafka 0.7 compared max.message.size with the payload of each message or wrapper."""
    chance = random.Random(3)
    values = [chance.randbytes(8) for _ in range(700)]
    wrapper = encode_set(values, codec=Codec.GZIP)
    assert 9_000 < len(wrapper) < 10_000  # and more in any later format: its messages have more fields
    for stored in ("2.8", "0.9.0"):
        topic = new_topic(server, max_message_bytes="10000", message_format_version=stored)
        old.produce(topic, wrapper * 3)
        old.produce(topic, encode_set([bytes(50_000)], codec=Codec.GZIP))
        assert old.read(topic, 3 * 700 + 1) == [*values * 3, bytes(50_000)]
        for messages in (encode_set([bytes(10_001)]), encode_entry(chance.randbytes(10_001), codec=Codec.GZIP)):
            with Client07(server.port_07) as other:
                other.produce(topic, messages)
                assert other.is_closed()
        assert old.offsets(topic, LATEST, 1) == [sizes([*values * 3, bytes(50_000)])]


def test_no_produce_creates_an_internal_topic(server: Server07) -> None:
    for name in INTERNAL_TOPICS:
        with Client07(server.port_07) as old:
            old.produce(name, encode_set([b"x"]))
            assert old.is_closed()
            assert not list(server.data.glob(f"{name}-*"))


@pytest.mark.slow
def test_the_parts_of_a_produce_share_what_may_be_decompressed() -> None:
    bomb = encode_entry(gzip.compress(encode_entry(bytes(DECOMPRESSED_BATCH_BYTES_MAX // 5 * 2))), codec=Codec.GZIP)
    made = translated([Placed(ProducePart("old", number, bomb), 1 << 30) for number in range(3)], 0)
    assert [each.partition_data[0].index for each in made.request.topic_data] == [0, 1]
    assert made.error is not None and "old-2" in made.error.message


@pytest.mark.slow
def test_a_multifetch_that_is_slow_to_read_is_answered_in_part(server: Server07, old: Client07) -> None:
    topic, value = new_topic(server), bytes(1 << 20)
    old.produce(topic, encode_entry(gzip.compress(encode_entry(value) * 200), codec=Codec.GZIP))
    middle = sizes([value] * 100)
    assert old.offsets(topic, LATEST, 1) == [2 * middle]
    found = old.multifetch(*[FetchPart(topic, 0, middle, 10)] * 200)
    assert found[0] == FetchedPart07(OK, encode_entry(value)[:10])
    assert found[-1] == FetchedPart07(OK)


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex("0000000a 0012 0003 00000001 ffff"),  # ApiVersions of today
        bytes.fromhex("7fffffff"),
        bytes.fromhex("ffffffff"),
        bytes.fromhex("00000004 0002 ffff"),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("00000006 0001 7fff 6161"),
    ],
)
def test_bad_frames_close_their_connection_alone(server: Server07, frame: bytes) -> None:
    with Client07(server.port_07) as other, Client07(server.port_07) as bad:
        topic = new_topic(server)
        bad.socket.sendall(frame)
        assert bad.is_closed()
        assert other.fetch(topic, 0) == (OK, b"")


def test_a_large_set_becomes_several_batches(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    values = [bytes([number % 256]) * 100_000 for number in range(40)]
    old.produce(topic, encode_set(values))
    assert old.read(topic, 40) == values
    assert old.fetch(topic, 0, 1 << 30) == (OK, b"".join(encode_entry(value) for value in values))


def test_requests_that_follow_each_other_without_waiting_are_answered_in_order(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    wanted = []
    for number in range(200):
        value = b"%d" % number
        old.produce(topic, encode_set([value], codec=Codec.GZIP if number % 3 else Codec.NONE))
        wanted.append(value)
    assert old.read(topic, 200) == wanted


# Who may use it


def test_topics_of_today_are_not_served_and_compacted_ones_cannot_be(server: Server07, old: Client07) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(KafkaError, match="compaction removes records") as refused:
            admin.create_topics([NewTopic(unused("t"), 1, 1, configs={**ENABLED, "cleanup.policy": "compact"})])
        assert refused.value.code is ErrorCode.INVALID_CONFIG
        topic = new_topic(server)
        with pytest.raises(KafkaError, match="compaction removes records"):
            admin.alter_configs(ResourceType.TOPIC, topic, {"cleanup.policy": "compact,delete"})
        old.produce(topic, encode_set([b"x"]))
        assert old.read(topic, 1) == [b"x"]
        admin.alter_configs(ResourceType.TOPIC, topic, {"headrace.kafka07.enable": "false"})
        eventually_equal(lambda: old.fetch(topic, 0).error, ErrorCode07.WRONG_PARTITION)
        admin.alter_configs(ResourceType.TOPIC, topic, {"headrace.kafka07.enable": "true"})
        eventually_equal(lambda: old.fetch(topic, 0), FetchedPart07(OK, encode_entry(b"x")))


@pytest.mark.slow
def test_rules_hold_for_clients_of_0_7_as_for_anonymous_ones(tmp_path: Path) -> None:
    server = Server07.on(tmp_path / "data", AUTHORIZED)
    server.start()
    topics = [new_topic(server) for _ in range(3)]
    readable, writable, _ = topics
    with Asker(server.bootstrap) as asker:
        allowed = [(readable, "Read"), (readable, "Describe"), (writable, "Write")]
        create(asker, *(rule(f"Topic:{topic}", what, "User:ANONYMOUS") for topic, what in allowed))
    server.settings["super.users"] = "User:admin"
    server.stop(), server.restart()
    try:
        with Client07(server.port_07) as old:
            found = old.multifetch(*(FetchPart(topic, 0, 0, 10) for topic in topics))
            assert [int(error) for error, _ in found] == [0, -1, -1]
            assert old.offsets(readable, LATEST) == [0]
            with pytest.raises(AssertionError, match="-1"):
                old.offsets(topics[2], LATEST)
            old.produce(writable, encode_set([b"x"]))
            assert old.fetch(readable, 0) == (OK, b"")
            old.produce(readable, encode_set([b"x"]))
            assert old.is_closed()
    finally:
        server.stop()


@pytest.mark.slow
def test_quotas_hold_clients_of_0_7_back(server: Server07) -> None:
    topic = new_topic(server)
    with Asker(server.bootstrap) as asker, Client07(server.port_07) as old:
        old.produce(topic, encode_set([bytes(100_000)]))
        old.read(topic, 1)
        set_quota(asker, {"user": None}, consumer_byte_rate=50_000.0)
        try:
            found = [len(old.fetch(topic, 0).messages) for _ in range(8)]
        finally:
            set_quota(asker, {"user": None}, consumer_byte_rate=None)
        assert 0 in found and found[0] > 0, found


def test_the_listener_is_not_advertised_and_not_for_brokers() -> None:
    protocols = parse_protocols(["PLAINTEXT:PLAINTEXT", "OLD:KAFKA07"])
    listeners = parse_listeners(["PLAINTEXT://127.0.0.1:1", "OLD://127.0.0.1:2"], protocols)
    assert [each.listener for each in endpoints(listeners, (), protocols)] == ["PLAINTEXT"]
    with pytest.raises(InvalidConfig, match="KAFKA07 are told no address"):
        endpoints(listeners, ["PLAINTEXT://127.0.0.1:1", "OLD://127.0.0.1:2"], protocols)
    with pytest.raises(InvalidConfig, match="only listeners of KAFKA07"):
        parse_listeners(["OLD://127.0.0.1:2"], protocols)
    with pytest.raises(InvalidConfig, match="brokers are to use listener OLD"):
        inter_broker_listener(listeners, "OLD")


def test_strangers_are_not_served_unless_that_is_said() -> None:
    config = parse_broker(
        {
            "listeners": "PLAINTEXT://127.0.0.1:1,OLD://0.0.0.0:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07",
        }
    )
    with pytest.raises(StartRefused, match="OLD://0.0.0.0:2 can be reached from other machines"):
        refuse_exposure(config, INSECURE[None])
    refuse_exposure(config, INSECURE["all"])


# Our own client


def test_the_simple_consumer_reads_by_position(server: Server07, old: Client07) -> None:
    topic = new_topic(server)
    old.produce(topic, encode_set([b"one", b"two", b"three"]))
    old.read(topic, 3)
    with SimpleConsumer07(f"127.0.0.1:{server.port_07}") as consumer:
        messages = consumer.fetch(FetchRequest(topic, 0, 0, max_bytes=30))
        assert [(each.offset, each.value) for each in messages] == [(0, b"one"), (13, b"two")]
        assert messages.next_offset == 26
        assert consumer.fetch(FetchRequest(topic, 0, 26, 5)).is_cut
        first, second = consumer.multifetch([FetchRequest(topic, 0, 26), FetchRequest(topic, 9, 0)])
        assert [each.value for each in first] == [b"three"] and second.error is not None
        assert consumer.get_offsets_before(topic, 0, LATEST) == [41]
        with pytest.raises(KafkaError) as refused:
            consumer.fetch(FetchRequest(topic, 0, 1))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert [each.value for each in consumer.fetch(FetchRequest(topic, 0, 13, 26))] == [b"two"], (
            "no position is kept"
        )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        consumer = SimpleConsumer07(f"127.0.0.1:{silent.getsockname()[1]}")
        silent.close()
        with pytest.raises(KafkaError, match="127.0.0.1"):
            consumer.fetch(FetchRequest(topic, 0, 0))


@pytest.mark.slow
def test_the_simple_consumer_asks_for_positions_by_time_and_connects_again(tmp_path: Path) -> None:
    server = Server07.on(tmp_path / "data")
    server.start()
    try:
        topic = new_topic(server, segment_bytes="1000")
        values = [b"%03d" % number * 60 for number in range(20)]
        for value in values:
            send(server, topic, value)
        with SimpleConsumer07(f"127.0.0.1:{server.port_07}") as consumer:
            found = consumer.get_offsets_before(topic, 0, LATEST, 100)
            assert (found[0], found[-1]) == (sizes(values), 0) and len(found) > 3
            assert found == sorted(found, reverse=True)
            for start in found[1:]:
                assert next(iter(consumer.fetch(FetchRequest(topic, 0, start)))).offset == start
            assert consumer.get_offsets_before(topic, 0, LATEST, 2) == found[:2]
            assert consumer.get_offsets_before(topic, 0, EARLIEST) == [0]
            assert consumer.get_offsets_before(topic, 0, 4_102_444_800_000, 100) == found
            assert consumer.get_offsets_before(topic, 0, 1, 100) == []
            with pytest.raises(KafkaError) as unknown:
                consumer.get_offsets_before(topic, 1, LATEST)
            assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            server.stop()
            with pytest.raises(KafkaError) as gone:
                consumer.fetch(FetchRequest(topic, 0, 0))
            assert gone.value.code is ErrorCode.NETWORK_EXCEPTION
            server.restart()
            assert next(iter(consumer.fetch(FetchRequest(topic, 0, 0)))).value == values[0]
    finally:
        server.stop()
