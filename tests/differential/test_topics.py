"""CreateTopics, CreatePartitions, DeleteTopics and DescribeTopicPartitions, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import create_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

CREATE, DELETE, GROW = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS
NO_ID, UNKNOWN_ID = bytes(16), b"nobody has this."


@scenario(CREATE)
def test_creates_topics(ask: Conversation) -> None:
    first, second = ask.name("a"), ask.name("b")
    ask(create_request(first, second, partitions=2))
    ask(create_request(first))
    ask(create_request(ask.name("c"), configs={"cleanup.policy": "compact"}))
    ask(create_request(ask.name("d"), partitions=-1, replicas=-1, assignments={0: [1], 1: [1]}))


@scenario(CREATE, range(4, 8))
def test_creates_topics_with_the_brokers_defaults(ask: Conversation) -> None:
    ask(create_request(ask.name("a"), partitions=-1, replicas=-1))


@scenario(
    CREATE,
    differs=[Differs("CreateTopics.topics[].topic_id", "a topic that is not made has no id", at="validate_only=True")],
)
def test_validates_topics_only(ask: Conversation) -> None:
    name = ask.name()
    ask(create_request(name, validate_only=True))
    ask(create_request(name, partitions=0, validate_only=True))
    ask(m.DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000), 5)


@scenario(CREATE)
def test_refuses_illegal_topic_names(ask: Conversation) -> None:
    for name in ("", ".", "..", "a/b", "a b", "x" * 250, "ü", "__consumer_offsets"):
        ask(create_request(name))


@scenario(CREATE)
def test_refuses_names_that_collide(ask: Conversation) -> None:
    name = ask.name("a.b")
    ask(create_request(name))
    ask(create_request(name.replace("a.b", "a_b")))


@scenario(CREATE)
def test_refuses_wrong_numbers_of_partitions_and_replicas(ask: Conversation) -> None:
    for partitions in (0, -2, -1):
        ask(create_request(ask.name(f"p{partitions}"), partitions=partitions)) if partitions != -1 else None
    for replicas in (0, -2, 2, 32_767):
        ask(create_request(ask.name(f"r{replicas}"), replicas=replicas))


@scenario(CREATE)
def test_refuses_wrong_assignments(ask: Conversation) -> None:
    wrong: list[dict[int, list[int]]] = [
        {1: [1]},
        {0: [7]},
        {0: [1, 1]},
        {0: []},
        {0: [1], 2: [1]},
        {0: [-1]},
        {-1: [1]},
        {0: [1, 7]},
    ]
    for number, assignments in enumerate(wrong):
        ask(create_request(ask.name(f"a{number}"), partitions=-1, replicas=-1, assignments=assignments))
    ask(create_request(ask.name("both"), partitions=1, replicas=1, assignments={0: [1]}))


@scenario(
    CREATE,
    differs=[
        Differs(f"CreateTopics.topics[].configs[{name}].value", "the value that holds, not its spelling")
        for name in ("preallocate", "retention.bytes")
    ],
)
def test_refuses_wrong_configs_of_topics(ask: Conversation) -> None:
    for number, (key, value) in enumerate(
        (
            ("no.such.config", "1"), ("retention.ms", "soon"), ("retention.ms", "-2"), ("segment.bytes", "1"),
            ("cleanup.policy", "keep"), ("cleanup.policy", ""), ("compression.type", "rar"),
            ("min.insync.replicas", "0"), ("max.message.bytes", "-1"), ("min.cleanable.dirty.ratio", "1.5"),
            ("unclean.leader.election.enable", "yes"),
            ("message.timestamp.type", "Never"), ("retention.ms", None), ("segment.ms", "0"), ("", "1"),
            ("flush.messages", "0"), ("index.interval.bytes", "-1"), ("preallocate", "TRUE"),
            ("leader.replication.throttled.replicas", "1:x"), ("compression.gzip.level", "77"),
            ("compression.gzip.level", "0"), ("compression.lz4.level", "18"), ("compression.zstd.level", "-131073"),
            ("compression.gzip.level", "9"), ("compression.lz4.level", "17"), ("compression.zstd.level", "-131072"),
            ("remote.storage.enable", "true"), ("file.delete.delay.ms", "-1"), ("retention.bytes", " 12 "),
        )
    ):  # fmt: skip
        ask(create_request(ask.name(f"c{number}"), configs={key: value}))


@scenario(CREATE)
def test_refuses_a_repeated_topic(ask: Conversation) -> None:
    name = ask.name()
    ask(create_request(name, name))
    ask(create_request(name, ask.name("other"), name))
    ask(create_request())


@scenario(CREATE)
def test_creates_topics_with_other_timeouts(ask: Conversation) -> None:
    for timeout in (2**31 - 1, 60_000):
        ask(create_request(ask.name(f"t{timeout}"), timeout_ms=timeout))


def _deletion(ask: Conversation, *names: str) -> m.DeleteTopicsRequest:
    if ask.version < 6:
        return m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=5_000)
    wanted = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return m.DeleteTopicsRequest(topics=wanted, timeout_ms=5_000)


@scenario(DELETE)
def test_deletes_topics(ask: Conversation) -> None:
    first, second = ask.topic("a"), ask.topic("b")
    ask(_deletion(ask, first, second))
    ask(_deletion(ask, ask.name("missing")))
    ask(_deletion(ask, ""))
    ask(_deletion(ask, "not legal"))
    ask(_deletion(ask))


@scenario(DELETE)
def test_deletes_a_repeated_topic(ask: Conversation) -> None:
    name = ask.topic()
    ask(_deletion(ask, name, name))


@scenario(DELETE, range(6, 7))
def test_deletes_topics_by_id(ask: Conversation) -> None:
    State = m.DeleteTopicsRequest.DeleteTopicState
    first, second = ask.topic("a"), ask.topic("b")
    own, other = ask.topic_id(first), ask.topic_id(second)
    for states in (
        [State(name=None, topic_id=UNKNOWN_ID)],
        [State(name=first, topic_id=own)],
        [State(name=None, topic_id=NO_ID)],
        [State(name=None, topic_id=own), State(name=first, topic_id=NO_ID)],
        [State(name=None, topic_id=other), State(name=None, topic_id=other)],
        [State(name=None, topic_id=own)],
        [State(name=None, topic_id=own)],
    ):
        ask(m.DeleteTopicsRequest(topics=states, timeout_ms=5_000))


def _growth(
    name: str, count: int, assignments: list[list[int]] | None = None, **more: bool
) -> m.CreatePartitionsRequest:
    One = m.CreatePartitionsRequest.CreatePartitionsAssignment
    given = None if assignments is None else [One(broker_ids=each) for each in assignments]
    wanted = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=given)
    return m.CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, **more)


@scenario(GROW)
def test_adds_partitions(ask: Conversation) -> None:
    name = ask.topic()
    ask(_growth(name, 3, validate_only=True))
    ask(_growth(name, 2))
    ask(_growth(name, 4, [[1], [1]]))
    ask(_growth(name, 4))
    ask(_growth(name, 3))
    ask(_growth(name, 0))
    ask(_growth(name, -1))


@scenario(GROW)
def test_refuses_wrong_partitions_to_add(ask: Conversation) -> None:
    name = ask.topic()
    wrong: list[list[list[int]]] = [[], [[1], [1]], [[7]], [[1, 1]], [[]], [[-1]], [[1, 7]]]
    for assignments in wrong:
        ask(_growth(name, 2, assignments))
    ask(_growth(ask.name("missing"), 2))
    ask(_growth("", 2))
    ask(_growth("not legal", 2))
    ask(m.CreatePartitionsRequest(topics=[], timeout_ms=5_000, validate_only=False))
    twice = _growth(name, 2)
    twice.topics *= 2
    ask(twice)


@scenario(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def test_describes_partitions_of_topics(ask: Conversation) -> None:
    One = m.DescribeTopicPartitionsRequest.TopicRequest
    first, second = ask.topic("a", 3), ask.topic("b")
    for names, limit in (
        ((first, second), 2000),
        ((first, second), 2),
        ((ask.name("missing"), first, "not legal"), 2000),
    ):
        ask(m.DescribeTopicPartitionsRequest(topics=[One(name=name) for name in names], response_partition_limit=limit))
