"""What a client sees of a broker, to be compared before and after a migration; and data that has all there is.

codecs      five codecs, an idempotent producer, headers, null keys and values, several segments; two partitions
compacted   compacted, values overwritten and deleted
trimmed     begins above 0
tx          transactions, committed and aborted
readers     a group with committed offsets
rules       literal and prefixed, that allow and deny
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from headrace.security.acls.model import Binding
from tests.asker import Asker
from tests.broker import acl_requests
from tests.broker.acl_requests import rule
from tests.eventually import eventually

NOW_MS = int(time.time() * 1000) - 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = [("codecs", 0), ("codecs", 1), ("compacted", 0), ("trimmed", 0), ("tx", 0)]
TIMES_MS = (NOW_MS, NOW_MS + 17, NOW_MS + 1000, NOW_MS + 10**9)
GROUP = "readers"
LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
CONFIGS = {"segment.bytes": "1048576", "retention.ms": "-1", "index.interval.bytes": "1000"}


class Seen(NamedTuple):
    """What one partition is to a client."""

    start: int
    end: int
    records: list[tuple[object, ...]]  # offset, timestamp, key, value, headers; of committed transactions
    offsets_for_times: list[int]


class Facts(NamedTuple):
    """What a broker is to its clients."""

    cluster_id: str
    topic_ids: dict[str, str]
    partitions: dict[tuple[str, int], Seen]
    committed: dict[tuple[str, int], tuple[int, str]]
    retention_ms: str
    rules: frozenset[Binding]


RULES = (
    rule("Topic:codecs", "Read", "User:alice"),
    rule("Topic:co*", "Write", "User:*", host="10.0.0.7", permission="Deny"),
    rule("Cluster:kafka-cluster", "ClusterAction", "User:CN=a,O=b"),
)


def fill(bootstrap: str, *, transactions: bool = True) -> None:
    """Make the topics and their data."""
    address: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(address)
    topics = [
        NewTopic("codecs", 2, 1, config=CONFIGS),
        NewTopic(
            "compacted", 1, 1, config={**CONFIGS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        ),
        NewTopic("trimmed", 1, 1, config=CONFIGS),
        NewTopic("tx", 1, 1, config=CONFIGS),
    ]
    for made in admin.create_topics(topics).values():
        made.result(60)
    for number, codec in enumerate(CODECS):
        producer = Producer({**address, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20})
        for at in range(60):
            when = NOW_MS + 60 * number + at
            key = None if at % 7 == 0 else b"key %d" % at
            value = None if at % 11 == 3 else (b"%s %d " % (codec.encode(), at)) * 100
            headers: list[tuple[str, str | bytes | None]] | None
            headers = [("h", b"\0\xff"), ("empty", b""), ("null", None)] if at % 2 else None
            producer.produce("codecs", value, key=key, partition=at % 2, timestamp=when, headers=headers)
            producer.produce("trimmed", value, key=key, partition=0, timestamp=when)
            producer.produce("compacted", None if at == 5 else b"%d" % number, key=b"%d" % at, timestamp=when)
        assert producer.flush(60) == 0
    large = Producer({**address, "compression.type": "none", "batch.size": 100_000})
    for at in range(30):
        large.produce("codecs", bytes([at]) * 90_000, partition=0, timestamp=NOW_MS + 900 + at)
        large.produce("compacted", bytes([at]) * 90_000, key=b"%d" % (at % 4), timestamp=NOW_MS + 900 + at)
    assert large.flush(60) == 0
    for trimmed in admin.delete_records([TopicPartition("trimmed", 0, 42)]).values():
        assert trimmed.result(60).low_watermark == 42
    with Asker(bootstrap) as asker:
        assert {error for error, _ in acl_requests.create(asker, *RULES)} == {0}
    eventually(lambda: rules(bootstrap) == set(RULES), "the broker to follow the controller")
    if transactions:
        in_transactions(address)
    commit(bootstrap, {("codecs", 0): (7, "seven"), ("codecs", 1): (150, ""), ("trimmed", 0): (50, "")})


def write_more(bootstrap: str, text: bytes) -> None:
    """Records on top of what is there, also by an idempotent producer, and another commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    for topic, number in PARTITIONS:
        for at in range(20):
            producer.produce(topic, text, key=b"%d" % at, partition=number, timestamp=NOW_MS + 2000 + at)
    assert producer.flush(60) == 0
    commit(bootstrap, {("codecs", 1): (151 + len(text), "after")})


