"""The controller's channel to each live broker: queues control requests and repeats each until the broker answers.

    add       collects LeaderAndIsr, UpdateMetadata and StopReplica states of partitions in a batch
    merge     while a broker is slow, later states overwrite earlier ones in the waiting batch, so the newest state of
              each partition is sent once; a replica that must be deleted and then created again starts a new batch
    send      sends the batch's LeaderAndIsr, in several requests if it has many partitions and the broker is one of
              headrace, then UpdateMetadata and StopReplica, each repeated with growing pauses until answered; sends
              the live brokers first if the batch names a leader whose registration this broker does not know, because
              Apache Kafka's brokers do not follow a broker that they do not know
    close     drops what waits, because the broker's registration is gone or the controller epoch is over

Only callers that await a batch's `answered` wait for a slow broker. Source: Kafka's `ControllerChannelManager`, which
keeps one request per event in an unbounded queue; a channel here holds at most two states per partition.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.controller.decisions.control_requests import (
    ControllerIdentity,
    ControlRequest,
    ControlResponse,
    leader_and_isr,
    leaders_in,
    stop_replicas,
    update_metadata,
)
from headrace.controller.decisions.partition_states import LeaderState, MetadataState, in_parts, leader_state
from headrace.errors import KafkaError, known_code
from headrace.limits import INT32_MAX
from headrace.metadata.model import Broker
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.3
"""The pause before a request is repeated: doubles from the minimum to the maximum."""

LEADERS_PER_REQUEST_MAX = 5000
"""Partitions of a LeaderAndIsr. A broker serves nobody else while it applies one. Apache Kafka's brokers get all in one
request: after their first one they write the high watermarks of the partitions that it names, and forget the others."""


class SendRequest(Protocol):
    """Sends a request to a broker. Raises `OSError` or `KafkaError` when the broker cannot be reached."""

    async def __call__(self, broker: Broker, request: ControlRequest) -> ControlResponse:
        """Returns the broker's response."""
        ...


OnAnswer = Callable[[Broker, ControlRequest, ControlResponse], None]


@dataclass(slots=True)
class ControlBatch:
    """The states that one broker is sent next. `answered` is done once the broker has answered or is gone."""

    answered: "asyncio.Future[None]"
    lead: dict[str, dict[int, LeaderState]] = field(default_factory=dict)
    metadata: dict[str, dict[int, MetadataState]] = field(default_factory=dict)
    has_brokers: bool = False
    is_full: bool = False  # `topic_ids` has every topic there is
    stop: dict[TopicPartition, m.StopReplicaRequest.StopReplicaPartitionState] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def requests(
        self,
        sender: ControllerIdentity,
        to: Broker,
        brokers: Mapping[BrokerId, Broker],
        listener: str | None,
        known: Mapping[BrokerId, Broker],
    ) -> Iterator[ControlRequest]:
        """Yields the requests in the order in which they are sent. `known`: the brokers of the last UpdateMetadata."""
        leaders = leaders_in(self.lead) - {to.id}
        if any(brokers.get(each) != known.get(each) for each in leaders):
            yield update_metadata(sender, to, {}, {}, brokers.values())
        is_headrace = to.directory is not None
        for states in in_parts(self.lead, LEADERS_PER_REQUEST_MAX if is_headrace else INT32_MAX):
            yield leader_and_isr(sender, to, states, self.topic_ids, brokers, listener)
        if self.metadata or self.has_brokers:
            yield update_metadata(sender, to, self.metadata, self.topic_ids, brokers.values(), is_full=self.is_full)
        if self.stop:
            yield stop_replicas(sender, to, self.stop)

    def add_leaders(self, topic: str, topic_id: bytes, states: Mapping[int, LeaderState]) -> None:
        """Adds states of a topic to the LeaderAndIsr. A replica that has not been sent to the broker stays new."""
        if not states:
            return
        self.topic_ids[topic] = topic_id
        known = self.lead.get(topic)
        if known is None:
            self.lead[topic] = dict(states)
            return
        for number, state in states.items():
            before = known.get(number)
            if before is not None and before.is_new and not state.is_new:
                state = leader_state(number, state.leadership, state.replicas, is_new=True)
            known[number] = state

    def add_metadata(self, topic: str, topic_id: bytes, states: Mapping[int, MetadataState]) -> None:
        """Adds states of a topic to the UpdateMetadata."""
        if not states:
            return
        self.topic_ids[topic] = topic_id
        known = self.metadata.get(topic)
        if known is None:
            self.metadata[topic] = dict(states)
        else:
            known.update(states)

    def add_stop(self, partition: TopicPartition, state: m.StopReplicaRequest.StopReplicaPartitionState) -> None:
        """Adds a replica to the StopReplica. One that is deleted gets no leader any more."""
        known = self.lead.get(partition.topic)
        if state.delete_partition and known is not None:
            known.pop(partition.partition, None)
            if not known:
                del self.lead[partition.topic]
        self.stop[partition] = state


