"""Applies the controller's requests to this broker: LeaderAndIsr, UpdateMetadata and StopReplica.

The handlers call it for requests over the network, and the controller calls it directly when it is in the same process.
No other code gives a partition a leader. Requests are applied one at a time: while one waits for the disk, or for the
next turn of the event loop, a later one must not overtake it. A request of many partitions is applied in slices, and
answered after the last one. In between, a partition is as before the request or after it, and the metadata is as before
it. If this broker is fenced, or registers again, the rest of the request is void.

    an older controller epoch than the last one             STALE_CONTROLLER_EPOCH
    a request for an earlier registration of this broker,
    or for one that was fenced                              STALE_BROKER_EPOCH
"""

import asyncio
from collections.abc import Callable
from functools import partial

from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.controller.decisions.control_requests import ControlRequest, ControlResponse
from headrace.errors import ErrorCode
from headrace.in_slices import in_turns
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import NO_UUID
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.store import SessionLost
from headrace.network.peers.broker_addresses import BrokerAddresses
from headrace.protocol import messages as m
from headrace.rare_collections import ALLOCATIONS_OF_REQUESTS, rare_collections

NO_BROKER_EPOCH = -1
MANY_PARTITIONS = 1000
"""In a request: the garbage collector would look at them again and again while they are applied."""


class ControlPlane:
    """Applies the controller's requests to this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        configs: TopicConfigs,
        addresses: BrokerAddresses | None = None,
        *,
        broker_epoch: Callable[[], int],
        on_seen: Callable[[], None] = lambda: None,
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's registration. `on_seen` is called for each request that a
        controller sends to this registration: that controller has then evaluated whether the last stop was clean."""
        self._replicas = replicas
        self._metadata = metadata
        self._configs = configs
        self._addresses = addresses or BrokerAddresses(metadata, "")
        self._controller_epoch = 0
        self._lock = asyncio.Lock()
        self._broker_epoch, self._on_seen = broker_epoch, on_seen
        self._seen_epoch = self._fenced_epoch = NO_BROKER_EPOCH
        metadata.on_change(self._on_metadata)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._broker_epoch()

    @property
    def is_reached(self) -> bool:
        """Whether a controller has sent a request to the current registration."""
        return self._fenced_epoch < self._seen_epoch == self._broker_epoch()

    def refuse_fenced(self) -> None:
        """Refuses the requests for the current registration from now on, because the controller has fenced it. A
        request that is still under way is older, and might let this broker lead again."""
        self._fenced_epoch = self._broker_epoch()

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """Applies one request of the controller; returns the response."""
        async with self._lock:
            if sum(len(topic.partition_states) for topic in request.topic_states) < MANY_PARTITIONS:
                return await self._apply(request)
            with rare_collections(ALLOCATIONS_OF_REQUESTS):
                return await self._apply(request)

    async def _apply(self, request: ControlRequest) -> ControlResponse:
        refusal = self._check(request)
        if isinstance(request, m.LeaderAndIsrRequest):
            if refusal:
                return m.LeaderAndIsrResponse(error_code=refusal)
            self._addresses.note(request.live_leaders)
            try:
                await self._load_configs(request)
            except SessionLost:  # the metadata store is closed: this broker is shutting down
                return m.LeaderAndIsrResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
            await self._replicas.make_logs(request)
            return await self._replicas.apply_leader_and_isr(request, partial(self._refusal, request))
        if isinstance(request, m.StopReplicaRequest):
            if refusal:
                return m.StopReplicaResponse(error_code=refusal)
            return await self._replicas.apply_stop_replica(request)
        if not refusal and await in_turns(self._metadata.applying(request, partial(self._begin, request))) is None:
            refusal = self._refusal(request)
        return m.UpdateMetadataResponse(error_code=refusal)

    def _begin(self, request: m.UpdateMetadataRequest) -> bool:
        """Whether an UpdateMetadata is still to be applied, now that the next snapshot is made of it."""
        if self._refusal(request):
            return False
        self._addresses.forget()
        return True

    def _on_metadata(self, delta: MetadataDelta) -> None:
        """Drops the settings of deleted topics. If a topic of the same name was created since and has a replica here,
        LeaderAndIsr has loaded the new topic's settings already; those are kept."""
        kept = {topic.name for topic in delta.topics_created if topic.id in self._replicas.names_by_id}
        for name in delta.names_deleted - kept:
            self._configs.forget(name)

    async def _load_configs(self, request: m.LeaderAndIsrRequest) -> None:
        """Loads the settings of topics that are new to this broker. A topic id that changed means another topic of the
        same name, whose settings are loaded anew."""
        known = self._metadata.topics
        for topic_state in request.topic_states:
            before = known.get(topic_state.topic_name)
            if (
                before is not None
                and NO_UUID not in (before.id, topic_state.topic_id)
                and before.id != topic_state.topic_id
            ):
                await self._configs.load([topic_state.topic_name])
        await self._configs.ensure_loaded(topic.topic_name for topic in request.topic_states)

    def _refusal(self, request: ControlRequest) -> ErrorCode:
        if request.controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if NO_BROKER_EPOCH != request.broker_epoch < max(self._broker_epoch(), self._fenced_epoch + 1):
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    def _check(self, request: ControlRequest) -> ErrorCode:
        """As `_refusal`; notes the sender of a request that is not refused."""
        refusal = self._refusal(request)
        if refusal:
            return refusal
        broker_epoch = self._broker_epoch()
        self._controller_epoch = request.controller_epoch
        if request.broker_epoch in (broker_epoch, NO_BROKER_EPOCH):
            self._seen_epoch = broker_epoch
            self._on_seen()
        return ErrorCode.NONE
