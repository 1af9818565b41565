"""What the end of a broker's session costs a controller that knows ten thousand partitions.

Three brokers, partitions of three replicas each, on a tree: the embedded one, or a real ZooKeeper in a process of its
own. Broker 2's registration is deleted; the clock runs from there until the other two have answered every LeaderAndIsr
and UpdateMetadata that follows, each encoded to bytes as for the wire (what a broker does with them is not in it).
Also told: until the tree says so of every partition; and the take-over of a second controller when the first goes.
Prints one object. Usage: python benchmarks/coordination/failover.py [--partitions 10000] [--topics 100] [--rounds 5]
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.config import TopicConfig
from headrace.coordination import paths
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.controller import Controller, Rebalancing
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.model import Broker, Endpoint
from headrace.coordination.preferred import ElectionKind
from headrace.coordination.registry import ensure_cluster
from headrace.coordination.requests import ControlRequest, ControlResponse
from headrace.coordination.topics import NewTopic, TopicDefaults
from headrace.coordination.tree import Tree
from headrace.coordination.zookeeper import Ensemble, open_tree
from headrace.protocol import messages as m
from headrace.types import BrokerId
from tests.zookeeper_server import ZooKeeperServer, missing_tools

VICTIM = 2
TIMEOUT_MS = 120_000


def registration(number: int) -> bytes:
    """As a broker writes it."""
    return paths.encode_broker(Broker(BrokerId(number), (Endpoint("PLAINTEXT", "127.0.0.1", 9090 + number),)), 0)


class Brokers:
    """They answer at once, when the request has been encoded; and count."""

    def __init__(self) -> None:
        self.partitions = 0
        self.bytes = 0
        self._answered = asyncio.Event()

    async def until(self, partitions: int) -> None:
        """Returns when so many partitions have been led or followed."""
        while self.partitions < partitions:
            self._answered.clear()
            await self._answered.wait()

    async def send(self, broker: Broker, request: ControlRequest) -> ControlResponse:
        """See `channels.Send`."""
        self.bytes += len(request.encode(type(request).VERSIONS[-1]))
        await asyncio.sleep(0)
        match request:
            case m.LeaderAndIsrRequest():
                self.partitions += sum(len(topic.partition_states) for topic in request.topic_states)
                self._answered.set()
                return m.LeaderAndIsrResponse()
            case m.StopReplicaRequest():
                return m.StopReplicaResponse()
        return m.UpdateMetadataResponse()


def a_controller(tree: Tree, broker: int, brokers: Brokers, configs: TopicConfigs) -> Controller:
    """A candidate."""
    return Controller(
        tree,
        BrokerId(broker),
        send=brokers.send,
        configs=configs,
        now_ms=lambda: 0,
        defaults=TopicDefaults(),
        random_below=lambda bound: 0,
        rebalancing=Rebalancing(is_enabled=False),
    )


async def failover(tree: Tree, partitions: int, topics: int, rounds: int) -> dict[str, object]:
    """One tree's figures."""
    await ensure_cluster(tree)
    configs = TopicConfigs(tree, TopicConfig())
    await configs.start()
    for number in (1, VICTIM, 3):
        await tree.create(paths.broker(number), registration(number), ephemeral=True)
    brokers = Brokers()
    controller = a_controller(tree, 1, brokers, configs)
    await controller.start()
    wishes = [NewTopic(f"topic-{number:04}", partitions // topics, 3) for number in range(topics)]
    started = time.perf_counter()
    await controller.create_topics(wishes, timeout_ms=TIMEOUT_MS)
    await controller.settled(timeout_ms=TIMEOUT_MS)
    made_s = time.perf_counter() - started
    told_s, partitions_told, bytes_told = [], 0, 0
    for _ in range(rounds):
        brokers.partitions = brokers.bytes = 0
        busy = time.process_time()
        started = time.perf_counter()
        await tree.delete(paths.broker(VICTIM))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await brokers.until(2 * partitions)  # each has a replica at the victim, and two elsewhere
        await controller.settled(timeout_ms=TIMEOUT_MS)
        told_s.append((time.perf_counter() - started, time.process_time() - busy))
        partitions_told, bytes_told = brokers.partitions, brokers.bytes
        await _come_back(tree, controller, partitions)
    await controller.close()
    await tree.delete(paths.CONTROLLER)
    started = time.perf_counter()
    other = a_controller(tree, 3, brokers, configs)
    await other.start()
    await other.settled(timeout_ms=TIMEOUT_MS)
    taken_over_s = time.perf_counter() - started
    await other.close()
    await configs.close()
    walls, cpus = zip(*told_s, strict=True)
    return {
        "create_s": round(made_s, 2),
        "failover_s": [round(each, 3) for each in walls],
        "failover_median_s": round(statistics.median(walls), 3),
        "failover_processor_s": [round(each, 3) for each in cpus],
        "leader_and_isr_partitions": partitions_told,
        "request_bytes": bytes_told,
        "controller_take_over_s": round(taken_over_s, 3),
    }


async def _come_back(tree: Tree, controller: Controller, partitions: int) -> None:
    """The victim is back, in every ISR, and preferred leaders lead."""
    await tree.create(paths.broker(VICTIM), registration(VICTIM), ephemeral=True)
    await asyncio.sleep(0.2)
    await controller.settled(timeout_ms=TIMEOUT_MS)
    await _into_isrs(tree, controller)
    await controller.elect_leaders(None, ElectionKind.PREFERRED, timeout_ms=TIMEOUT_MS)


async def _into_isrs(tree: Tree, controller: Controller) -> None:
    for leader in (1, 3):
        epoch = (await tree.get(paths.broker(leader))).czxid
        request = m.AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, topics=[])
        for name in await tree.children(paths.TOPICS):
            topic = paths.decode_topic(name, (await tree.get(paths.topic(name))).data)
            numbers = list(topic.partitions)
            nodes = await tree.get_many([paths.partition_state(name, number) for number in numbers])
            data = []
            for number, node in zip(numbers, nodes, strict=True):
                assert node is not None
                state = paths.decode_leadership(node.data, node.version, node.mzxid)
                if state.leader == leader:
                    data.append(
                        m.AlterPartitionRequest.PartitionData(
                            partition_index=number,
                            leader_epoch=state.leader_epoch,
                            partition_epoch=state.partition_epoch,
                            new_isr=list(topic.partitions[number].replicas),
                        )
                    )
            request.topics.append(m.AlterPartitionRequest.TopicData(topic_name=name, partitions=data))
        answer = await controller.alter_partition(request)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions)


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[Tree]:
    """The tree in this process."""
    tree = await EmbeddedTree.open(directory)
    yield tree
    await tree.close()


@asynccontextmanager
async def ensemble(directory: Path) -> AsyncIterator[Tree]:
    """A server of its own."""
    with ZooKeeperServer(directory) as server:
        tree = await open_tree(Ensemble(server.address))
        yield tree
        await tree.close()


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trees", nargs="*", default=["embedded", *([] if missing_tools() else ["zookeeper"])])
    arguments = parser.parse_args()
    load = os.getloadavg()[0]

    async def measure(kind: str, directory: Path) -> dict[str, object]:
        async with (embedded if kind == "embedded" else ensemble)(directory) as tree:
            return await failover(tree, arguments.partitions, arguments.topics, arguments.rounds)

    found: dict[str, object] = {"partitions": arguments.partitions, "topics": arguments.topics, "replicas": 3}
    for kind in arguments.trees:
        with tempfile.TemporaryDirectory() as directory:
            found[kind] = asyncio.run(measure(kind, Path(directory)))
    print(json.dumps({**found, "load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1)}, indent=2))


if __name__ == "__main__":
    main()
