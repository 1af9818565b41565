"""Configs of brokers, loggers and subscriptions, ListConfigResources, and APIs of KRaft, asked of both."""

from collections.abc import Callable

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
LIST = ApiKey.LIST_CONFIG_RESOURCES
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
SYNONYMS = {"include_synonyms": True}


def has(name: str, value: str | None) -> Callable[[m.DescribeConfigsResponse], bool]:
    """Whether a description has a value."""

    def accept(found: m.DescribeConfigsResponse) -> bool:
        values = {each.name: each.value for each in found.results[0].configs}
        return values.get(name) == value

    return accept


@scenario(INCREMENTAL, alone=True)
def test_changes_configs_of_a_broker_and_of_all(ask: Conversation) -> None:
    keys = ["log.cleaner.backoff.ms", "log.retention.bytes", "max.connections"]
    topic = ask.topic()
    for entity in ("", "1"):
        ask(incremental_request(BROKER, entity, ("log.cleaner.backoff.ms", SET, f"1400{len(entity)}")))
        ask(incremental_request(BROKER, entity, ("log.retention.bytes", SET, f"99999{len(entity)}")))
    ask.settle(has("log.cleaner.backoff.ms", "14001"), describe_configs_request(BROKER, "1", keys), 4)
    ask.until(has("log.retention.bytes", "999991"), describe_configs_request(BROKER, "1", keys, **SYNONYMS), 4)
    ask(describe_configs_request(BROKER, "", keys, **SYNONYMS), 4)
    ask(describe_configs_request(TOPIC, topic, ["retention.bytes"], **SYNONYMS), 4)
    for entity in ("1", ""):
        ask(incremental_request(BROKER, entity, ("log.cleaner.backoff.ms", DELETE, None)))
        ask(incremental_request(BROKER, entity, ("log.retention.bytes", DELETE, None)))
        ask(incremental_request(BROKER, entity, ("log.retention.bytes", DELETE, None)))
    ask.until(has("log.retention.bytes", "-1"), describe_configs_request(BROKER, "1", keys, **SYNONYMS), 4)
    ask.until(lambda found: not found.results[0].configs, describe_configs_request(BROKER, "", keys, **SYNONYMS), 4)


@scenario(
    INCREMENTAL,
    differs=[
        Differs("IncrementalAlterConfigs.responses[].error_code", "headrace knows its settings", at="no.such.config"),
        Differs("IncrementalAlterConfigs.responses[]", "headrace stores it, without effect", at="num.io.threads"),
    ],
)
def test_refuses_changes_of_broker_configs(ask: Conversation) -> None:
    for changes in (
        [("log.cleaner.threads", SET, "0")], [("log.cleaner.threads", SET, "9")], [("log.cleaner.threads", SET, "x")],
        [("log.retention.hours", SET, "1")], [("broker.rack", SET, "b")], [("num.replica.fetchers", SET, "0")],
        [("num.replica.fetchers", SET, "3")], [("log.cleanup.policy", APPEND, "compact")],
        [("log.retention.ms", APPEND, "1")], [("log.retention.ms", SUBTRACT, "1")],
        [("log.retention.ms", SET, None)], [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2")],
        [("log.segment.bytes", SET, "-5")], [("compression.type", SET, "fast")],
        [("num.io.threads", SET, "0")], [("no.such.config", SET, "1")], [("no.such.config", DELETE, None)],
        [("message.max.bytes", SET, "-1")], [("min.insync.replicas", SET, "0")],
        [("unclean.leader.election.enable", SET, "maybe")],
    ):  # fmt: skip
        for entity in ("1", ""):
            ask(incremental_request(BROKER, entity, *changes, validate_only=True))


@scenario(ALTER, alone=True)
def test_replaces_the_configs_of_a_broker(ask: Conversation) -> None:
    Config = m.AlterConfigsRequest.AlterableConfig
    for configs in (
        [Config(name="log.cleaner.backoff.ms", value="13000")],
        [Config(name="log.cleaner.backoff.ms", value="soon")],
        [Config(name="log.cleaner.backoff.ms", value=None)],
        [],
    ):
        wanted = m.AlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
        ask(m.AlterConfigsRequest(resources=[wanted]))
    ask.until(
        has("log.cleaner.backoff.ms", "15000"),
        describe_configs_request(BROKER, "1", ["log.cleaner.backoff.ms"]),
        4,
    )


@scenario(INCREMENTAL)
def test_changes_levels_of_loggers(ask: Conversation) -> None:
    for name, changes in (
        ("1", [("root", SET, "INFO")]), ("1", [("root", DELETE, None)]), ("1", [("root", SET, "LOUD")]),
        ("1", [("root", APPEND, "INFO")]), ("1", [("root", SUBTRACT, "INFO")]),
        ("1", [("no.such.logger", SET, "INFO")]),
        ("1", [("no.such.logger", DELETE, None)]), ("1", [("root", SET, None)]), ("1", [("root", SET, "info")]),
        ("7", [("root", SET, "INFO")]), ("", [("root", SET, "INFO")]), ("x", [("root", SET, "INFO")]), ("1", []),
    ):  # fmt: skip
        ask(incremental_request(BROKER_LOGGER, name, *changes))
    ask(describe_configs_request(BROKER_LOGGER, "1", ["root"]), 4)
    for name in ("", "7", "x"):
        ask(describe_configs_request(BROKER_LOGGER, name, None), 4)


@scenario(ALTER)
def test_alter_configs_knows_no_loggers(ask: Conversation) -> None:
    config = m.AlterConfigsRequest.AlterableConfig(name="root", value="INFO")
    wanted = m.AlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name="1", configs=[config]
    )
    ask(m.AlterConfigsRequest(resources=[wanted]))


