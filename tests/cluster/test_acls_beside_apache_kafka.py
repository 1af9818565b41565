"""Access control lists beside Apache Kafka 3.9: the same nodes for the same commands, the same rules in one cluster."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests import rotation
from tests.asker import Asker
from tests.broker.acl_requests import AUTHORIZED, create, deleted, described, exactly, rule
from tests.cluster.mixed_cluster import OURS, MixedCluster
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools
from tests.peers.node import ZooKeeper, old_java

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-apache-kafka"),
]
TOOL_3_9, TOOL_4_3 = "kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"
THEIRS = 1
ANONYMOUS = "User:ANONYMOUS"

COMMANDS: Sequence[Sequence[str]] = [
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t"),
    ("--add", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "t"),
    ("--add", "--deny-principal", "User:CN=ä b,O=c", "--deny-host", "10.0.0.7", "--operation", "All", "--topic", "*"),
    ("--add", "--allow-principal", "User:*", "--operation", "Describe", "--topic", "pre", "--resource-pattern-type",
     "prefixed"),
    ("--add", "--allow-principal", "User:carol", "--producer", "--topic", "orders", "--transactional-id", "tx"),
    ("--add", "--allow-principal", "User:carol", "--consumer", "--topic", "orders", "--group", "g"),
    ("--add", "--allow-principal", "User:d", "--operation", "IdempotentWrite", "--cluster"),
    ("--add", "--allow-principal", "User:d", "--operation", "DescribeConfigs", "--operation", "AlterConfigs",
     "--cluster"),
    ("--add", "--allow-principal", "User:e", "--operation", "Read", "--group", "a b%2F+ü:~\"c\""),
    ("--add", "--allow-principal", "User:e", "--operation", "Describe", "--delegation-token", "x"),
    ("--add", "--allow-principal", "User:e", "--operation", "CreateTokens", "--user-principal", "User:f"),
    ("--add", "--allow-principal", "User:gone", "--operation", "Read", "--topic", "gone"),
    ("--add", "--allow-principal", "User:gone", "--operation", "Read", "--topic", "go", "--resource-pattern-type",
     "prefixed"),
    ("--remove", "--force", "--topic", "gone", "--resource-pattern-type", "match"),
    ("--remove", "--force", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "t"),
]  # fmt: skip
"""The same for both sides. Rules that one command adds are written in no certain order."""


@contextmanager
def old_tools(logs: Path) -> Iterator[Tools]:
    """Apache Kafka 3.9's command line tools."""
    with kafka_tools(logs, java=old_java(logs, "-Xmx256m")) as tools:
        yield tools


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with old_tools(tmp_path_factory.mktemp("tools")) as started:
        yield started


def run(tools: Tools, tool: str, where: Sequence[str], arguments: Sequence[str]) -> str:
    """What kafka-acls prints; it must end well."""
    printed = tools.run(tool, *where, *arguments)
    assert "Error" not in printed, printed
    assert "Exception" not in printed, printed
    return printed


def nodes(store: KazooClient, chroot: str) -> dict[str, Any]:
    """The nodes of rules by their paths: their bytes, or for several rules their fields, in order."""
    found: dict[str, Any] = {}

    def walk(path: str) -> None:
        data = store.get(f"{chroot}{path}")[0]
        shown: Any = data or b""
        if data and data.startswith(b'{"acls":[') and len(json.loads(data)["acls"]) > 1:
            shown = sorted(map(str, json.loads(data, object_pairs_hook=list)[0][1]))
        if "changes" not in path or not data:
            found[path] = shown
        else:
            found.setdefault("changes", set()).add((path.rpartition("/")[0], data))
        for name in store.get_children(f"{chroot}{path}"):
            walk(f"{path}/{name}")

    for root in ("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-changes", "/kafka-acl-extended-changes"):
        walk(root)
    return found


def rules_listed(logs: Path, where: Sequence[str]) -> list[str]:
    """The lines of `kafka-acls --list` in 3.9, which have no certain order. In a JVM of its own, since Scala's console
    keeps the output that the JVM began with."""
    command = [*old_java(logs / "list", "-Xmx256m"), TOOL_3_9, *where, "--list"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=True)
    return sorted(line.strip() for line in done.stdout.splitlines() if line.strip())


def directory_of(address: str) -> str:
    return f"/{address.partition('/')[2]}"


