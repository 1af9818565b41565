"""A running broker cleans what is compacted: user topics, its own topic, beside clients, through restarts."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.log.filenames import LOG
from tests.broker.test_metrics import Scraper, value
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, free_ports

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "4000",
    "group.initial.rebalance.delay.ms": "0",
}


def log_bytes(server: HeadraceServer, partition: str) -> int:
    total = 0
    for path in (server.data / partition).glob(f"*{LOG}"):
        with suppress(FileNotFoundError):  # the cleaner replaces segments meanwhile
            total += path.stat().st_size
    return total


def compacted_topic(server: HeadraceServer, name: str, **settings: str) -> None:
    topic = NewTopic(name, 1, 1, config={"cleanup.policy": "compact", "segment.bytes": "20000", **settings})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for made in admin.create_topics([topic]).values():
        made.result()


def produce(server: HeadraceServer, topic: str, rounds: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for number in range(rounds):
        for key in range(20):
            producer.produce(topic, b"%d " % number * 50, key=b"key-%d" % key)
        producer.flush()


def table(server: HeadraceServer, topic: str) -> tuple[dict[bytes, bytes], int]:
    """What a consumer from the beginning ends up with, and of how many records."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "table", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[bytes, bytes] = {}
    count = 0
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found[message.key() or b""] = message.value() or b""
        count += 1
    consumer.close()
    return found, count


def test_a_compacted_topic_is_cleaned_while_it_is_written_and_read(headrace_server: StartHeadrace) -> None:
    (port,) = free_ports(1)
    server = headrace_server(settings=SETTINGS | {"headrace.metrics.listen": f"127.0.0.1:{port}"})
    compacted_topic(server, "compacted")
    produce(server, "compacted", 60)
    eventually(lambda: log_bytes(server, "compacted-0") < 60_000)
    found, count = table(server, "compacted")
    assert found == {b"key-%d" % key: b"59 " * 50 for key in range(20)}
    assert 20 <= count < 400
    checkpoint = server.data / "cleaner-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "compacted 0 " in checkpoint.read_text())
    metrics = Scraper(server, port).scrape()
    assert 0 < value(metrics, "kafka_log_logcleaner_cleaner_recopy_percent") < 50
    assert (
        value(metrics, "kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory=str(server.data)) == 0
    )
    server.stop()
    again = headrace_server(data=server.data, settings=SETTINGS)
    assert table(again, "compacted")[0] == found
    produce(again, "compacted", 20)
    assert table(again, "compacted")[0] == {b"key-%d" % key: b"19 " * 50 for key in range(20)}


def test_committed_offsets_are_cleaned_and_survive_a_restart(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    compacted_topic(server, "read")
    produce(server, "read", 2)
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False})
    for offset in range(1, 400):
        consumer.commit(offsets=[TopicPartition("read", 0, offset)], asynchronous=False)
    eventually(lambda: log_bytes(server, "__consumer_offsets-0") < 12_000)
    server.stop()
    again = headrace_server(data=server.data, settings=SETTINGS)
    reader = Consumer({"bootstrap.servers": again.bootstrap, "group.id": "g"})
    [committed] = reader.committed([TopicPartition("read", 0)], timeout=30)
    assert committed.offset == 399
    for each in (consumer, reader):
        each.close()


def test_a_killed_broker_leaves_no_cleaning_process_behind(headrace_server: StartHeadrace, tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    server = headrace_server(settings=SETTINGS | {"log.cleaner.io.max.bytes.per.second": "2000"})
    compacted_topic(server, "slow")
    produce(server, "slow", 40)
    assert server.process is not None
    broker = psutil.Process(server.process.pid)

    def cleans(process: Any) -> bool:
        try:
            return "headrace.log.cleaning.cleaner_process" in " ".join(process.cmdline())
        except psutil.Error:  # it has ended since it was listed
            return False

    # A child has the broker's own command line until it executes Python.
    eventually(lambda: any(map(cleans, broker.children(recursive=True))), "the process that cleans")
    children = broker.children(recursive=True)
    assert any(map(cleans, children))
    server.process.kill()
    server.process.wait(WITHIN_SECONDS)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    again = headrace_server(data=server.data, settings=SETTINGS)
    assert table(again, "slow")[0] == {b"key-%d" % key: b"39 " * 50 for key in range(20)}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_record_without_a_key_is_refused_where_records_are_compacted(
    headrace_server: StartHeadrace, policy: str
) -> None:
    server = headrace_server()
    compacted_topic(server, "keyed", **{"cleanup.policy": policy})
    producer = Producer({"bootstrap.servers": server.bootstrap})
    refused: dict[bytes | None, object] = {}

    def answered(error: KafkaError | None, message: Message) -> None:
        refused[message.value()] = error and error.code()

    for number, key in enumerate([b"k", None, b""]):
        producer.produce("keyed", b"%d" % number, key=key, on_delivery=answered)
        producer.flush()
    assert refused == {b"0": None, b"1": KafkaError.INVALID_RECORD, b"2": None}
    assert table(server, "keyed") == ({b"k": b"0", b"": b"2"}, 2)
