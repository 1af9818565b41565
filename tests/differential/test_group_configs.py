"""Configs of groups, described and altered, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import DELETE, SET, describe_configs_request, incremental_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

GROUP = 32
DESCRIBE, INCREMENTAL = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
TIMEOUT, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@scenario(
    DESCRIBE,
    differs=[
        Differs(
            "DescribeConfigs.results[].configs[consumer.assignor.offload.enable]",
            "Apache Kafka 4.3 has the setting for brokers, and its name for groups without the config",
            theirs="(absent)",
        )
    ],
)
def test_describes_the_configs_of_a_group(ask: Conversation) -> None:
    group = ask.name("group")
    ask(describe_configs_request(GROUP, group, None))
    ask.quietly(incremental_request(GROUP, group, (TIMEOUT, SET, "50000")), 1)
    request = describe_configs_request(GROUP, group, [TIMEOUT, BEAT])
    ask.settle(lambda found: "50000" in {each.value for each in found.results[0].configs}, request, 1)
    ask(request)
    ask(describe_configs_request(GROUP, "", None))


@scenario(INCREMENTAL)
def test_alters_the_configs_of_a_group(ask: Conversation) -> None:
    group = ask.name("group")
    ask(incremental_request(GROUP, group, (TIMEOUT, SET, "50000"), (BEAT, SET, "6000")))
    ask(incremental_request(GROUP, group, (TIMEOUT, DELETE, None)))
    ask(incremental_request(GROUP, group, (BEAT, SET, "7000"), validate_only=True))
    for name, text in ((TIMEOUT, "1"), (TIMEOUT, "100000000"), (BEAT, "soon"), (BEAT, "0"), ("no.such.config", "1")):
        ask(incremental_request(GROUP, group, (name, SET, text)))
    ask(incremental_request(GROUP, group, (TIMEOUT, SET, None)))
    ask(incremental_request(GROUP, "", (TIMEOUT, SET, "50000")))
