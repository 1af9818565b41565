"""ApiVersions, and requests that no broker can read, asked of headrace and of Apache Kafka."""

import sys
from pathlib import Path

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.scenario import Brokers, scenario

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from apache_kafka_apis import APACHE_KAFKA

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.API_VERSIONS
SERVED = (*range(4), *range(8, 17), *range(18, 22), 23, *range(32, 36), 37, *range(42, 48), 60, 75)
"""API keys that clients use and that headrace serves."""


@scenario(API)
def test_names_every_api_of_apache_kafka_that_headrace_serves(ask: Conversation) -> None:
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = ask.quietly(request)
    ask.note("code", answer.error_code)
    served = {each.api_key: each.max_version for each in answer.api_keys}
    ask.note("newest versions", {ApiKey(key).title: served.get(key) for key in SERVED})


@scenario(API, range(3, 5))
def test_refuses_names_of_clients(ask: Conversation) -> None:
    for name, version in (
        ("", "1"),
        ("a", ""),
        ("not legal", "1"),
        ("a", "1 2"),
        ("-a", "1"),
        ("a-", "1"),
        ("a.b-c", "1.2-3"),
    ):
        answer = ask.quietly(m.ApiVersionsRequest(client_software_name=name, client_software_version=version))
        ask.note("code", answer.error_code)


@scenario(API, range(4))
def test_answers_unknown_versions(ask: Conversation) -> None:
    answer = ask.quietly(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    ask.note("code", answer.error_code)


def test_the_table_of_apis_has_what_apache_kafka_advertises(brokers: Brokers) -> None:
    telemetry = {71, 72}  # advertised with a reporter for them only
    table = {key: newest for key, (newest, _) in APACHE_KAFKA.items() if newest is not None and key not in telemetry}
    assert {key: each for key, each in brokers.theirs.items() if key not in telemetry} == table
