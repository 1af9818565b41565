"""A broker as far as the controller sees it: the real tree, logs, replica manager and metadata, in one process."""

from dataclasses import dataclass
from pathlib import Path

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.config import TopicConfig
from headrace.controller.controller import Controller
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.controller.decisions.topics import TopicDefaults
from headrace.log.manager import LogManager
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker, Endpoint
from headrace.metadata.registry import ensure_cluster, register_broker
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.embedded import EmbeddedStore
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.types import BrokerId, TopicPartition

BROKER = Broker(BrokerId(0), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))


@dataclass
class Node:
    """The parts, as the broker's app puts them together."""

    store: EmbeddedStore
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
        """Opens the data directory and becomes the controller."""
        store = await EmbeddedStore.open(directory)
        cluster_id = await ensure_cluster(store)
        configs = TopicConfigs(EntityConfigs(store), TopicConfig())
        await configs.entities.start()
        logs = LogManager([directory], broker_id=0, topic_config=configs.get)
        logs.directories.claim(cluster_id)
        logs.load(0)
        metadata = MetadataCache()
        touched: list[TopicPartition] = []
        sent: list[ControlRequest] = []
        replicas = ReplicaManager(BROKER.id, logs, metadata, configs, now_ms=lambda: 0, touch=touched.append)
        registered = await register_broker(store, BROKER, now_ms=0)
        control = ControlPlane(
            replicas, metadata, configs, BrokerAddresses(metadata, ""), broker_epoch=lambda: registered.epoch
        )

        async def send(broker: Broker, request: ControlRequest) -> ControlResponse:
            assert broker.id == BROKER.id
            sent.append(request)
            return await control.handle(request)

        controller = Controller(
            store,
            BROKER.id,
            send=send,
            configs=configs,
            now_ms=lambda: 0,
            defaults=TopicDefaults(),
            delete_enabled=delete_enabled,
            random_below=lambda n: 0,
        )
        await controller.start()
        return cls(store, cluster_id, configs, logs, metadata, replicas, control, controller, touched, sent)

    async def close(self) -> None:
        """A clean stop."""
        await self.controller.close()
        await self.configs.entities.close()
        self.logs.close(0)
        await self.store.close()
