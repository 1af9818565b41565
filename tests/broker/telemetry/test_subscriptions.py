"""Subscriptions to clients' metrics: which are allowed, and what they ask of which client."""

import pytest

from headrace.broker.telemetry.subscriptions import (
    CLIENT_ID,
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    WantedMetrics,
    parse_subscription,
    wanted_from,
)
from headrace.errors import InvalidConfig, InvalidRequest, KafkaError

JAVA = {SOFTWARE_NAME: "apache-kafka-java", SOFTWARE_VERSION: "4.3.1", CLIENT_ID: "producer-1"}


@pytest.mark.parametrize(
    ("match", "is_matched"),
    [
        ("client_software_name=apache-kafka-java", True),
        ("client_software_name=java", False),
        ("client_software_name = apache.* , client_software_version=4\\.3\\..*", True),
        ("client_software_name=apache.*,client_id=consumer.*", False),
        ("client_source_address=127.0.0.1", False),
        ("", True),
    ],
)
def test_every_pattern_matches_a_whole_attribute(match: str, is_matched: bool) -> None:
    assert parse_subscription({"match": match, "metrics": "a"}).matches(JAVA) is is_matched


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"interval.ms": "99"}, InvalidRequest),
        ({"interval.ms": "3600001"}, InvalidRequest),
        ({"interval.ms": "soon"}, InvalidConfig),
        ({"period": "1"}, InvalidRequest),
        ({"match": "client_id"}, InvalidConfig),
        ({"match": "client_id=a=b"}, InvalidConfig),
        ({"match": "client_id=("}, InvalidConfig),
        ({"match": "nothing=a"}, InvalidConfig),
    ],
)
def test_what_is_no_subscription(configs: dict[str, str], error: type[KafkaError]) -> None:
    with pytest.raises(error):
        parse_subscription(configs)


def test_a_client_follows_every_subscription_that_matches_at_the_shortest_interval() -> None:
    subscriptions = [
        parse_subscription({"metrics": "a,b", "interval.ms": "5000"}),
        parse_subscription({"metrics": "b,c", "interval.ms": "1000", "match": "client_id=producer.*"}),
        parse_subscription({"metrics": "d", "interval.ms": "100", "match": "client_id=other"}),
    ]
    assert wanted_from(subscriptions, JAVA) == WantedMetrics(("a", "b", "c"), 1000)
    assert wanted_from([*subscriptions, parse_subscription({"metrics": "*"})], JAVA) == WantedMetrics(("*",), 1000)
    assert wanted_from([], JAVA) == WantedMetrics((), 300_000)


def test_a_pattern_takes_no_exponential_time() -> None:
    subscription = parse_subscription({"match": "client_id=(a+)+$", "metrics": "*"})
    assert not subscription.matches({CLIENT_ID: "a" * 30_000 + "!"})
