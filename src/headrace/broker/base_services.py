"""The services of a broker that all others build on."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from headrace.broker.cluster.control_plane import ControlPlane
from headrace.broker.environment import Environment
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.request.purgatory import Purgatory
from headrace.broker.storage import Storage
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.registration import Registration as BrokerRegistration
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.network.peers.peers import Peers
from headrace.types import BrokerId


class BaseServices(NamedTuple):
    """What the builders of the other services are given."""

    config: BrokerConfig
    storage: Storage
    registration: BrokerRegistration
    environment: Environment
    loop: asyncio.AbstractEventLoop
    broker_id: BrokerId
    purgatory: Purgatory
    metadata: MetadataCache
    replicas: ReplicaManager
    addresses: BrokerAddresses
    control: ControlPlane
    peers: Peers
    controller: Controller

    @property
    def is_alone(self) -> bool:
        """Whether the broker is a cluster of its own."""
        return not self.config.zookeeper_connect
