"""Brokers on paper: registrations in a metadata store, a `send` that remembers and agrees, and one real controller."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.config import TopicConfig
from headrace.controller.controller import Controller, LeaderRebalancing
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.controller.decisions.topics import RequestedTopic, TopicDefaults, TopicOutcome
from headrace.errors import ErrorCode
from headrace.metadata import znodes
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.model import Broker, Endpoint, PartitionLeadership
from headrace.metadata.registry import ensure_cluster, register_broker
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.embedded import EmbeddedStore
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.eventually import eventually_async


def registration(number: int) -> Broker:
    return Broker(BrokerId(number), (Endpoint("PLAINTEXT", f"host{number}", 9092),), f"rack{number}")


@dataclass
class Cluster:
    """One controller, brokers that note what they are told, and the switch that makes one unreachable."""

    store: EmbeddedStore
    configs: TopicConfigs
    told: dict[int, list[ControlRequest]] = field(default_factory=dict)
    unreachable: set[int] = field(default_factory=set)
    failed: dict[int, set[TopicPartition]] = field(default_factory=dict)
    """What a broker has on log directories that failed."""
    can_fence: bool = False

    def __post_init__(self) -> None:
        self.controller = Controller(
            self.store,
            BrokerId(1),
            send=self.send,
            configs=self.configs,
            now_ms=lambda: 0,
            defaults=TopicDefaults(1, 1),
            random_below=lambda n: 0,
            rebalancing=LeaderRebalancing(is_enabled=False),
            can_fence=self.can_fence,
        )

    async def send(self, broker: Broker, request: ControlRequest) -> ControlResponse:
        """Answers as a broker that agrees with everything."""
        if broker.id in self.unreachable:
            raise ConnectionRefusedError(111, "Connection refused")
        self.told.setdefault(broker.id, []).append(request)
        match request:
            case m.LeaderAndIsrRequest():
                return self._led(broker.id, request)
            case m.StopReplicaRequest():
                return m.StopReplicaResponse()
        return m.UpdateMetadataResponse()

    def _led(self, broker: int, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
        failed = self.failed.get(broker, set())
        return m.LeaderAndIsrResponse(
            topics=[
                m.LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                            topic_name=topic.topic_name,
                            partition_index=state.partition_index,
                            error_code=ErrorCode.KAFKA_STORAGE_ERROR
                            if TopicPartition(topic.topic_name, state.partition_index) in failed
                            else ErrorCode.NONE,
                        )
                        for state in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
        )

    async def come(self, number: int, directory: str | None = None) -> None:
        """Registers a broker of headrace that names its data directory, or one of Apache Kafka."""
        await register_broker(self.store, registration(number)._replace(directory=directory), 0)
        await self.settle()

    async def state(self, topic: str, number: int = 0) -> PartitionLeadership:
        """What the metadata store says of a partition."""
        node = await self.store.get(znodes.partition_state(topic, number))
        return znodes.decode_leadership(node.data, node.version, node.mzxid)

    async def until(self, holds: Callable[[], Awaitable[object]]) -> None:
        """Waits until it does; the controller follows watches in its own time."""
        await eventually_async(holds, holds.__name__)
        await self.settle()

    def stopped(self, broker: int) -> list[str]:
        """What a broker was told by StopReplica, as 'topic-partition', with ' deleted' where it was to delete."""
        return [
            f"{topic.topic_name}-{state.partition_index}{' deleted' if state.delete_partition else ''}"
            for request in self.told.get(broker, ())
            if isinstance(request, m.StopReplicaRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        ]

    async def go(self, number: int) -> None:
        await self.store.delete(znodes.broker(number))
        await self.settle()

    async def settle(self) -> None:
        """Waits until the controller has handled every event so far: a wish that waits its turn behind them."""
        for _ in range(2):  # the second time for what the answers brought about
            await self.controller.settled({BrokerId(each) for each in (1, 2, 3) if each not in self.unreachable})

    def forget(self) -> None:
        self.told.clear()

    def led(self, broker: int) -> list[str]:
        """What a broker was told by LeaderAndIsr, as 'topic-partition leader@epoch [isr] replicas'."""
        return [
            f"{topic.topic_name}-{state.partition_index} {state.leader}@{state.leader_epoch} "
            f"{state.isr} {state.replicas}"
            for request in self.told.get(broker, ())
            if isinstance(request, m.LeaderAndIsrRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        ]

    def metadata(self, broker: int) -> m.UpdateMetadataRequest:
        """The last UpdateMetadata of a broker."""
        return [each for each in self.told[broker] if isinstance(each, m.UpdateMetadataRequest)][-1]


@asynccontextmanager
async def cluster_in(directory: Path, *, can_fence: bool = False) -> AsyncIterator[Cluster]:
    """Three brokers, and what they were told at the start forgotten."""
    store = await EmbeddedStore.open(directory)
    await ensure_cluster(store)
    configs = TopicConfigs(EntityConfigs(store), TopicConfig())
    await configs.entities.start()
    started = Cluster(store, configs, can_fence=can_fence)
    for number in (1, 2, 3):
        await register_broker(store, registration(number), 0)
    await started.controller.start()
    await started.settle()
    started.forget()
    try:
        yield started
    finally:
        await started.controller.close()
        await configs.entities.close()
        await store.close()


async def create(cluster: Cluster, name: str, assignment: dict[int, tuple[int, ...]], **configs: str) -> None:
    assignments = {number: tuple(BrokerId(each) for each in replicas) for number, replicas in assignment.items()}
    wish = RequestedTopic(name, assignments=assignments, configs={k.replace("_", "."): v for k, v in configs.items()})
    outcome = (await cluster.controller.create_topics([wish]))[name]
    assert isinstance(outcome, TopicOutcome), outcome
