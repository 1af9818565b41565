"""The administrative calls of clients that people have, and of Apache Kafka's own command line tools."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonConfigResourceType

from tests.asker import Asker
from tests.broker.admin_requests import create_topic, own_settings, partition_count, start_offsets
from tests.cli.conftest import run_headrace
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

RECORDS = 10
TOPIC = "TOPIC"
"""Stands for the topic of the test."""


@pytest.fixture
def bootstrap(headrace_server: StartHeadrace) -> str:
    return str(headrace_server().bootstrap)


@pytest.fixture
def asker(bootstrap: str) -> Iterator[Asker]:
    with Asker(bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(bootstrap: str, asker: Asker) -> str:
    """A topic of one partition with ten records and a setting of its own."""
    name = create_topic(asker, settings={"retention.ms": "1000"})
    with Wire(bootstrap) as wire:
        assert wire.produce(name, batch([b"v"] * RECORDS)).error_code == 0
    return name


# confluent-kafka


def test_confluent_kafka_administers(bootstrap: str, asker: Asker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN_SECONDS)
    assert partition_count(asker, topic) == 3
    changes = [
        ConfigEntry("segment.ms", "7000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WITHIN_SECONDS)
    assert own_settings(asker, topic) == {"segment.ms": "7000", "cleanup.policy": "delete,compact"}
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "9000"})
    with pytest.warns(DeprecationWarning):
        replaced = admin.alter_configs([resource])
    for done in replaced.values():
        done.result(WITHIN_SECONDS)
    assert own_settings(asker, topic) == {"retention.bytes": "9000"}
    (deleted,) = admin.delete_records([ConfluentTopicPartition(topic, 0, 4)]).values()
    assert deleted.result(WITHIN_SECONDS).low_watermark == 4
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WITHIN_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]


def test_confluent_kafka_reads_why_not(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS.*1 would not be an increase|already has 1 partition"):
        admin.create_partitions([NewPartitions(topic, 1)])[topic].result(WITHIN_SECONDS)
    changes = [ConfigEntry("retention.mss", "1", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    (refused,) = admin.incremental_alter_configs([resource]).values()
    with pytest.raises(KafkaException, match=r"retention\.mss"):
        refused.result(WITHIN_SECONDS)
    (refused,) = admin.delete_records([ConfluentTopicPartition(topic, 0, RECORDS + 1)]).values()
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        refused.result(WITHIN_SECONDS)


# kafka-python


def test_kafka_python_administers(bootstrap: str, asker: Asker, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_partitions({topic: 3})
        assert partition_count(asker, topic) == 3
        admin.alter_configs([PythonConfigResource(PythonConfigResourceType.TOPIC, topic, {"segment.ms": "7000"})])
        assert own_settings(asker, topic)["segment.ms"] == "7000"
        admin.delete_records({PythonTopicPartition(topic, 0): 4})
        assert start_offsets(asker, topic, [0]) == {0: 4}
        assert len(admin.describe_cluster()["brokers"]) == 1
        assert topic in json.dumps(admin.describe_log_dirs(), default=repr)
    finally:
        admin.close()


# aiokafka


@pytest.fixture
async def aiokafka_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def test_aiokafka_administers(aiokafka_admin: AIOKafkaAdminClient, asker: Asker, topic: str) -> None:
    await aiokafka_admin.create_partitions({topic: AioNewPartitions(3)})
    assert partition_count(asker, topic) == 3
    resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, configs={"segment.ms": "7000"})
    await aiokafka_admin.alter_configs([resource])
    assert own_settings(asker, topic) == {"segment.ms": "7000"}
    low = await aiokafka_admin.delete_records({AioTopicPartition(topic, 0): RecordsToDelete(before_offset=4)})
    assert list(low.values()) == [4]


# Apache Kafka's tools


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """A JVM for all of them."""
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    with kafka_tools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_topics_grows_and_describes_a_topic(bootstrap: str, asker: Asker, topic: str, tools: Tools) -> None:
    command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap)
    tools.check(*command, "--alter", "--topic", topic, "--partitions", "3")
    assert partition_count(asker, topic) == 3
    described = tools.check(*command, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described and "retention.ms=1000" in described
    with pytest.raises(RuntimeError, match="would not be an increase"):
        tools.check(*command, "--alter", "--topic", topic, "--partitions", "2")


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_configs_changes_settings(bootstrap: str, asker: Asker, topic: str, tools: Tools) -> None:
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    changes = ("--add-config", "segment.ms=7000,cleanup.policy=[compact,delete]", "--delete-config", "retention.ms")
    tools.check(*command, "--alter", *of_topic, *changes)
    assert own_settings(asker, topic) == {"segment.ms": "7000", "cleanup.policy": "compact,delete"}
    described = tools.check(*command, "--describe", *of_topic)
    assert "segment.ms=7000" in described and "DYNAMIC_TOPIC_CONFIG" in described
    of_broker = ("--entity-type", "brokers", "--entity-name", "0")
    with pytest.raises(RuntimeError, match=r"Cannot update these configs dynamically: \[broker\.rack\]"):
        tools.check(*command, "--alter", *of_broker, "--add-config", "broker.rack=b")
    tools.check(*command, "--alter", *of_broker, "--add-config", "log.retention.ms=777")
    described = tools.check(*command, "--describe", *of_broker)
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=777" in described
    for_all = ("--entity-type", "brokers", "--entity-default")
    tools.check(*command, "--alter", *for_all, "--add-config", "log.retention.ms=888")
    tools.check(*command, "--alter", *of_broker, "--delete-config", "log.retention.ms")
    described = tools.check(*command, "--describe", *of_topic, "--all")
    assert "retention.ms=888 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=888" in described


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_configs_changes_levels_of_loggers(bootstrap: str, tools: Tools) -> None:
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap)
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "0")
    tools.check(*command, "--alter", *loggers, "--add-config", "headrace.network.server=DEBUG")
    described = tools.check(*command, "--describe", *loggers)
    assert "headrace.network.server=DEBUG" in described
    tools.check(*command, "--alter", *loggers, "--delete-config", "headrace.network.server")
    assert "headrace.network.server=INFO" in tools.check(*command, "--describe", *loggers)
    with pytest.raises(RuntimeError, match=r"Invalid broker logger\(s\): nothing"):
        tools.check(*command, "--alter", *loggers, "--add-config", "nothing=DEBUG")


CONFIGURED = (
    ("topics", "topic", TOPIC, "segment.ms", "7000", "8000"),
    ("brokers", "broker", "0", "log.retention.ms", "777000", "888000"),
    ("brokers", "broker", "default", "log.retention.bytes", "777", "888"),
    ("broker-loggers", "logger", "0", "headrace.network.server", "DEBUG", "ERROR"),
    ("groups", "group", "readers", "consumer.session.timeout.ms", "46000", "47000"),
    ("client-metrics", "client-metrics", "watched", "interval.ms", "6000", "7000"),
)
"""Kafka's kind, ours, a name, a setting and two values of it."""


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_configs_and_headrace_config_agree(bootstrap: str, topic: str, tools: Tools) -> None:
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap)

    def headrace(verb: str, *arguments: str) -> bytes:
        done = run_headrace("config", verb, *arguments, bootstrap=bootstrap)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for entity, kind, placed, key, first, second in CONFIGURED:
        name = topic if placed == TOPIC else placed
        named = ("--entity-default",) if name == "default" else ("--entity-name", name)
        of_entity = ("--entity-type", entity, *named)
        tools.check(*command, "--alter", *of_entity, "--add-config", f"{key}={first}")
        assert json.loads(headrace("get", kind, name, "--json"))[key] == first
        headrace("set", kind, name, f"{key}={second}")
        assert f"{key}={second}" in tools.check(*command, "--describe", *of_entity)
        if kind not in ("logger", "broker"):  # the tool lists the names by itself
            everything = tools.check(*command, "--describe", "--entity-type", entity)
            assert name in everything and f"{key}={second}" in everything
        headrace("unset", kind, name, key)
        assert f"{key}={second}" not in tools.check(*command, "--describe", *of_entity)