@scenario(INCREMENTAL, alone=True)
def test_changes_subscriptions_to_metrics_of_clients(ask: Conversation) -> None:
    name = ask.name("subscription")
    for changes in (
        [("metrics", SET, "a,b")],
        [("interval.ms", SET, "1000"), ("match", SET, "client_id=a")],
        [("metrics", APPEND, "c")],
        [("metrics", SUBTRACT, "a")],
    ):
        ask(incremental_request(CLIENT_METRICS, name, *changes))
    ask.settle(has("match", "client_id=a"), describe_configs_request(CLIENT_METRICS, name, None), 4)
    ask(describe_configs_request(CLIENT_METRICS, name, None, **SYNONYMS), 4)
    for changes in (
        [("interval.ms", SET, "99")], [("interval.ms", SET, "3600001")], [("interval.ms", SET, "soon")],
        [("period", SET, "1")], [("match", SET, "client_id")], [("match", SET, "client_id=a=b")],
        [("match", SET, "nothing=a")], [("match", SET, "client_id=(")], [("metrics", SET, "a,a")],
        [("interval.ms", APPEND, "1")],
    ):  # fmt: skip
        ask(incremental_request(CLIENT_METRICS, name, *changes))
    ask(incremental_request(CLIENT_METRICS, "", ("metrics", SET, "a")))
    ask(describe_configs_request(CLIENT_METRICS, "", None), 4)
    for key in ("metrics", "interval.ms", "match"):
        ask(incremental_request(CLIENT_METRICS, name, (key, DELETE, None)))
    ask.until(
        lambda found: all(each.config_source == 5 for each in found.results[0].configs),
        describe_configs_request(CLIENT_METRICS, name, None, **SYNONYMS),
        4,
    )


@scenario(LIST, alone=True)
def test_lists_config_resources(ask: Conversation) -> None:
    name, topic = ask.name("listed"), ask.topic()
    ask.quietly(incremental_request(CLIENT_METRICS, name, ("metrics", SET, "a")), 1)

    def names_it(found: m.ListConfigResourcesResponse) -> bool:
        return any(each.resource_name == name for each in found.config_resources)

    found = ask.settle(names_it, m.ListConfigResourcesRequest())
    own = [(each.resource_name, each.resource_type) for each in found.config_resources if each.resource_name == name]
    ask.note("subscriptions", own)
    if ask.version >= 1:
        for types in ([TOPIC], [BROKER], [BROKER_LOGGER], [TOPIC, BROKER], [3], [TOPIC, 3], [0], [64]):
            found = ask.quietly(m.ListConfigResourcesRequest(resource_types=types))
            known = [
                (each.resource_name, each.resource_type)
                for each in found.config_resources
                if each.resource_name in (topic, "1")
            ]
            ask.note(f"resources of {types}", [found.error_code, *known])
    ask.quietly(incremental_request(CLIENT_METRICS, name, ("metrics", DELETE, None)), 1)


@scenario(ApiKey.UPDATE_FEATURES)
def test_refuses_updates_of_unknown_features(ask: Conversation) -> None:
    Update = m.UpdateFeaturesRequest.FeatureUpdateKey
    for name, level in (("no.such.feature", 1), ("", 1), ("transaction.version", 99)):
        more = {"validate_only": True} if ask.version else {}
        ask(m.UpdateFeaturesRequest(feature_updates=[Update(feature=name, max_version_level=level)], **more))


@scenario(ApiKey.UNREGISTER_BROKER)
def test_does_not_unregister_an_unknown_broker(ask: Conversation) -> None:
    ask(m.UnregisterBrokerRequest(broker_id=7))
    ask(m.UnregisterBrokerRequest(broker_id=-1))
