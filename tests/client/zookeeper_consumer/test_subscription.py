"""What a consumer writes about itself, and how filters choose."""

import json

import pytest

from headrace.client.zookeeper_consumer.settings import ConnectorSettings
from headrace.client.zookeeper_consumer.subscription import (
    Blacklist,
    StreamSubscription,
    ThreadId,
    Whitelist,
    check_group,
    decode_subscription,
    make_consumer_id,
)
from headrace.errors import InvalidConfig, KafkaError


def test_the_node_of_a_consumer_is_that_of_0_8() -> None:
    assert StreamSubscription.to_topics({"a": 2, "b": 1}).encode(1_400_000_000_000) == (
        b'{"version":1,"subscription":{"a":2,"b":1},"pattern":"static","timestamp":"1400000000000"}'
    )
    assert StreamSubscription.to_filter(Whitelist("a.*, b"), 3).encode(7) == (
        b'{"version":1,"subscription":{"a.*|b":3},"pattern":"white_list","timestamp":"7"}'
    )
    assert json.loads(StreamSubscription.to_filter(Blacklist(r"a\d"), 1).encode(7)) == {
        "version": 1, "subscription": {r"a\d": 1}, "pattern": "black_list", "timestamp": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    "subscription",
    [
        StreamSubscription.to_topics({"a": 2, "b": 1}),
        StreamSubscription.to_filter(Whitelist(r"a\.\w+"), 3),
        StreamSubscription.to_filter(Blacklist("x|y"), 1),
    ],
)
def test_every_member_reads_what_one_has_written(subscription: StreamSubscription) -> None:
    assert decode_subscription("c", subscription.encode(1)) == subscription


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"subscription":{"a":"1"},"pattern":"static"}', b'{"pattern":1}']
)
def test_what_is_no_subscription_names_its_consumer(data: bytes) -> None:
    with pytest.raises(KafkaError, match="consumer c-7 is registered with"):
        decode_subscription("c-7", data)


def test_ids_are_those_of_0_8() -> None:
    consumer = make_consumer_id("billing", "host", 1_400_000_000_000, "0123456789abcdef")
    assert consumer == "billing_host-1400000000000-01234567"
    assert str(ThreadId(consumer, 3)) == "billing_host-1400000000000-01234567-3"


def test_a_filter_matches_whole_names_and_takes_commas() -> None:
    topics = ["orders", "orders-eu", "clicks", "__consumer_offsets"]
    assert StreamSubscription.to_filter(Whitelist(' "orders,cl.*" '), 2).streams(topics) == {"orders": 2, "clicks": 2}
    assert StreamSubscription.to_filter(Blacklist("orders"), 1).streams(topics) == {"orders-eu": 1, "clicks": 1}
    assert "__consumer_offsets" in StreamSubscription.to_filter(Blacklist("orders"), 1).streams(
        topics, has_internal=True
    )
    assert StreamSubscription.to_topics({"to-come": 1}).streams(topics) == {"to-come": 1}


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidConfig, match=r"the filter '\(' is not a regular expression"):
        Whitelist("(")
    with pytest.raises(InvalidConfig, match="topic 'a': 0 is not a number of streams"):
        StreamSubscription.to_topics({"a": 0})
    with pytest.raises(InvalidConfig, match="no topic is given"):
        StreamSubscription.to_topics({})
    with pytest.raises(InvalidConfig, match="group 'a/b'"):
        check_group("a/b")
    with pytest.raises(InvalidConfig, match="auto_offset_reset='begin': expected smallest"):
        ConnectorSettings(auto_offset_reset="begin").check()
    with pytest.raises(InvalidConfig, match="rebalance_backoff_ms=0"):
        ConnectorSettings(rebalance_backoff_ms=0).check()
