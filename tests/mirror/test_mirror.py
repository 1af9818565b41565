"""`headrace mirror` between two brokers, read back by a client that is not ours."""

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from headrace.client.core.settings import ClientSettings
from headrace.errors import ErrorCode, InvalidConfig
from headrace.mirror.failures import MirrorStopped
from headrace.mirror.mirror import Mirror, MirrorCluster, MirrorSettings, Totals
from headrace.mirror.topics import Selection
from tests import rotation
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, child_environment, unused

pytestmark = pytest.mark.slow  # processes of its own

Row = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes]], tuple[int, int]]
HEADER = "headrace.source"


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    server = HeadraceServer(tmp_path_factory.mktemp("east") / "data").start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    server = HeadraceServer(tmp_path_factory.mktemp("west") / "data").start()
    yield server
    server.stop()


def command(source: HeadraceServer | str, target: HeadraceServer | str, *arguments: str) -> list[str]:
    places = [each if isinstance(each, str) else each.bootstrap for each in (source, target)]
    return [sys.executable, "-m", "headrace", "mirror", "--from", places[0], "--to", places[1], *arguments]


def mirror(source: HeadraceServer | str, target: HeadraceServer | str, *names: str, **settings: Any) -> Totals:
    """Mirrors what is there, in this process."""
    chosen = {each: settings.pop(each) for each in ("pattern", "prefix") if each in settings}
    given = MirrorSettings(Selection(names, **chosen), **settings)
    with Mirror(_place(source), _place(target), given) as running:
        return running.run(until_end=True)


def _place(server: HeadraceServer | str) -> MirrorCluster:
    return MirrorCluster(server if isinstance(server, str) else server.bootstrap, ClientSettings())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, until the end of what is there."""
    return subprocess.run(
        [*arguments, "--until-end", "--json"],
        capture_output=True, text=True, timeout=WITHIN_SECONDS, env=child_environment(),
    )  # fmt: skip


def create(server: HeadraceServer | str, topic: str, partitions: int = 1, **configs: str) -> None:
    bootstrap = server if isinstance(server, str) else server.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in configs.items()})
    admin.create_topics([new])[topic].result(WITHIN_SECONDS)


def write(server: HeadraceServer | str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    bootstrap = server if isinstance(server, str) else server.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.max.bytes": 2_000_000})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WITHIN_SECONDS) == 0


def messages(server: HeadraceServer | str, topic: str) -> list[Message]:
    """Every committed record, by partition and offset."""
    bootstrap = server if isinstance(server, str) else server.bootstrap
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    parts = consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in parts])
    found, ended = [], 0
    while ended < len(parts):
        message = consumer.poll(WITHIN_SECONDS)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def values(server: HeadraceServer | str, topic: str) -> list[bytes]:
    return [each.value() or b"" for each in messages(server, topic)]


def headers(message: Message) -> list[tuple[str, bytes]]:
    return message.headers() or []  # type: ignore[return-value]  # a list, for a record that was read


def rows(found: Sequence[Message]) -> list[Row]:
    """What a mirror keeps of records."""
    return [
        (
            each.partition(),
            each.key(),
            each.value(),
            [(name, value) for name, value in headers(each) if name != HEADER],
            each.timestamp(),
        )
        for each in found
    ]


def test_records_stay_as_they_are_and_say_where_they_came_from(east: HeadraceServer, west: HeadraceServer) -> None:
    topic = unused("t")
    create(east, topic, 3, retention_ms="-1", max_message_bytes="2000000")
    producer = Producer(
        {"bootstrap.servers": east.bootstrap, "compression.type": "zstd", "message.max.bytes": 2_000_000}
    )
    drawn = random.Random(rotation.seed())
    for number in range(3000):
        producer.produce(
            topic,
            None if number % 7 == 0 else drawn.randbytes(drawn.randrange(50)),
            None if number % 5 == 0 else b"k%d" % (number % 100),
            timestamp=1_700_000_000_000 + number,
            headers=[("a", b"1"), ("b", b"")] if number % 3 == 0 else None,
        )
    producer.produce(topic, bytes(1_500_000))
    assert producer.flush(WITHIN_SECONDS) == 0
    counted = json.loads(run(*command(east, west, topic)).stdout)
    assert counted["records"] == 3001
    original, copied = messages(east, topic), messages(west, topic)
    assert rows(copied) == rows(original)
    cluster = AdminClient({"bootstrap.servers": east.bootstrap}).list_topics(timeout=WITHIN_SECONDS).cluster_id
    sources = [dict(headers(each))[HEADER].decode() for each in copied]
    assert sources == [f"{cluster}/{topic}/{each.partition()}/{each.offset()}" for each in original]
    admin = AdminClient({"bootstrap.servers": west.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    settings = admin.describe_configs([resource])[resource].result(WITHIN_SECONDS)
    assert (settings["retention.ms"].value, settings["max.message.bytes"].value) == ("-1", "2000000")
    assert mirror(east, west, topic).records == 0


def test_aborted_records_are_not_mirrored(east: HeadraceServer, west: HeadraceServer) -> None:
    topic = unused("t")
    create(east, topic)
    producer = Producer({"bootstrap.servers": east.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, is_kept in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    assert mirror(east, west, topic).records == 2
    assert values(west, topic) == [b"1", b"3"]
    assert mirror(east, west, topic).transactions == 0  # what was aborted at the end is behind it too


def test_two_mirrors_in_opposite_directions_do_not_send_records_round(
    east: HeadraceServer, west: HeadraceServer
) -> None:
    topic = unused("t")
    create(east, topic)
    create(west, topic)
    write(east, topic, [b"e1", b"e2"])
    write(west, topic, [b"w1"])
    for _ in range(3):
        mirror(east, west, topic)
        mirror(west, east, topic)
    assert values(east, topic) == [b"e1", b"e2", b"w1"]
    assert values(west, topic) == [b"w1", b"e1", b"e2"]


def test_topics_by_pattern_with_a_prefix_and_new_partitions(east: HeadraceServer, west: HeadraceServer) -> None:
    start = unused("site")
    create(east, f"{start}.a", 1)
    create(east, f"{start}.b", 1)
    write(east, f"{start}.a", [b"1"])
    pattern = re.compile(rf"{start}\..")
    assert mirror(east, west, pattern=pattern, prefix="east.").records == 1
    admin = AdminClient({"bootstrap.servers": east.bootstrap})
    admin.create_partitions([NewPartitions(f"{start}.b", 2)])[f"{start}.b"].result(WITHIN_SECONDS)
    write(east, f"{start}.b", [b"2"], partition=1)
    assert mirror(east, west, pattern=pattern, prefix="east.").records == 1
    assert [(each.partition(), each.value()) for each in messages(west, f"east.{start}.b")] == [(1, b"2")]


class Mirroring:
    """`headrace mirror` as a process."""

    def __init__(self, *given: str) -> None:
        self.process = subprocess.Popen(
            list(given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=child_environment()
        )

    def __enter__(self) -> "Mirroring":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def count(server: HeadraceServer, topic: str) -> int:
    """The end offset, 0 without a topic."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "counter"})
    try:
        if consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].error is not None:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_SECONDS)[1])
    finally:
        consumer.close()


