"""Measures a controller of many partitions: how long a change takes until all brokers have been told.

The cluster has three brokers or more, and partitions of three replicas, on the embedded metadata store or on a real
ZooKeeper in its own process. First the registration of one broker is deleted; the clock runs until the others have
answered all LeaderAndIsr and UpdateMetadata requests that follow. Then the controller itself changes: it resigns, and
the next one sends the state to all brokers; and it dies with its broker, so that the next one writes a new state of
each partition that the broker had, too. Each request is encoded to bytes, for every broker; neither the sockets nor the
handling by a broker are measured. Reports medians of the rounds with their spread, and the bytes of the requests.

    python benchmarks/coordination/failover.py [--brokers 3] [--partitions 50000] [--topics 500] [--rounds 5]
                                               [--stores embedded zookeeper] [--json]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from headrace.config import TopicConfig
from headrace.controller.controller import Controller, LeaderRebalancing
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.controller.decisions.topics import RequestedTopic, TopicDefaults
from headrace.metadata import znodes
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.model import Broker, Endpoint, PartitionLeadership, Topic
from headrace.metadata.registry import ensure_cluster
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore
from headrace.metastore.zookeeper.connection import Ensemble, open_store
from headrace.protocol import messages as m
from headrace.types import BrokerId
from tests.zookeeper_server import ZooKeeperServer, missing_tools

VICTIM = 2
TIMEOUT_MS = 120_000


def registration(number: int) -> bytes:
    """A registration, as a broker writes it."""
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9090 + number),)
    return znodes.encode_broker(Broker(BrokerId(number), endpoints, directory=f"d{number}"), 0)


class Change(NamedTuple):
    """The seconds of one round, until all live brokers have answered."""

    broker_lost_s: float
    controller_resigned_s: float
    controller_died_s: float
    sent_mib: float  # to all brokers, after the controller resigned


class Brokers:
    """Brokers that count partitions, and answer at once after the request is encoded."""

    def __init__(self, count: int) -> None:
        self.count, self.partitions, self.size = count, 0, 0
        self._answered = asyncio.Event()

    async def until(self, partitions: int) -> None:
        """Returns when the given number of partitions have been led or followed."""
        while self.partitions < partitions:
            self._answered.clear()
            await self._answered.wait()

    async def send(self, broker: Broker, request: ControlRequest) -> ControlResponse:
        """See `channels.Send`."""
        self.size += len(request.encode(type(request).VERSIONS[-1]))
        await asyncio.sleep(0)
        match request:
            case m.LeaderAndIsrRequest():
                self.partitions += sum(len(topic.partition_states) for topic in request.topic_states)
                self._answered.set()
                return m.LeaderAndIsrResponse()
            case m.StopReplicaRequest():
                return m.StopReplicaResponse()
        return m.UpdateMetadataResponse()


def a_controller(store: MetadataStore, broker: int, brokers: Brokers, configs: TopicConfigs) -> Controller:
    """A candidate for controller."""
    return Controller(
        store,
        BrokerId(broker),
        send=brokers.send,
        configs=configs,
        now_ms=lambda: 0,
        defaults=TopicDefaults(),
        random_below=lambda bound: 0,
        rebalancing=LeaderRebalancing(is_enabled=False),
    )


async def failover(store: MetadataStore, count: int, partitions: int, topics: int, rounds: int) -> list[Change]:
    """Measure the rounds with one metadata store."""
    await ensure_cluster(store)
    entities = EntityConfigs(store)
    configs = TopicConfigs(entities, TopicConfig())
    await entities.start()
    brokers = Brokers(count)
    for number in range(1, count + 1):
        await store.create(znodes.broker(number), registration(number), ephemeral=True)
    controller = a_controller(store, 1, brokers, configs)
    await controller.start()
    wishes = [RequestedTopic(f"topic-{number:04}", partitions // topics, 3) for number in range(topics)]
    await controller.create_topics(wishes, timeout_ms=TIMEOUT_MS)
    await controller.settled(timeout_ms=TIMEOUT_MS)
    lost_s = [await _lose(store, controller, brokers) for _ in range(rounds)]
    found, number = [], 1
    for lost in lost_s:
        brokers.size = 0
        controller, number, resigned_s = await _next(store, controller, number, brokers, configs, dies=False)
        sent_mib = brokers.size / (1 << 20)
        controller, number, died_s = await _next(store, controller, number, brokers, configs, dies=True)
        found.append(Change(lost, resigned_s, died_s, sent_mib))
    await controller.close()
    await entities.close()
    return found


async def _lose(store: MetadataStore, controller: Controller, brokers: Brokers) -> float:
    """Seconds from the end of a broker's registration until the others have answered. Then it comes back."""
    at_victim = 0
    async for _, topic, _ in _topics(store):
        at_victim += sum(VICTIM in replicas.replicas for replicas in topic.partitions.values())
    brokers.partitions = 0
    started = time.perf_counter()
    await store.delete(znodes.broker(VICTIM))
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        await brokers.until(2 * at_victim)  # each of these has two replicas elsewhere
    await controller.settled(timeout_ms=TIMEOUT_MS)
    took_s = time.perf_counter() - started
    await _come_back(store, controller)
    return took_s


