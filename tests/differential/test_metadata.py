"""Metadata and DescribeCluster, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.METADATA
UNKNOWN_ID = b"nobody has this."
Wanted = m.MetadataRequest.MetadataRequestTopic


def _request(ask: Conversation, *names: str, create: bool = False, **more: bool) -> m.MetadataRequest:
    """Metadata of topics by name; only versions 4 and above can say that nothing is to be created."""
    topics = [Wanted(name=name) for name in names]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=create or ask.version < 4, **more)


@scenario(API)
def test_describes_topics_by_name(ask: Conversation) -> None:
    first, second = ask.topic("a", 3), ask.topic("b")
    ask(_request(ask, first, second))
    ask(_request(ask, second, second))


@scenario(API)
def test_describes_illegal_topic_names(ask: Conversation) -> None:
    for name in ("", "not legal", ".", "..", "a/b", "x" * 249, "x" * 250, "ü", "a\0b"):
        ask(_request(ask, name)) if ask.version >= 4 or len(name) != 249 else None


@scenario(API, range(4, 14))
def test_describes_unknown_topics(ask: Conversation) -> None:
    known = ask.topic()
    ask(_request(ask, ask.name("missing")))
    ask(_request(ask, ask.name("missing"), known, "not legal"))


@scenario(
    API,
    differs=[Differs("Metadata.topics[]", "headrace answers when the topic is made, so that no client asks again")],
)
def test_creates_a_topic_that_is_asked_for(ask: Conversation) -> None:
    name = ask.name("new")
    request = _request(ask, name, create=True)
    ask(request)
    ask.until(lambda found: found.topics[0].error_code == 0, request)


@scenario(
    API,
    range(10, 14),
    differs=[
        Differs(f"Metadata.{field}", "a topic without name and id fails inside Apache Kafka", at="(name=None)")
        for field in ("topics[]", "brokers[]", "cluster_id", "controller_id", "error_code")
    ],
)
def test_describes_topics_by_id(ask: Conversation) -> None:
    name = ask.topic()
    own = ask.topic_id(name)
    for wanted in (
        [Wanted(name=None, topic_id=own)],
        [Wanted(name=None, topic_id=UNKNOWN_ID)],
        [Wanted(name=None, topic_id=UNKNOWN_ID), Wanted(name=None, topic_id=own)],
        [Wanted(name=name, topic_id=own)],
        [Wanted(name=None, topic_id=bytes(16))],
    ):
        ask(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))


@scenario(API, range(8, 14))
def test_tells_what_one_may_do(ask: Conversation) -> None:
    name = ask.topic()
    more = {"include_topic_authorized_operations": True}
    if ask.version <= 10:
        more["include_cluster_authorized_operations"] = True
    ask(_request(ask, name, **more))
    ask(_request(ask, ask.name("missing"), "not legal", **more))


@scenario(API, range(1, 14))
def test_describes_the_cluster_without_topics(ask: Conversation) -> None:
    ask(_request(ask))


@scenario(API)
def test_describes_every_topic(ask: Conversation) -> None:
    name = ask.topic()
    request = _request(ask)
    if ask.version > 0:
        request.topics = None
    answer = ask.quietly(request)
    kept = {name, "__consumer_offsets"}
    answer.topics = [each for each in answer.topics if each.name in kept]
    ask.record(request, ask.version, answer)


@scenario(ApiKey.DESCRIBE_CLUSTER)
def test_describes_the_cluster(ask: Conversation) -> None:
    ask(m.DescribeClusterRequest())
    ask(m.DescribeClusterRequest(include_cluster_authorized_operations=True))
    if ask.version >= 1:
        for kind in (0, 2, 3, -1):
            ask(m.DescribeClusterRequest(endpoint_type=kind))