def test_both_write_the_same_nodes_for_the_same_commands(zookeeper: ZooKeeper, old: Tools, tmp_path: Path) -> None:
    our_tree, their_tree = zookeeper.chroot("ours"), zookeeper.chroot("theirs")
    ours = HeadraceServer(tmp_path / "data", AUTHORIZED, ("--broker-id", "1", "--zookeeper", our_tree))
    store = KazooClient(zookeeper.address)
    with ExitStack() as stack:
        ours.start()
        stack.callback(ours.stop)
        store.start()
        stack.callback(store.stop)
        store.ensure_path(directory_of(their_tree))
        here = ("--bootstrap-server", ours.bootstrap)
        there = ("--authorizer-properties", f"zookeeper.connect={their_tree}")
        for command in COMMANDS:
            run(old, TOOL_3_9, here, command)
            run(old, TOOL_3_9, there, command)
        assert nodes(store, directory_of(our_tree)) == nodes(store, directory_of(their_tree))
        listed = rules_listed(tmp_path, here)
        assert listed == rules_listed(tmp_path, there)
        assert len(listed) > 15
        straight = ("--authorizer-properties", f"zookeeper.connect={our_tree}")
        run(old, TOOL_3_9, straight, ["--add", "--allow-principal", "User:late", "--operation", "Read", "--topic", "t"])
        with Asker(ours.bootstrap) as asker:
            eventually(lambda: rule("Topic:t", "Read", "User:late") in described(asker), "the rule seen by our broker")


@pytest.fixture(scope="module")
def mixed(zookeeper: ZooKeeper, old: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """A broker of each kind. Everybody is anonymous, and may do what the rules say."""
    chroot = zookeeper.chroot("mixed")
    there = ("--authorizer-properties", f"zookeeper.connect={chroot}")
    for resource in (("--cluster",), ("--topic", "*"), ("--group", "*"), ("--transactional-id", "*")):
        run(old, TOOL_3_9, there, ["--add", "--allow-principal", ANONYMOUS, "--operation", "All", *resource])
    settings = {**AUTHORIZED, "super.users": "User:nobody"}
    with MixedCluster(tmp_path_factory.mktemp("mixed"), chroot, theirs=1, settings=settings) as cluster:
        cluster.assign("t", [THEIRS], [OURS])
        yield cluster


def bootstrap_of(mixed: MixedCluster, broker: int) -> str:
    return mixed.ours.bootstrap if broker == OURS else mixed.theirs[broker].bootstrap


def produced(mixed: MixedCluster, broker: int) -> ErrorCode:
    """How a broker answers a produce to the partition that it leads."""
    records = bytes(encode_batch([Record(0, 1, None, b"v", ())]))
    each = m.ProduceRequest.PartitionProduceData(index=0 if broker == THEIRS else 1, records=records)
    data = m.ProduceRequest.TopicProduceData(name="t", partition_data=[each])
    with Asker(bootstrap_of(mixed, broker)) as asker:
        answer = asker.ask(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def answers(mixed: MixedCluster, broker: int, code: ErrorCode) -> bool:
    return produced(mixed, broker) is code


@pytest.mark.parametrize(
    ("first", "resource"),
    [
        pytest.param(first, resource, marks=rotation.unless_today((number + turn) % 2, 2), id=f"{resource}-{name}")
        for number, (first, name) in enumerate(((THEIRS, "apache-kafka"), (OURS, "headrace")))
        for turn, resource in enumerate(("Topic:t", "Topic:*"))
    ],
)
def test_a_rule_that_one_broker_stores_is_enforced_by_the_other(mixed: MixedCluster, first: int, resource: str) -> None:
    denial = rule(resource, "Write", "User:*", permission="Deny")
    second = OURS if first == THEIRS else THEIRS
    assert {produced(mixed, each) for each in (first, second)} == {ErrorCode.NONE}
    with Asker(bootstrap_of(mixed, first)) as asker, Asker(bootstrap_of(mixed, second)) as other:
        assert create(asker, denial) == [(0, None)]
        for each in (first, second):
            eventually(partial(answers, mixed, each, ErrorCode.TOPIC_AUTHORIZATION_FAILED), "denied")
        assert denial in described(other)
        assert deleted(other, exactly(denial)) == [{denial}]
        for each in (first, second):
            eventually(partial(answers, mixed, each, ErrorCode.NONE), "allowed again")


def test_kafka_acls_of_4_3_says_the_same_of_both(mixed: MixedCluster, tmp_path: Path) -> None:
    reads = ("--allow-principal", "User:x", "--operation", "Read")
    commands = [
        ["--add", *reads, "--topic", "x"],
        ["--list", "--principal", "User:x"],
        ["--list", "--topic", "x", "--resource-pattern-type", "match"],
        ["--remove", "--force", *reads, "--topic", "x"],
        ["--list", "--principal", "User:x"],
        ["--add", "--allow-principal", "User:x", "--operation", "Read", "--cluster"],
    ]
    said: dict[int, list[str]] = {THEIRS: [], OURS: []}
    with kafka_tools(tmp_path) as tools:
        for broker, texts in said.items():
            here = ("--bootstrap-server", bootstrap_of(mixed, broker))
            texts += [tools.run(TOOL_4_3, *here, *command).replace(here[1], "BROKER") for command in commands]
    assert said[OURS] == said[THEIRS]
