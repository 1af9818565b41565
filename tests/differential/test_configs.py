"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    describe_configs_request,
    incremental_request,
)
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

DESCRIBE, INCREMENTAL, ALTER = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS
KEYS = ["cleanup.policy", "retention.ms", "segment.bytes", "compression.type", "min.insync.replicas", "no.such.config"]


@scenario(DESCRIBE)
def test_describes_configs_of_a_topic(ask: Conversation) -> None:
    name = ask.topic(cleanup_policy="compact", max_message_bytes="2000000")
    ask(describe_configs_request(TOPIC, name, [*KEYS, "max.message.bytes"]))
    ask(describe_configs_request(TOPIC, name, []))


@scenario(
    DESCRIBE,
    range(1, 5),
    differs=[
        Differs(
            "DescribeConfigs.results[].configs[retention.ms].synonyms[]",
            "headrace names the broker's setting also where it has its default",
            theirs="(absent)",
        )
    ],
)
def test_describes_synonyms_and_documentation(ask: Conversation) -> None:
    name = ask.topic(cleanup_policy="compact")
    more = {"include_synonyms": True}
    if ask.version >= 3:
        more["include_documentation"] = True
    ask(describe_configs_request(TOPIC, name, KEYS, **more))


@scenario(DESCRIBE)
def test_describes_every_config_of_a_topic(ask: Conversation) -> None:
    ask(describe_configs_request(TOPIC, ask.topic(), None))


@scenario(
    DESCRIBE,
    differs=[
        Differs("DescribeConfigs.results[].configs[num.io.threads]", "headrace has no such setting", ours="(absent)"),
        Differs(
            "DescribeConfigs.results[].configs[log.retention.ms].value", "headrace answers what it does", theirs="None"
        ),
    ],
)
def test_describes_configs_of_a_broker(ask: Conversation) -> None:
    keys = ["log.retention.ms", "num.io.threads", "message.max.bytes", "auto.create.topics.enable", "broker.id"]
    for name in ("1", ""):
        ask(describe_configs_request(BROKER, name, keys))


@scenario(DESCRIBE)
def test_refuses_configs_of_unknown_resources(ask: Conversation) -> None:
    for kind, name in (
        (TOPIC, ask.name("missing")), (TOPIC, ""), (TOPIC, "not legal"), (BROKER, "7"), (BROKER, "x"), (BROKER, "-1"),
        (0, "x"), (1, "x"), (3, "x"), (5, "x"), (77, "x"), (-1, "x"),
    ):  # fmt: skip
        ask(describe_configs_request(kind, name, None))
    ask(m.DescribeConfigsRequest(resources=[]))


@scenario(INCREMENTAL)
def test_alters_configs_of_a_topic_one_by_one(ask: Conversation) -> None:
    name = ask.topic()
    keys = ["retention.ms", "cleanup.policy", "segment.bytes"]
    for changes in (
        [("retention.ms", SET, "1000")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, None)],
        [("segment.bytes", SET, "2000000"), ("retention.ms", SET, "5")],
    ):
        ask(incremental_request(TOPIC, name, *changes))
        ask.settle(lambda found: True, describe_configs_request(TOPIC, name, keys), 4)
    ask(incremental_request(TOPIC, name, ("retention.ms", SET, "7"), validate_only=True))
    ask.until(
        lambda found: {each.name: each.value for each in found.results[0].configs}["segment.bytes"] == "2000000",
        describe_configs_request(TOPIC, name, keys),
        4,
    )


@scenario(
    INCREMENTAL,
    differs=[
        Differs(
            "IncrementalAlterConfigs.responses[].error_code",
            "Apache Kafka fails inside",
            at=f"operation={number},",
        )
        for number in (7, -1)
    ],
)
def test_refuses_wrong_changes_of_topic_configs(ask: Conversation) -> None:
    name = ask.topic()
    for changes in (
        [("no.such.config", SET, "1")], [("retention.ms", SET, "soon")], [("retention.ms", SET, None)],
        [("retention.ms", APPEND, "1")], [("retention.ms", SUBTRACT, "1")], [("retention.ms", 7, "1")],
        [("retention.ms", -1, "1")], [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], [],
        [("cleanup.policy", SUBTRACT, "compact")], [("cleanup.policy", SET, "keep")], [("", SET, "1")],
        [("retention.ms", SET, "1"), ("segment.bytes", SET, "x")], [("no.such.config", DELETE, None)],
    ):  # fmt: skip
        ask(incremental_request(TOPIC, name, *changes))
    ask(describe_configs_request(TOPIC, name, ["retention.ms", "cleanup.policy"]), 4)


@scenario(
    INCREMENTAL,
    differs=[
        Differs(
            "IncrementalAlterConfigs.responses[].error_code",
            "an illegal name is an unknown one",
            at="'not legal'",
        )
    ],
)
def test_refuses_changes_of_unknown_resources(ask: Conversation) -> None:
    change = ("retention.ms", SET, "1")
    for kind, name in (
        (TOPIC, ask.name("missing")), (TOPIC, ""), (TOPIC, "not legal"), (BROKER, "7"), (BROKER, "x"), (0, "x"),
        (3, "x"), (77, "x"),
    ):  # fmt: skip
        ask(incremental_request(kind, name, change))
    twice = incremental_request(TOPIC, ask.topic(), change)
    twice.resources *= 2
    ask(twice)
    ask(m.IncrementalAlterConfigsRequest(resources=[], validate_only=False))


@scenario(
    INCREMENTAL,
    differs=[
        Differs("IncrementalAlterConfigs.responses[].error_code", "headrace knows its settings", at="'no.such.config'"),
        Differs("IncrementalAlterConfigs.responses[]", "headrace stores it, without effect", at="num.io.threads"),
    ],
)
def test_refuses_wrong_changes_of_broker_configs(ask: Conversation) -> None:
    for changes in (
        [("no.such.config", SET, "1")], [("broker.id", SET, "5")], [("log.retention.ms", SET, "soon")],
        [("num.io.threads", SET, "0")], [("log.cleaner.threads", SET, "-1")], [],
    ):  # fmt: skip
        ask(incremental_request(BROKER, "1", *changes, validate_only=True))


@scenario(ALTER)
def test_replaces_the_configs_of_a_topic(ask: Conversation) -> None:
    name = ask.topic(cleanup_policy="compact")
    Config = m.AlterConfigsRequest.AlterableConfig
    for configs in (
        [Config(name="retention.ms", value="1000")],
        [Config(name="retention.ms", value="soon")],
        [Config(name="no.such.config", value="1")],
        [Config(name="retention.ms", value=None)],
        [],
    ):
        wanted = m.AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
        for validate_only in (True, False):
            ask(m.AlterConfigsRequest(resources=[wanted], validate_only=validate_only))
    ask.until(
        lambda found: all(each.config_source == 5 for each in found.results[0].configs),
        describe_configs_request(TOPIC, name, ["retention.ms", "cleanup.policy"]),
        4,
    )
