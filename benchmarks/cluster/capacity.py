"""Measures the cost of an idle partition in ZooKeeper, the controller and the brokers, and computes that of many.

The cluster has three brokers and one ZooKeeper on this machine, and partitions of three replicas. The figures are
differences between a cluster with partitions and one without, per partition or per replica:

    zookeeper       nodes and bytes of the metadata store, resident memory of its server
    create          seconds until all brokers know the partitions, requested 500 at a time
    broker          resident memory, and processor time without producers: followers fetch, and sessions are kept alive
    restart         seconds to stop cleanly, to be ready again, and until all replicas are in sync
    controller      seconds from the end of a controller until another has loaded the cluster and notified all brokers
    requests        bytes of UpdateMetadata and LeaderAndIsr in their newest versions

Prints one object, with the computed cost for `--target-brokers` and `--target-partitions`.

    python benchmarks/cluster/capacity.py [--partitions 3000] [--seconds 10]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
from kazoo.client import KazooClient

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.client.operations.admin import NewTopic
from headrace.client.operations.health import health_of
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from tests.cluster.local_cluster import LocalCluster
from tests.zookeeper_server import ZooKeeperServer, missing_tools

PARTITIONS_OF_A_TOPIC = 100
TOPICS_AT_ONCE = 5
REPLICAS = 3
PATIENCE_SECONDS = 600


def measure(directory: Path, partitions: int, seconds: float) -> dict[str, object]:
    """Measure all figures of one run."""
    with (
        ZooKeeperServer(directory / "zookeeper", options=("-Xmx512m",)) as zookeeper,
        LocalCluster(directory / "brokers", zookeeper.address) as cluster,
    ):
        cluster.wait_until_ready()
        assert zookeeper.process is not None
        eyes = KazooClient(zookeeper.address)
        eyes.start()
        before, idle_before = Costs(cluster, zookeeper, eyes), idle(cluster, seconds)
        began = time.perf_counter()
        with cluster.admin() as admin:
            names = [f"topic-{number:05}" for number in range(partitions // PARTITIONS_OF_A_TOPIC)]
            for first in range(0, len(names), TOPICS_AT_ONCE):
                wanted = names[first : first + TOPICS_AT_ONCE]
                admin.create_topics([NewTopic(name, PARTITIONS_OF_A_TOPIC, REPLICAS, {}) for name in wanted])
        until_ready(cluster)
        created_s = time.perf_counter() - began
        time.sleep(seconds)
        after, idle_after = Costs(cluster, zookeeper, eyes), idle(cluster, seconds)
        stopped, started, in_sync = restart(cluster)
        controller_s = kill_controller(cluster, eyes)
        eyes.stop()
        eyes.close()
        replicas = partitions * REPLICAS / len(cluster.brokers)  # of one broker
        return {
            "partitions": partitions,
            "replicas": REPLICAS,
            "brokers": len(cluster.brokers),
            "zookeeper_nodes_per_partition": round((after.nodes - before.nodes) / partitions, 2),
            "zookeeper_bytes_per_partition": round((after.data - before.data) / partitions),
            "zookeeper_resident_mib": [round(before.zookeeper_mib), round(after.zookeeper_mib)],
            "create_ms_per_partition": round(created_s / partitions * 1000, 2),
            "broker_resident_mib": [round(before.broker_mib, 1), round(after.broker_mib, 1)],
            "broker_kib_per_replica": round((after.broker_mib - before.broker_mib) * 1024 / replicas, 2),
            "broker_open_files": [before.files, after.files],
            "broker_idle_cores": [round(idle_before, 4), round(idle_after, 4)],
            "broker_idle_cores_per_1000_replicas": round((idle_after - idle_before) / replicas * 1000, 5),
            "clean_stop_s": round(stopped, 2),
            "start_until_ready_s": round(started, 2),
            "restart_until_in_sync_s": round(in_sync, 2),
            "controller_killed_until_everybody_knows_s": round(controller_s, 2),
            **request_bytes(),
        }


class Costs:
    """The current costs. The figures of brokers are means."""

    def __init__(self, cluster: LocalCluster, zookeeper: ZooKeeperServer, eyes: KazooClient) -> None:
        said = dict(line.split("\t", 1) for line in zookeeper.ask("mntr").splitlines() if "\t" in line)
        self.nodes, self.data = int(said["zk_znode_count"]), int(said["zk_approximate_data_size"])
        assert zookeeper.process is not None
        self.zookeeper_mib = psutil.Process(zookeeper.process.pid).memory_info().rss / 2**20
        brokers = [psutil.Process(cluster.pid(number)) for number in cluster.brokers]
        self.broker_mib = sum(each.memory_info().rss for each in brokers) / len(brokers) / 2**20
        self.files = max(each.num_fds() for each in brokers)


def idle(cluster: LocalCluster, seconds: float) -> float:
    """The processor seconds per second of a broker, on average, without clients."""

    def spent() -> float:
        times = [psutil.Process(cluster.pid(number)).cpu_times() for number in cluster.brokers]
        return sum(each.user + each.system for each in times)

    before, began = spent(), time.perf_counter()
    time.sleep(seconds)
    return (spent() - before) / (time.perf_counter() - began) / len(cluster.brokers)


def until_ready(cluster: LocalCluster) -> None:
    """As `LocalCluster.wait_until_ready`, with a longer timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            view = cluster.view()
            if len(view.brokers) == len(cluster.brokers) and health_of(view, {}).is_ready:
                return
        except KafkaError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"not in sync after {PATIENCE_SECONDS} s\n{cluster.logs()}")


