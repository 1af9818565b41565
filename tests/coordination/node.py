"""A broker as far as the controller sees it: the real tree, logs, replica manager and metadata, in one process."""

from dataclasses import dataclass
from pathlib import Path

from headrace.broker.control_plane import ControlPlane
from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.peer_book import PeerBook
from headrace.broker.replica_manager import ReplicaManager
from headrace.config import TopicConfig
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.controller import Controller
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.model import Broker, Endpoint
from headrace.coordination.registry import ensure_cluster, register_broker
from headrace.coordination.requests import ControlRequest, ControlResponse
from headrace.coordination.topics import TopicDefaults
from headrace.log.manager import LogManager
from headrace.types import BrokerId, TopicPartition

BROKER = Broker(BrokerId(0), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))


@dataclass
class Node:
    """The parts, as the broker's app puts them together."""

    tree: EmbeddedTree
    cluster_id: str
    configs: TopicConfigs
    logs: LogManager
    metadata: MetadataCache
    replicas: ReplicaManager
    control: ControlPlane
    controller: Controller
    touched: list[TopicPartition]
    sent: list[ControlRequest]

    @classmethod
    async def start(cls, directory: Path, *, delete_enabled: bool = True) -> "Node":
        """Opens the data directory and takes office."""
        tree = await EmbeddedTree.open(directory)
        cluster_id = await ensure_cluster(tree)
        configs = TopicConfigs(tree, TopicConfig())
        await configs.start()
        logs = LogManager([directory], broker_id=0, topic_config=configs.get)
        logs.claim(cluster_id)
        logs.load(0)
        metadata = MetadataCache()
        touched: list[TopicPartition] = []
        sent: list[ControlRequest] = []
        replicas = ReplicaManager(BROKER.id, logs, metadata, configs, now_ms=lambda: 0, touch=touched.append)
        broker = await register_broker(tree, BROKER, now_ms=0)
        control = ControlPlane(replicas, metadata, configs, PeerBook(metadata, ""), broker_epoch=broker.epoch)

        async def send(to: Broker, request: ControlRequest) -> ControlResponse:
            assert to.id == BROKER.id
            sent.append(request)
            return await control.handle(request)

        controller = Controller(
            tree,
            BROKER.id,
            send=send,
            configs=configs,
            now_ms=lambda: 0,
            defaults=TopicDefaults(),
            delete_enabled=delete_enabled,
            random_below=lambda n: 0,
        )
        await controller.start()
        return cls(tree, cluster_id, configs, logs, metadata, replicas, control, controller, touched, sent)

    async def close(self) -> None:
        """A clean stop."""
        await self.controller.close()
        await self.configs.close()
        self.logs.close(0)
        await self.tree.close()
