"""The parts of one running broker, as handlers reach them. `app` puts them together."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from headrace.broker.control_plane import ControlPlane
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.broker.group_shell import GroupShell
from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.purgatory import Purgatory
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replica_moves import ReplicaMoves
from headrace.broker.replication import Replication
from headrace.config import BrokerConfig
from headrace.coordination.broker_settings import BrokerSettings
from headrace.coordination.controller import Controller
from headrace.coordination.producer_ids import ProducerIds
from headrace.protocol.apis import ApiKey


@dataclass(slots=True)
class Broker:
    """Everything that a request may need."""

    config: BrokerConfig
    cluster_id: str
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    now_ms: Callable[[], int]
    purgatory: Purgatory
    metadata: MetadataCache
    replicas: ReplicaManager
    moves: ReplicaMoves
    controller: Controller
    groups: GroupShell
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    control: ControlPlane
    replication: Replication
    settings: BrokerSettings
    served: tuple[tuple[ApiKey, range], ...] = ()
    """Each API and the versions that are advertised of it."""

    @property
    def is_alone(self) -> bool:
        """Whether there can be no other broker beside it."""
        return not self.config.zookeeper_connect

    def spawn(self, work: Coroutine[object, object, None]) -> bool:
        """Runs `work` beside the requests; it must not raise. False, and nothing is begun, when the broker is ending
        because a part of it failed."""
        try:
            self.tasks.create_task(work)
        except RuntimeError:  # the task group takes nothing more
            work.close()
            return False
        return True