def restart(cluster: LocalCluster) -> tuple[float, float, float]:
    """Seconds for a broker that is not controller: to end, to be ready, and from SIGTERM until all are in sync."""
    number = next(each for each in cluster.brokers if each != cluster.controller())
    began = time.perf_counter()
    cluster.brokers[number].stop()
    ended = time.perf_counter()
    cluster.brokers[number].restart()
    ready = time.perf_counter()
    until_ready(cluster)
    return ended - began, ready - ended, time.perf_counter() - began


def kill_controller(cluster: LocalCluster, eyes: KazooClient) -> float:
    """Seconds from the end of the controller's registration until no partition is led by it any more."""
    number = cluster.controller()
    cluster.brokers[number].kill()
    while eyes.exists(f"/brokers/ids/{number}") and number_of_controller(eyes) == number:
        time.sleep(0.02)
    began = time.perf_counter()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            view = cluster.view()
            leaders = {info.leader for topic in view.topics.values() for info in topic.partitions}
            if number not in leaders and -1 not in leaders:
                return time.perf_counter() - began
        except KafkaError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"no other leaders after {PATIENCE_SECONDS} s\n{cluster.logs()}")


def number_of_controller(eyes: KazooClient) -> int:
    """The controller's broker id in the metadata store; -1 if there is none."""
    if not eyes.exists("/controller"):
        return -1
    return int(json.loads(eyes.get("/controller")[0])["brokerid"])


def request_bytes(count: int = 1000) -> dict[str, object]:
    """The bytes of a partition with three replicas in the controller's requests."""
    brokers = list(range(REPLICAS))
    metadata = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    leadership = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    told = m.UpdateMetadataRequest(
        topic_states=[
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name="topic-00000",
                partition_states=[
                    metadata(partition_index=each, isr=brokers, replicas=brokers) for each in range(count)
                ],
            )
        ]
    )
    led = m.LeaderAndIsrRequest(
        topic_states=[
            m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name="topic-00000",
                partition_states=[
                    leadership(partition_index=each, isr=brokers, replicas=brokers) for each in range(count)
                ],
            )
        ]
    )
    return {
        "update_metadata_bytes_per_partition": round(len(told.encode(told.VERSIONS[-1])) / count),
        "leader_and_isr_bytes_per_partition": round(len(led.encode(led.VERSIONS[-1])) / count),
    }


def target(found: dict[str, object], brokers: int, partitions: int) -> dict[str, object]:
    """The computed cost of the target cluster."""

    def figure(name: str) -> float:
        value = found[name]
        assert isinstance(value, int | float)
        return float(value)

    replicas = partitions * REPLICAS / brokers
    everything = partitions * figure("update_metadata_bytes_per_partition")
    resident = found["broker_resident_mib"]
    assert isinstance(resident, list)
    return {
        "brokers": brokers,
        "partitions": partitions,
        "replicas_per_broker": round(replicas),
        "zookeeper_nodes": round(partitions * figure("zookeeper_nodes_per_partition")),
        "zookeeper_data_mib": round(partitions * figure("zookeeper_bytes_per_partition") / 2**20),
        "broker_resident_mib": round(resident[0] + replicas * figure("broker_kib_per_replica") / 1024),
        "broker_idle_cores": round(
            found["broker_idle_cores"][0]  # type: ignore[index]
            + replicas / 1000 * figure("broker_idle_cores_per_1000_replicas"),
            3,
        ),
        "whole_metadata_mib_per_broker": round(everything / 2**20, 1),
        "whole_metadata_mib_to_all": round(everything * brokers / 2**20),
        "partitions_of_a_broker_that_fails": round(replicas),
    }


def main() -> None:
    """Measures, and computes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--target-brokers", type=int, default=200)
    parser.add_argument("--target-partitions", type=int, default=200_000)
    arguments = parser.parse_args()
    if reason := missing_tools():
        raise SystemExit(f"ZooKeeper {reason}")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), arguments.partitions, arguments.seconds)
    computed = target(found, arguments.target_brokers, arguments.target_partitions)
    loads = {"load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1)}
    print(json.dumps({"measured": {**found, **loads}, "computed": computed}, indent=1))


if __name__ == "__main__":
    main()
