"""What an operator does: every `headrace cluster` command against three brokers, one of them killed; Apache Kafka's own
topic tool; and the metrics that say what is wrong.
"""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.core.metadata import PartitionInfo
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.docs.test_examples import examples
from tests.docs.test_examples import run as run_example
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import child_environment, free_ports
from tests.peers import kafka
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

WAIT_SECONDS = 60.0
TOPICS = "org.apache.kafka.tools.TopicCommand"
MANAGER = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"


def run(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`headrace cluster ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", "cluster", *arguments],
        env={**child_environment(), "HEADRACE_BOOTSTRAP": cluster.bootstrap},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def said(cluster: LocalCluster, *arguments: str) -> str:
    """What it prints, having ended well."""
    done = run(cluster, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def new_topic(cluster: LocalCluster, kind: str, *replicas: list[int]) -> str:
    """A topic with these replicas."""
    name = f"{kind}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, len(replicas), replica_assignment=list(replicas))])[name].result(WITHIN_SECONDS)
    eventually(lambda: name in cluster.view().topics, f"{name} is there")
    return name


def partitions(cluster: LocalCluster, topic: str) -> tuple[PartitionInfo, ...]:
    """As some broker sees them."""
    return cluster.topic(topic)


def test_a_whole_cluster_is_ready(cluster: LocalCluster) -> None:
    new_topic(cluster, "ready", [1, 2, 3])
    cluster.wait_until_ready()
    assert said(cluster, "status").splitlines()[0].endswith(": ready")
    status = json.loads(said(cluster, "status", "--json"))
    assert status["brokers"] == [1, 2, 3] and status["ready"] and status["offline"] == 0
    rows = json.loads(said(cluster, "brokers", "--json"))
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert [row["address"] for row in rows] == [each.bootstrap for each in cluster.brokers.values()]
    assert [row["broker"] for row in rows if row["controller"]] == [status["controller"]]
    assert said(cluster, "controller").split()[0] == str(status["controller"])
    assert said(cluster, "why-not-ready").startswith("ready")


def test_a_killed_broker_is_named_and_its_leaders_are_given_back_later(cluster: LocalCluster) -> None:
    victim = 2
    topic = new_topic(cluster, "killed", [2, 3, 1], [3, 1, 2])
    alone = new_topic(cluster, "alone", [2])
    cluster.brokers[victim].kill()
    cluster.wait_until_present({1, 3})
    eventually(lambda: partitions(cluster, topic)[0].leader == 3, "another leader")
    done = run(cluster, "status", "--json")
    status = json.loads(done.stdout)
    assert done.returncode == 1
    assert status["missing_brokers"] == [victim] and not status["ready"]
    assert status["offline"] >= 1 and status["under_replicated"] >= 2  # other tests have topics of one replica, too
    done = run(cluster, "why-not-ready")
    reasons = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 1
    assert reasons[f"{alone}-0"].startswith(f"offline: broker {victim} is down and has all committed records")
    assert reasons[f"{topic}-0"].startswith(f"under-replicated: broker {victim} is down: start it")
    (row,) = [each for each in json.loads(said(cluster, "brokers", "--json")) if each["broker"] == victim]
    assert row["address"] is None and row["leaders"] == 0 and row["in_sync"] <= status["offline"]
    cluster.brokers[victim].restart()
    cluster.wait_until_ready()
    said(cluster, "elect", topic)  # nothing to do where the controller has done it by itself
    eventually(lambda: partitions(cluster, topic)[0].leader == victim, "the preferred leader")


def test_replicas_are_added_and_taken_away_while_a_producer_writes(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "moved", [1], [2])
    with VerifyingProducer(cluster.bootstrap, topic, partitions=2) as producer:
        producer.wait_for(300)
        assert said(cluster, "reassign", topic, "--replicas", "3").endswith("2 of 2 moved\n")
        assert all(set(each.isr) == {1, 2, 3} for each in partitions(cluster, topic))
        producer.wait_for(300)
        assert "2 of 2 moved" in said(cluster, "reassign", topic, "--replicas", "2", "--to", "2,3")
        assert all(set(each.replicas) == set(each.isr) == {2, 3} for each in partitions(cluster, topic))
        assert said(cluster, "reassign", "--status") == "nothing is moving\n"
        producer.wait_for(300)
    assert not producer.failed
    assert not verify(cluster.bootstrap, topic, producer).faults()


def test_a_broker_is_rolled_with_the_command_given_while_a_producer_writes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = new_topic(cluster, "rolled", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    wishes = tmp_path / "wishes"
    restarter = tmp_path / "restart.py"
    restarter.write_text(RESTARTER)
    wishes.mkdir()
    command = [sys.executable, "-m", "headrace", "cluster", "roll", "--timeout", "100"]
    with (
        VerifyingProducer(cluster.bootstrap, topic, partitions=3) as producer,
        subprocess.Popen(
            [*command, "--command", f"{sys.executable} {restarter} {wishes} {{broker}}"],
            env={**child_environment(), "HEADRACE_BOOTSTRAP": cluster.bootstrap},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as roll,
    ):  # fmt: skip
        last = cluster.controller()
        order = serve_restarts(cluster, wishes, roll)
        out, errors = roll.communicate(timeout=2 * WITHIN_SECONDS)
        assert roll.returncode == 0, out + errors
        assert sorted(order) == [1, 2, 3] and order[-1] == last
        assert out.count("all replicas are in sync") == 3
        producer.wait_for(300)
    assert not producer.failed
    assert not verify(cluster.bootstrap, topic, producer).faults()


RESTARTER = """\
import sys, time
from pathlib import Path
wish = Path(sys.argv[1], sys.argv[2])
wish.touch()
while wish.exists():
    time.sleep(0.05)
"""


def serve_restarts(cluster: LocalCluster, wishes: Path, roll: "subprocess.Popen[str]") -> list[int]:
    """Restarts whom the command asks for, until it has ended; in which order that was."""
    order: list[int] = []

    def has_ended() -> bool:
        for wish in wishes.iterdir():
            number = int(wish.name)
            order.append(number)
            assert cluster.brokers[number].stop() == 0
            cluster.brokers[number].restart()
            wish.unlink()
        return roll.poll() is not None

    eventually(has_ended, "the command to end", within_s=3 * WAIT_SECONDS, state=lambda: f"restarted {order}")
    return order


@pytest.mark.peer
@pytest.mark.skipif(bool(kafka.missing_tools()), reason="needs Apache Kafka's tools")
def test_apache_kafkas_topic_tool_sees_what_lacks_replicas(cluster: LocalCluster, tmp_path: Path) -> None:
    name = f"by-their-tool-{time.monotonic_ns()}"

    def told(*arguments: str) -> str:
        return kafka.run_tool(TOPICS, "--bootstrap-server", cluster.bootstrap, *arguments, logs=tmp_path)

    told("--create", "--topic", name, "--partitions", "2", "--replication-factor", "3")
    assert "ReplicationFactor: 3" in told("--describe", "--topic", name)
    cluster.wait_until_ready()
    assert name not in told("--describe", "--under-replicated-partitions")
    victim = cluster.follower(name)
    cluster.brokers[victim].kill()
    cluster.wait_until_present({1, 2, 3} - {victim})
    eventually(lambda: all(len(each.isr) == 2 for each in partitions(cluster, name)), "ISRs of two")
    lacking = told("--describe", "--under-replicated-partitions")
    assert lacking.count(f"Topic: {name}\t") == 2
    assert name in told("--describe", "--at-min-isr-partitions")
    assert name not in told("--describe", "--unavailable-partitions")
    cluster.brokers[victim].restart()
    cluster.wait_until_ready()
    told("--delete", "--topic", name)


def test_the_commands_of_the_page_about_clusters_run(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.wait_until_ready()
    commands = [each.code for each in examples("docs/cluster.md") if each.note == "in a cluster"]
    assert len(commands) == 2
    for each in commands:
        run_example(["bash", "-euo", "pipefail", "-c", each], tmp_path, cluster.bootstrap)


# a cluster of its own: drained, and with metrics


@pytest.fixture
def measured(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[LocalCluster]:
    """Three brokers that tell their metrics; leaders stay where they are put."""
    settings = {**FAST_SESSIONS, "auto.leader.rebalance.enable": "false"}
    chroot = zookeeper.chroot("measured")
    cluster = LocalCluster(tmp_path_factory.mktemp("measured"), chroot, settings=settings)
    for server, port in zip(cluster.brokers.values(), free_ports(3), strict=True):
        server.settings["headrace.metrics.listen"] = f"127.0.0.1:{port}"
    with cluster:
        cluster.wait_until_ready()
        yield cluster
        if getattr(request.node, "failed", False):
            print(cluster.logs())


def metric(cluster: LocalCluster, broker: int, name: str) -> float:
    """One that has no labels."""
    address = cluster.brokers[broker].settings["headrace.metrics.listen"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WITHIN_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def total(cluster: LocalCluster, name: str, brokers: tuple[int, ...] = (1, 2, 3)) -> float:
    """The sum over brokers."""
    return sum(metric(cluster, each, name) for each in brokers)


def test_metrics_say_what_a_lost_broker_did_and_it_is_drained(measured: LocalCluster) -> None:
    cluster = measured
    three = new_topic(cluster, "three", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    strict = f"strict-{time.monotonic_ns()}"
    with cluster.admin() as admin:
        admin.create_topic(strict, 3, 3, {"min.insync.replicas": "3"})
    cluster.wait_until_ready()
    assert total(cluster, f"{MANAGER}_leadercount") == 6
    assert total(cluster, f"{MANAGER}_underreplicatedpartitions") == 0
    assert total(cluster, f"{CONTROLLER}_activecontrollercount") == 1
    controller = cluster.controller()
    assert metric(cluster, controller, f"{CONTROLLER}_activecontrollercount") == 1
    assert metric(cluster, controller, f"{CONTROLLER}_preferredreplicaimbalancecount") == 0
    victim = min({1, 2, 3} - {controller})
    left = tuple(sorted({1, 2, 3} - {victim}))
    new_topic(cluster, "alone", [victim])
    cluster.brokers[victim].kill()
    cluster.wait_until_present(left)
    eventually(
        lambda: total(cluster, f"{MANAGER}_underreplicatedpartitions", left) == 6, "six partitions lack a replica"
    )
    eventually(lambda: total(cluster, f"{MANAGER}_leadercount", left) == 6, "the two lead all six")
    assert total(cluster, f"{MANAGER}_underminisrpartitioncount", left) == 3
    assert metric(cluster, controller, f"{CONTROLLER}_offlinepartitionscount") == 1
    assert metric(cluster, controller, f"{CONTROLLER}_preferredreplicaimbalancecount") >= 2
    cluster.brokers[victim].restart()
    cluster.wait_until_ready()
    eventually(lambda: total(cluster, f"{MANAGER}_underreplicatedpartitions") == 0, "nothing lacks a replica")
    assert total(cluster, f"{MANAGER}_isrexpands_total") >= 6
    assert metric(cluster, controller, f"{CONTROLLER}_offlinepartitionscount") == 0
    drain_it(cluster, three, victim)


def drain_it(cluster: LocalCluster, topic: str, broker: int) -> None:
    """Topics of three replicas cannot leave one of three brokers; those of fewer can."""
    done = run(cluster, "drain", str(broker))
    assert done.returncode == 2 and "3 replicas" in done.stderr
    said(cluster, "reassign", *cluster.view().topics, "--replicas", "2")
    with VerifyingProducer(cluster.bootstrap, topic, partitions=3) as producer:
        producer.wait_for(300)
        said(cluster, "drain", str(broker))
        producer.wait_for(300)
    rows: list[dict[str, Any]] = json.loads(said(cluster, "brokers", "--json"))
    (row,) = [each for each in rows if each["broker"] == broker]
    assert row["replicas"] == row["leaders"] == 0
    assert cluster.brokers[broker].stop() == 0
    cluster.wait_until_present({1, 2, 3} - {broker})
    assert said(cluster, "status").splitlines()[0].endswith(": ready")
    assert not producer.failed
    assert not verify(cluster.bootstrap, topic, producer).faults()
