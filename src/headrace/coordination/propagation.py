"""Tells the brokers what the controller decided, and waits for their answers.

A broker that cannot be reached is logged and left alone: when it registers anew it is told everything, and until
then the tree holds what it missed.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from headrace.coordination.cluster import ClusterState
from headrace.coordination.log_dir_events import note_answers
from headrace.coordination.model import Broker
from headrace.coordination.requests import ControlRequest, ControlResponse, RequestBuilder
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)


class Send(Protocol):
    """Takes a request to a broker; raises `OSError` or `KafkaError` when it cannot be reached."""

    async def __call__(self, broker_id: BrokerId, request: ControlRequest) -> ControlResponse:
        """The broker's answer."""
        ...


class Propagation:
    """One controller's voice in one epoch."""

    def __init__(self, state: ClusterState, controller_id: BrokerId, controller_epoch: int, send: Send) -> None:
        self._state = state
        self._build = RequestBuilder(state, controller_id, controller_epoch)
        self._send = send

    async def tell(
        self,
        partitions: Sequence[TopicPartition],
        *,
        new: frozenset[TopicPartition] = frozenset(),
        to: Iterable[Broker] | None = None,
    ) -> set[TopicPartition]:
        """Leaders and metadata of these partitions, and the live brokers, to every live broker or to some. Returns
        the partitions that a broker says it can no longer serve, or can again."""
        brokers = self._state.brokers.values() if to is None else to
        changed = await asyncio.gather(*(self._tell_one(broker, partitions, new) for broker in brokers))
        return set[TopicPartition]().union(*changed)

    async def _tell_one(
        self, broker: Broker, partitions: Sequence[TopicPartition], new: frozenset[TopicPartition]
    ) -> set[TopicPartition]:
        changed = set[TopicPartition]()
        lead = [each for each in partitions if each.topic not in self._state.deleting]
        request = self._build.leader_and_isr(broker, lead, new)
        if request is not None:
            response = await self._ask(broker, request)
            if isinstance(response, m.LeaderAndIsrResponse):
                changed = note_answers(self._state, broker.id, response)
        await self._ask(broker, self._build.update_metadata(broker, partitions))
        return changed

    async def delete_replicas(self, partitions: Sequence[TopicPartition]) -> set[str]:
        """Hides and deletes them everywhere; the topics of which some replica is not known to be gone."""
        brokers = list(self._state.brokers.values())
        await asyncio.gather(*(self._ask(each, self._build.update_metadata(each, partitions)) for each in brokers))
        failed = await asyncio.gather(*(self._delete_at(broker, partitions) for broker in brokers))
        remaining = set[str]().union(*failed)
        for name, number in partitions:
            if any(each not in self._state.brokers for each in self._state.topics[name].partitions[number].replicas):
                remaining.add(name)
        return remaining

    async def _delete_at(self, broker: Broker, partitions: Sequence[TopicPartition]) -> set[str]:
        request = self._build.stop_replicas(broker, partitions, delete=True)
        if request is None:
            return set()
        response = await self._ask(broker, request)
        if not isinstance(response, m.StopReplicaResponse) or response.error_code:
            return {partition.topic for partition in partitions}
        gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {each.topic_name for each in response.partition_errors if each.error_code not in gone}

    async def _ask(self, broker: Broker, request: ControlRequest) -> ControlResponse | None:
        try:
            response = await self._send(broker.id, request)
        except (OSError, KafkaError) as error:
            log.warning("broker %d did not take %s: %s", broker.id, type(request).__name__, error)
            return None
        if response.error_code:
            code = ErrorCode(response.error_code).name
            log.warning("broker %d refused %s: %s", broker.id, type(request).__name__, code)
        return response