class Channel:
    """The channel to one broker in one registration."""

    def __init__(
        self,
        sender: ControllerIdentity,
        to: Broker,
        send: SendRequest,
        brokers: Callable[[], Mapping[BrokerId, Broker]],
        on_answer: OnAnswer,
        listener: str | None = None,
    ) -> None:
        """`brokers` returns the current live brokers. `on_answer` is called with each response and must not block."""
        self._sender, self._to, self._send = sender, to, send
        self._brokers, self._on_answer, self._listener = brokers, on_answer, listener
        self._waiting: deque[ControlBatch] = deque()
        self._sending: ControlBatch | None = None
        self._known: Mapping[BrokerId, Broker] = {}
        self._wake = asyncio.Event()
        self._is_held = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller to broker {to.id}")

    @property
    def broker(self) -> Broker:
        """The broker at the other end, in its registration."""
        return self._to

    @property
    def last_answered(self) -> "asyncio.Future[None] | None":
        """Done once the broker has answered everything that was added so far; None when it has already."""
        last = self._waiting[-1] if self._waiting else self._sending
        return None if last is None else last.answered

    def batch(self) -> ControlBatch:
        """The waiting batch. Add to it before the next await, unless the channel is held: its task may take it then."""
        if not self._waiting:
            self._waiting.append(ControlBatch(asyncio.get_running_loop().create_future()))
            if not self._is_held:
                self._wake.set()
        return self._waiting[-1]

    def batch_after(self, topic: str, partitions: Iterable[int]) -> ControlBatch:
        """Like `batch`, but starts a new batch if the waiting one stops the replica of one of these partitions."""
        batch = self.batch()
        if batch.stop and any((topic, number) in batch.stop for number in partitions):
            batch = ControlBatch(asyncio.get_running_loop().create_future())
            self._waiting.append(batch)
        return batch

    def hold(self) -> None:
        """Takes no batch until `release`: the waiting one is filled in several turns of the event loop."""
        self._is_held = True

    def release(self) -> None:
        """The end of `hold`."""
        self._is_held = False
        if self._waiting:
            self._wake.set()

    def close(self) -> None:
        """Drops the waiting batches and completes their `answered`."""
        self._task.cancel()
        for batch in (*self._waiting, *([self._sending] if self._sending else [])):
            _done(batch)
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and not self._is_held:
                self._sending = batch = self._waiting.popleft()
                brokers = dict(self._brokers())
                for request in batch.requests(self._sender, self._to, brokers, self._listener, self._known):
                    self._on_answer(self._to, request, await self._send_once(request))
                    if isinstance(request, m.UpdateMetadataRequest):
                        self._known = brokers
                self._sending = None
                _done(batch)

    async def _send_once(self, request: ControlRequest) -> ControlResponse:
        pause_s = PAUSE_MIN_S
        while True:
            try:
                response = await self._send(self._to, request)
            except Exception as error:
                if pause_s == PAUSE_MIN_S:
                    is_expected = isinstance(error, OSError | KafkaError)
                    words = self._to.id, type(request).__name__, error
                    log.warning(
                        "broker %d did not answer %s; sending it again: %s",
                        *words,
                        exc_info=None if is_expected else error,
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if response.error_code:
                code = known_code(response.error_code).name
                log.warning("broker %d refused %s: %s", self._to.id, type(request).__name__, code)
            return response


def _done(batch: ControlBatch) -> None:
    if not batch.answered.done():
        batch.answered.set_result(None)