async def _next(
    store: MetadataStore, controller: Controller, number: int, brokers: Brokers, configs: TopicConfigs, *, dies: bool
) -> tuple[Controller, int, float]:
    """(the next controller, its broker, seconds from its candidacy until all live brokers have answered)."""
    await controller.close()
    await store.delete(znodes.CONTROLLER)
    if dies:
        await store.delete(znodes.broker(number))
    another = a_controller(store, number % brokers.count + 1, brokers, configs)
    started = time.perf_counter()
    await another.start()
    await another.settled(timeout_ms=TIMEOUT_MS)
    took_s = time.perf_counter() - started
    if dies:
        await store.create(znodes.broker(number), registration(number), ephemeral=True)
        await asyncio.sleep(0.2)
        await another.settled(timeout_ms=TIMEOUT_MS)
        await _into_isrs(store, another)
    return another, number % brokers.count + 1, took_s


async def _come_back(store: MetadataStore, controller: Controller) -> None:
    """Bring the broker back into every ISR, and let preferred leaders lead."""
    await store.create(znodes.broker(VICTIM), registration(VICTIM), ephemeral=True)
    await asyncio.sleep(0.2)
    await controller.settled(timeout_ms=TIMEOUT_MS)
    await _into_isrs(store, controller)
    await controller.elect_leaders(None, ElectionKind.PREFERRED, timeout_ms=TIMEOUT_MS)


async def _topics(store: MetadataStore) -> AsyncIterator[tuple[str, Topic, list[PartitionLeadership]]]:
    """Each topic with the states of its partitions."""
    for name in await store.children(znodes.TOPICS):
        topic = znodes.decode_topic(name, (await store.get(znodes.topic(name))).data)
        nodes = await store.get_many([znodes.partition_state(name, number) for number in topic.partitions])
        yield name, topic, [znodes.decode_leadership(node.data, node.version, node.mzxid) for node in nodes if node]


async def _into_isrs(store: MetadataStore, controller: Controller) -> None:
    """Has every leader tell that all replicas are in sync."""
    by_leader: dict[int, list[m.AlterPartitionRequest.TopicData]] = defaultdict(list)
    async for name, topic, states in _topics(store):
        data: dict[int, list[m.AlterPartitionRequest.PartitionData]] = defaultdict(list)
        for (number, replicas), state in zip(topic.partitions.items(), states, strict=True):
            data[state.leader].append(
                m.AlterPartitionRequest.PartitionData(
                    partition_index=number,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                    new_isr=list(replicas.replicas),
                )
            )
        for leader, partitions in data.items():
            by_leader[leader].append(m.AlterPartitionRequest.TopicData(topic_name=name, partitions=partitions))
    for leader, topics in by_leader.items():
        epoch = (await store.get(znodes.broker(leader))).czxid
        request = m.AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, topics=topics)
        answer = await controller.alter_partition(request)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions)


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[MetadataStore]:
    """The metadata store in this process."""
    store = await EmbeddedStore.open(directory)
    yield store
    await store.close()


@asynccontextmanager
async def ensemble(directory: Path) -> AsyncIterator[MetadataStore]:
    """A ZooKeeper in its own process."""
    with ZooKeeperServer(directory, options=("-Xmx512m",)) as server:
        store = await open_store(Ensemble(server.address))
        yield store
        await store.close()


STORES = {"embedded": embedded, "zookeeper": ensemble}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="*", default=["embedded", *([] if missing_tools() else ["zookeeper"])])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    async def measure(kind: str, directory: Path) -> list[Change]:
        async with STORES[kind](directory) as store:
            return await failover(store, options.brokers, options.partitions, options.topics, options.rounds)

    results = {}
    for kind in options.stores:
        with tempfile.TemporaryDirectory() as directory:
            results[kind] = summarise({"headrace": asyncio.run(measure(kind, Path(directory)))})
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