def has(server: HeadraceServer, topic: str, wanted: int) -> bool:
    return count(server, topic) >= wanted


def test_a_mirror_that_is_killed_again_and_again_copies_each_record_once(
    east: HeadraceServer, west: HeadraceServer
) -> None:
    topic = unused("t")
    create(east, topic)
    over = threading.Event()
    written: list[bytes] = []

    def write_on() -> None:
        producer = Producer({"bootstrap.servers": east.bootstrap, "enable.idempotence": True, "linger.ms": 2})
        while not over.is_set():
            value = b"%d" % len(written)
            producer.produce(topic, value)
            written.append(value)
            producer.poll(0)
            time.sleep(0.0005)
        assert producer.flush(WITHIN_SECONDS) == 0

    drawn = random.Random(rotation.seed())
    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        for _ in range(4):
            with Mirroring(*command(east, west, topic, "--interval-ms", "50")):
                wanted = count(west, topic) + drawn.randrange(1, 300)
                eventually(partial(has, west, topic, wanted), f"{wanted} records")
    finally:
        over.set()
        thread.join()
    mirror(east, west, topic)
    assert values(west, topic) == written == values(east, topic)


def test_a_second_mirror_of_the_same_name_ends_the_first(east: HeadraceServer, west: HeadraceServer) -> None:
    topic = unused("t")
    create(east, topic)
    write(east, topic, [b"0"])
    with Mirroring(*command(east, west, topic, "--name", topic)) as first:
        eventually(lambda: count(west, topic) > 0, "the first record")
        with Mirroring(*command(east, west, topic, "--name", topic)) as second:

            def write_more() -> bool:
                write(east, topic, [b"more"])
                return first.process.poll() is not None

            eventually(write_more, "the end of the first", every_s=0.2)
            assert first.process.returncode == 1
            assert first.process.stderr is not None
            assert f"another mirror named {topic} has begun" in first.process.stderr.read()
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(WITHIN_SECONDS) == 0
    mirror(east, west, topic, name=topic)
    assert values(west, topic) == values(east, topic)


