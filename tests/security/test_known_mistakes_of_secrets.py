"""The mistakes that Kafka, Pulsar and Redpanda have published as CVEs, about secrets, files and addresses.

Each test names the CVE whose class of mistake it holds off. Mistakes of parts that headrace does not have (Connect's
REST API, ZooKeeper's own quorum, Log4j) are left out. `conftest.broker` tells what the broker is like.
"""

import json
from pathlib import Path

import pytest

from headrace.errors import InvalidConfig, KafkaError
from headrace.network.sasl.login import login_of
from headrace.protocol import messages as m
from headrace.protocol.conversation.authentication import authentication
from headrace.testing import Broker
from tests.security.clients import (
    PASSWORDS,
    as_user,
    new_topic,
)


def test_a_client_makes_the_broker_read_no_file(broker: Broker, tmp_path: Path) -> None:
    """CVE-2024-31141, CVE-2023-25194: configuration that came from clients named files and classes."""
    (tmp_path / "secret.properties").write_text("key=of-a-file\n")
    reference = f"${{file:{tmp_path}/secret.properties:key}}"
    topic = new_topic(broker)
    with as_user(broker, "admin") as admin:
        config = m.IncrementalAlterConfigsRequest.AlterableConfig(
            name="follower.replication.throttled.replicas", config_operation=0, value=reference
        )
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name=topic, configs=[config]
        )
        admin.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 0)
        described = m.DescribeConfigsRequest(
            resources=[m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=topic)]
        )
        [answer] = admin.ask(described, 1).results
    assert "of-a-file" not in str([(each.name, each.value) for each in answer.configs])


def test_secrets_are_told_to_nobody(broker: Broker) -> None:
    """CVE-2019-12399, CVE-2023-24619: secrets stood in descriptions of the configuration, and in logs."""
    described = m.DescribeConfigsRequest(
        resources=[m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="0")],
        include_synonyms=True,
    )
    with as_user(broker, "admin") as admin:
        [answer] = admin.ask(described, 1).results
    assert answer.error_code == 0
    shown = json.dumps([(each.name, each.value, [s.value for s in each.synonyms]) for each in answer.configs])
    for password in PASSWORDS.values():
        assert password not in shown
        assert password not in broker.log


@pytest.mark.parametrize(
    "module",
    [
        'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x"',
        'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://127.0.0.1:1/x"',
        'os.system required command="true"',
    ],
)
def test_a_setting_names_no_class_that_is_loaded(module: str) -> None:
    """CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: login modules by name did what their options said."""
    with pytest.raises(InvalidConfig):
        login_of({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{module};"})


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/token", "127.0.0.1:80/token"])
def test_what_is_no_token_is_neither_sent_nor_shown(url: str) -> None:
    """CVE-2025-27817: the URL of the token endpoint read any file, whose content was sent or stood in the error."""
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{bearer} clientId="id" clientSecret="secret";',
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    with pytest.raises((InvalidConfig, KafkaError, ValueError)) as refused:
        next(
            authentication("a broker", login_of(options).client("127.0.0.1"), {17: (0, 1), 36: (0, 2)}),
        )
    assert "root:" not in str(refused.value)
    assert "secret" not in str(refused.value)
