"""The metadata store that a broker leaves in ZooKeeper beside the one that Apache Kafka 3.9 leaves there after the
same requests,
and Apache Kafka's own tools on ours."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient

from tests.asker import Asker
from tests.broker.quota_requests import set_quota
from tests.differential.scenario import served_versions
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper, old_java

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from apache_kafka_apis import APACHE_KAFKA

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-apache-kafka"),
]

LEFT_OUT = re.compile(
    r"/kafka-acl.*|/delegation_token.*"  # without an authorizer and without tokens nobody looks for them
    r"|/headrace.*|/migration"
)
MetadataStore = dict[str, bytes | None]

QUOTAS: list[tuple[dict[str, str | None], dict[str, float | None]]] = [
    ({"user": "a b/c*~"}, {"producer_byte_rate": 1024, "request_percentage": 12.5}),
    ({"user": None}, {"controller_mutation_rate": 10}),
    ({"user": "u", "client_id": "c"}, {"consumer_byte_rate": 2048}),
    ({"user": None, "client_id": None}, {"consumer_byte_rate": 4096}),
    ({"client_id": "<default>"}, {"producer_byte_rate": 1}),
    ({"client_id": None}, {"producer_byte_rate": 10_000_000}),
    ({"ip": "127.9.9.9"}, {"connection_creation_rate": 5}),
    ({"ip": None}, {"connection_creation_rate": 500}),
    ({"user": "gone", "client_id": "too"}, {"producer_byte_rate": 1, "consumer_byte_rate": 1}),
]
"""What is set; the last one is removed again."""


@dataclass
class Pair:
    """Both trees, by paths below the chroot; where ours is; what our broker logged; what Apache Kafka serves."""

    theirs: MetadataStore
    ours: MetadataStore
    address: str
    server: HeadraceServer
    directory: Path
    versions: Mapping[int, range]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("trees")
    settings = {
        "broker.rack": "here",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
    }
    with ZooKeeper(directory / "zookeeper") as zookeeper:
        client = KazooClient(zookeeper.address)
        client.start()
        ours = f"{zookeeper.address}/ours"
        server = HeadraceServer(directory / "data", settings, ("--broker-id", "1", "--zookeeper", ours))
        try:
            with KafkaNode(
                directory / "kafka", zookeeper=f"{zookeeper.address}/theirs", settings="broker.rack=here\n"
            ) as node:
                server.start()
                use(node.bootstrap)
                use(server.bootstrap)
                versions = served_versions(node.bootstrap)
                yield Pair(dump(client, "/theirs"), dump(client, "/ours"), ours, server, directory, versions)
        finally:
            server.stop()
            client.stop()
            client.close()


def use(bootstrap: str) -> None:
    """A bit of everything that leaves something in the metadata store."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("plain", 2, 1),
        NewTopic("configured", 1, 1, config={"retention.ms": "1000", "segment.bytes": "2048"}),
    ]
    for future in admin.create_topics([*topics, NewTopic("doomed", 1, 1)]).values():
        future.result(WITHIN_SECONDS)
    for future in admin.create_partitions([NewPartitions("plain", 3)]).values():
        future.result(WITHIN_SECONDS)
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[change])]
    ).values():
        future.result(WITHIN_SECONDS)
    for future in admin.delete_topics(["doomed"]).values():
        future.result(WITHIN_SECONDS)
    with Asker(bootstrap) as asker:
        for entity, quotas in QUOTAS:
            set_quota(asker, entity, **quotas)
        for key in QUOTAS[-1][1]:
            set_quota(asker, QUOTAS[-1][0], **{key: None})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("plain", b"x")
    assert producer.flush(WITHIN_SECONDS) == 0


