"""The broker's ear for the controller: one function for LeaderAndIsr, UpdateMetadata and StopReplica.

The handlers of the wire call it, and so does the controller when it is in the same process; there is no other way
for a partition to get a leader. Requests are taken one at a time.

    older controller epoch than heard before            STALE_CONTROLLER_EPOCH
    meant for an earlier registration of this broker    STALE_BROKER_EPOCH
"""

import asyncio

from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.peer_book import PeerBook
from headrace.broker.replica_manager import ReplicaManager
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.requests import ControlRequest, ControlResponse
from headrace.errors import ErrorCode
from headrace.protocol import messages as m

NO_BROKER_EPOCH = -1


class ControlPlane:
    """Applies what the controller says to this broker. `broker_epoch` is that of its registration."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        configs: TopicConfigs,
        book: PeerBook | None = None,
        *,
        broker_epoch: int,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._configs = configs
        self._book = book or PeerBook(metadata, "")
        self._controller_epoch = 0
        self._lock = asyncio.Lock()
        self.broker_epoch = broker_epoch
        self.is_known = False
        """Whether a controller has spoken to a registration of this process: it has then judged how that came back."""

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """The answer to one request of the controller."""
        async with self._lock:
            refusal = self._check(request)
            if isinstance(request, m.LeaderAndIsrRequest):
                if refusal:
                    return m.LeaderAndIsrResponse(error_code=refusal)
                self._book.note(request.live_leaders)
                await self._configs.ensure_loaded(topic.topic_name for topic in request.topic_states)
                await self._replicas.make_logs(request)
                return self._replicas.apply_leader_and_isr(request)
            if isinstance(request, m.StopReplicaRequest):
                if refusal:
                    return m.StopReplicaResponse(error_code=refusal)
                return self._replicas.apply_stop_replica(request)
            if not refusal:
                self._book.forget()
                for name in self._metadata.apply(request):
                    self._configs.forget(name)
            return m.UpdateMetadataResponse(error_code=refusal)

    def _check(self, request: ControlRequest) -> ErrorCode:
        if request.controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if NO_BROKER_EPOCH != request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self._controller_epoch = request.controller_epoch
        self.is_known = self.is_known or request.broker_epoch == self.broker_epoch
        return ErrorCode.NONE