@pytest.mark.peer
@pytest.mark.slow
def test_tools_for_kraft_say_why_they_have_no_meaning_here(bootstrap: str, tools: Tools) -> None:
    with pytest.raises(RuntimeError, match="The cluster has no KRaft quorum"):
        tools.check(
            "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status",
        )  # fmt: skip
    features = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap)
    assert "transaction.version" in tools.check(*features, "describe")
    tools.check(*features, "upgrade", "--feature", "transaction.version=2")
    with pytest.raises(RuntimeError, match="Its level follows the brokers"):
        tools.check(*features, "downgrade", "--feature", "transaction.version=1")
    cluster = ("org.apache.kafka.tools.ClusterTool", "unregister", "--bootstrap-server", bootstrap)
    for number, reason in (("0", "Broker 0 is live"), ("7", "Broker ID 7 is not currently registered")):
        with pytest.raises(RuntimeError, match=reason):
            tools.check(*cluster, "--id", number)


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_delete_records_and_log_dirs(
    bootstrap: str, asker: Asker, topic: str, tools: Tools, tmp_path: Path
) -> None:
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    connection = ("--bootstrap-server", bootstrap)
    told = tools.check("org.apache.kafka.tools.DeleteRecordsCommand", *connection, "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in told
    assert start_offsets(asker, topic, [0]) == {0: 4}
    described = tools.check("org.apache.kafka.tools.LogDirsCommand", *connection, "--describe", "--topic-list", topic)
    (broker,) = json.loads(described.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert [(each["partition"], each["size"] > 0) for each in directory["partitions"]] == [(f"{topic}-0", True)]


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_cluster_tells_the_cluster(bootstrap: str, tools: Tools) -> None:
    command = "org.apache.kafka.tools.ClusterTool"
    assert "Cluster ID: " in tools.check(command, "cluster-id", "--bootstrap-server", bootstrap)
    endpoints = tools.check(command, "list-endpoints", "--bootstrap-server", bootstrap)
    assert bootstrap.partition(":")[2] in endpoints
