"""Apache Kafka's command line tools with `--command-config`, against a broker with TLS and SCRAM."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker, Security
from tests.peers.kafka_tools import Tools, kafka_tools

pytestmark = [pytest.mark.peer, pytest.mark.slow]
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=Security("SASL_SSL", mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256"))) as running:
        yield running


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with kafka_tools(tmp_path_factory.mktemp("tools")) as running:
        yield running


def command_config(path: Path, options: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    return str(path)


def test_tools_administer_through_a_secured_listener(broker: Broker, tools: Tools, tmp_path: Path) -> None:
    config = command_config(tmp_path / "admin.properties", broker.client_options("admin"))
    base = ("--bootstrap-server", broker.bootstrap, "--command-config", config)
    assert "Created topic secured" in tools.run(TOPICS, *base, "--create", "--topic", "secured", "--partitions", "2")
    assert tools.run(TOPICS, *base, "--list").split()[0] == "secured"
    assert "PartitionCount: 2" in tools.run(TOPICS, *base, "--describe", "--topic", "secured")
    assert tools.run(OFFSETS, *base, "--topic", "secured").split()[:2] == ["secured:0:0", "secured:1:0"]
    assert "Error" not in tools.run(GROUPS, *base, "--list")
    assert "Produce(0)" in tools.run(VERSIONS, *base)


def test_a_user_that_kafka_configs_makes_gets_in_until_it_is_removed(
    broker: Broker, tools: Tools, tmp_path: Path
) -> None:
    config = command_config(tmp_path / "admin.properties", broker.client_options("admin"))
    entity = (
        "--bootstrap-server",
        broker.bootstrap,
        "--command-config",
        config,
        "--entity-type",
        "users",
        "--entity-name",
        "eve",
    )
    made = tools.run(CONFIGS, *entity, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=eve-secret]")
    assert "Completed updating config for user eve" in made
    assert "SCRAM-SHA-256=iterations=4096" in tools.run(CONFIGS, *entity, "--describe")
    options = broker.client_options("alice", "SCRAM-SHA-256")
    options["sasl.jaas.config"] = (
        options["sasl.jaas.config"].replace("alice-secret", "eve-secret").replace("alice", "eve")
    )
    eve = (
        "--bootstrap-server",
        broker.bootstrap,
        "--command-config",
        command_config(tmp_path / "eve.properties", options),
    )
    assert "rror" not in tools.run(TOPICS, *eve, "--list")
    tools.run(CONFIGS, *entity, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "Authentication failed" in tools.run(TOPICS, *eve, "--list")


def test_a_wrong_password_is_an_authentication_error_of_kafkas(broker: Broker, tools: Tools, tmp_path: Path) -> None:
    options = broker.client_options("alice")
    options["sasl.jaas.config"] = options["sasl.jaas.config"].replace("alice-secret", "wrong")
    config = command_config(tmp_path / "wrong.properties", options)
    said = tools.run(TOPICS, "--bootstrap-server", broker.bootstrap, "--command-config", config, "--list")
    assert "Authentication failed during authentication due to invalid credentials with SASL mechanism" in said