def in_transactions(address: dict[str, Any]) -> None:
    """Four transactions, every other one aborted."""
    producer = Producer({**address, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        producer.produce("tx", b"in %d" % number, timestamp=NOW_MS + number)
        assert producer.flush(60) == 0
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def commit(bootstrap: str, offsets: dict[tuple[str, int], tuple[int, str]]) -> None:
    """Commit offsets for the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    wanted = [TopicPartition(*key, offset, metadata) for key, (offset, metadata) in offsets.items()]
    done = when_loaded(lambda: consumer.commit(offsets=wanted, asynchronous=False))
    assert [each.error for each in done] == [None] * len(offsets)
    consumer.close()


def facts(bootstrap: str) -> Facts:
    """Ask a broker for everything, once it leads all its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_for_leaders(admin)
    described = admin.describe_topics(_names())
    config = ConfigResource(ResourceType.TOPIC, "codecs")
    cluster_id = admin.describe_cluster().result(60).cluster_id
    return Facts(
        str(cluster_id),
        {name: str(described[name].result(60).topic_id) for name in ("codecs", "compacted", "trimmed", "tx")},
        {key: seen(bootstrap, admin, *key) for key in PARTITIONS},
        committed(admin),
        admin.describe_configs([config])[config].result(60)["retention.ms"].value,
        rules(bootstrap),
    )


def rules(bootstrap: str) -> frozenset[Binding]:
    """The access control lists."""
    with Asker(bootstrap) as asker:
        return frozenset(acl_requests.described(asker))


def committed(admin: AdminClient) -> dict[tuple[str, int], tuple[int, str]]:
    """The group's offsets."""
    wanted = [ConsumerGroupTopicPartitions(GROUP)]
    found = when_loaded(lambda: admin.list_consumer_group_offsets(wanted)[GROUP].result(60))
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found.topic_partitions}


def when_loaded(ask: Callable[[], Any]) -> Any:
    """What a coordinator answers once it has read its partition; the client does not ask again by itself."""
    answers: list[Any] = []

    def is_loaded() -> bool:
        try:
            answers.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in LOADING:
                raise
        return bool(answers)

    eventually(is_loaded, "the coordinator to have read its partition", every_s=0.05)
    return answers[0]


def wait_for_leaders(admin: AdminClient) -> None:
    """A broker with ZooKeeper answers before its controller has told it what it leads."""
    led: set[tuple[str, int]] = set()

    def are_led() -> bool:
        nonlocal led
        topics = admin.list_topics(timeout=60).topics
        led = {
            (name, each.id) for name, topic in topics.items() for each in topic.partitions.values() if each.leader == 1
        }
        return led.issuperset(PARTITIONS) and any(name == "__consumer_offsets" for name, _ in led)

    eventually(are_led, "the leaders", state=lambda: f"led are only {sorted(led)}")


def _names() -> Any:
    return TopicCollection(["codecs", "compacted", "trimmed", "tx"])


def seen(bootstrap: str, admin: AdminClient, topic: str, number: int) -> Seen:
    """Ask about one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partition = TopicPartition(topic, number, OFFSET_BEGINNING)
    start, end = consumer.get_watermark_offsets(partition, timeout=60)
    consumer.assign([partition])
    records = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"{topic}-{number} does not end"
        if message.error() is not None:
            break
        records.append(_record(message))
    consumer.close()
    times = [admin.list_offsets({TopicPartition(topic, number): OffsetSpec.for_timestamp(at)}) for at in TIMES_MS]
    return Seen(start, end, records, [next(iter(each.values())).result(60).offset for each in times])


def _record(message: Message) -> tuple[object, ...]:
    return message.offset(), message.timestamp(), message.key(), message.value(), message.headers()