def dump(client: KazooClient, root: str) -> MetadataStore:
    """Everything below `root`, once what was deleted is gone."""

    def is_deleted() -> bool:
        topic = client.exists(f"{root}/brokers/topics/doomed")
        return not topic and not client.get_children(f"{root}/admin/delete_topics")

    eventually(is_deleted, "the deletion")
    found: MetadataStore = {}
    level = [root]
    while level:
        for path in level:
            found[path[len(root) :]] = client.get(path)[0]
        level = [f"{path}/{name}" for path in level for name in client.get_children(path)]
    return {path: data for path, data in found.items() if not LEFT_OUT.fullmatch(path)}


def shape(value: Any) -> Any:
    """What is there, not how much of it."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items()) if key != "headrace"}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def test_it_has_the_same_nodes(pair: Pair) -> None:
    assert set(pair.ours) == set(pair.theirs)


def test_nodes_with_nothing_in_them_are_null_and_not_empty(pair: Pair) -> None:
    """A controller of Apache Kafka takes what is not null in /latest_producer_id_block for JSON."""
    assert {path for path, data in pair.ours.items() if data == b""} <= {
        path for path, data in pair.theirs.items() if data == b""
    }


def test_each_node_holds_the_same_kind_of_thing(pair: Pair) -> None:
    for path, data in pair.theirs.items():
        ours = pair.ours.get(path, b"")
        if data is not None and data.startswith(b"{"):
            assert shape(json.loads(ours or b"")) == shape(json.loads(data)), path
        else:
            assert bool(ours) == bool(data), path


@pytest.mark.parametrize(
    "path",
    [
        "/controller_epoch",
        "/feature",
        "/config/topics/plain",
        "/config/topics/configured",
        "/config/users/a%20b%2Fc%2A%7E",
        "/config/users/<default>",
        "/config/users/u/clients/c",
        "/config/users/<default>/clients/<default>",
        "/config/clients/%3Cdefault%3E",
        "/config/clients/<default>",
        "/config/ips/127.9.9.9",
        "/config/ips/<default>",
        "/config/changes/config_change_0000000000",
        "/latest_producer_id_block",
        "/brokers/topics/plain/partitions/0/state",
        "/brokers/topics/plain/partitions/2/state",
    ],
)
def test_what_does_not_depend_on_chance_is_the_same(pair: Pair, path: str) -> None:
    theirs, ours = pair.theirs[path], pair.ours[path]
    assert theirs is not None and ours is not None
    assert json.loads(ours) == json.loads(theirs)


def test_registrations_say_the_same_but_for_ports_and_times(pair: Pair) -> None:
    theirs, ours = (json.loads(store["/brokers/ids/1"] or b"") for store in (pair.theirs, pair.ours))
    del ours["headrace"]
    for each in (theirs, ours):
        each["endpoints"] = [re.sub(r":\d+$", "", endpoint) for endpoint in each["endpoints"]]
        del each["port"], each["timestamp"]
    assert ours == theirs


def run(pair: Pair, kind: str, *arguments: str) -> str:
    done = subprocess.run(
        [*old_java(pair.directory / "tools"), kind, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_zookeeper_shell_reads_it(pair: Pair) -> None:
    shell = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
    assert '"brokerid":1' in run(pair, shell, "-server", pair.address, "get", "/controller")
    assert "[configured, plain]" in run(pair, shell, "-server", pair.address, "ls", "/brokers/topics")


def test_kafka_configs_writes_users_into_it_and_reads_them_back_while_the_broker_runs(pair: Pair) -> None:
    command = ("kafka.admin.ConfigCommand", "--zookeeper", pair.address, "--entity-type", "users")
    run(pair, *command, "--entity-name", "alice", "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    assert "SCRAM-SHA-256=salt=" in run(pair, *command, "--describe")
    use_again = AdminClient({"bootstrap.servers": pair.server.bootstrap})
    assert "plain" in use_again.list_topics(timeout=WITHIN_SECONDS).topics
    assert " ERROR " not in pair.server.stderr_file.read_text()


def test_the_table_of_apis_has_what_apache_kafka_3_9_advertises(pair: Pair) -> None:
    table = {key: old for key, (_, old) in APACHE_KAFKA.items() if old is not None}
    assert pair.versions == table