def test_the_target_may_restart_meanwhile(east: HeadraceServer, tmp_path: Path) -> None:
    topic = unused("t")
    create(east, topic)
    target = HeadraceServer(tmp_path / "target").start()
    try:
        write(east, topic, [b"1"])
        with Mirroring(*command(east, target, topic)) as running:
            eventually(lambda: count(target, topic) > 0, "the first record")
            target.kill()
            write(east, topic, [b"2"])
            target.restart()
            eventually(lambda: values(target, topic) == [b"1", b"2"], "the second record")
            running.process.send_signal(signal.SIGINT)
            assert running.process.wait(WITHIN_SECONDS) == 0
    finally:
        target.stop()


def test_records_that_are_gone_stop_the_mirror_until_it_may_skip_them(
    east: HeadraceServer, west: HeadraceServer
) -> None:
    topic = unused("t")
    create(east, topic)
    write(east, topic, [b"0", b"1"])
    mirror(east, west, topic)
    write(east, topic, [b"2", b"3", b"4"])
    admin = AdminClient({"bootstrap.servers": east.bootstrap})
    place = TopicPartition(topic, 0, 4)
    admin.delete_records([place])[place].result(WITHIN_SECONDS)
    with pytest.raises(MirrorStopped, match="the source deleted offsets 2 to 3 before they were mirrored"):
        mirror(east, west, topic)
    assert json.loads(run(*command(east, west, topic, "--lost", "skip")).stdout)["lost"] == 2
    assert values(west, topic) == [b"0", b"1", b"4"]


def test_a_topic_that_was_made_anew_stops_the_mirror(east: HeadraceServer, west: HeadraceServer) -> None:
    topic = unused("t")
    create(east, topic)
    write(east, topic, [b"0", b"1"])
    mirror(east, west, topic)
    admin = AdminClient({"bootstrap.servers": east.bootstrap})
    admin.delete_topics([topic])[topic].result(WITHIN_SECONDS)
    create(east, topic)
    write(east, topic, [b"new"])
    with pytest.raises(MirrorStopped, match=f"{topic} was deleted and created again in the source"):
        mirror(east, west, topic)


def test_what_cannot_be_mirrored_is_told(east: HeadraceServer, west: HeadraceServer) -> None:
    refused = run(*command(east, west, "nobody"))
    assert (refused.returncode, refused.stderr) == (
        1,
        "headrace: UNKNOWN_TOPIC_OR_PARTITION: the source has no topic nobody\n",
    )
    refused = run(*command(east, west))
    assert refused.returncode == 2 and "nothing to mirror" in refused.stderr
    with pytest.raises(InvalidConfig, match="are the same cluster"):
        mirror(east, east, "t")
    topic = unused("t")
    create(east, topic, max_message_bytes="2000000")
    create(west, topic)
    write(east, topic, [b"small", bytes(1_500_000)])
    with pytest.raises(MirrorStopped) as stopped:
        mirror(east, west, topic)
    assert stopped.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_two_sites_flow_into_one_topic(east: HeadraceServer, west: HeadraceServer, tmp_path: Path) -> None:
    topic = unused("views")
    batch = HeadraceServer(tmp_path / "batch").start()
    try:
        for site, name in ((east, b"east"), (west, b"west")):
            create(site, topic)
            write(site, topic, [name + b"%d" % number for number in range(100)])
            mirror(site, batch, topic)
        assert values(batch, topic) == [name + b"%d" % each for name in (b"east", b"west") for each in range(100)]
    finally:
        batch.stop()


@pytest.mark.parametrize("direction", ["from", "to"])
def test_apache_kafka_on_one_side(apache_kafka: str, east: HeadraceServer, direction: str) -> None:
    topic = unused("t")
    source, target = (apache_kafka, east) if direction == "from" else (east, apache_kafka)
    create(source, topic, 1, retention_ms="-1")
    write(source, topic, [b"%d" % number for number in range(1000)])
    assert mirror(source, target, topic).records == 1000
    write(source, topic, [b"more"])
    assert mirror(source, target, topic).records == 1
    assert rows(messages(target, topic)) == rows(messages(source, topic))
