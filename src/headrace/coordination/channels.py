"""The controller's way to each live broker: what is to be said waits in order, and is said until it is answered.

    say       LeaderAndIsr, UpdateMetadata and StopReplica of partitions, gathered in a batch
    merge     while a broker is slow, what comes later is laid over the batch that waits: of each partition the
              newest word is sent, once; only a replica that is to be deleted first and made anew begins another batch
    send      a batch's LeaderAndIsr, UpdateMetadata, StopReplica, each repeated with growing pauses until answered;
              before them, where a leader is of a registration that the broker has not heard of, who is alive: Apache
              Kafka's brokers follow nobody whom they do not know
    close     the broker's registration is gone, or this controller's term is over: what waits is dropped

Nobody waits for a slow broker, except who asks for a batch's `answered`. Source: Kafka's `ControllerChannelManager`,
which keeps one request per event in a queue without bound; ours holds at most two words per partition.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.coordination.model import Broker
from headrace.coordination.requests import (
    ControlRequest,
    ControlResponse,
    Sender,
    leader_and_isr,
    stop_replicas,
    update_metadata,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.3
"""How long a broker that did not answer is left alone: doubled from the one to the other."""


class Send(Protocol):
    """Takes a request to a broker; raises `OSError` or `KafkaError` when it cannot be reached."""

    async def __call__(self, broker: Broker, request: ControlRequest) -> ControlResponse:
        """The broker's answer."""
        ...


OnAnswer = Callable[[Broker, ControlRequest, ControlResponse], None]


@dataclass(slots=True)
class Batch:
    """What one broker is to be told next. `answered` is done when it is, or never will be."""

    answered: "asyncio.Future[None]"
    lead: dict[TopicPartition, m.LeaderAndIsrRequest.LeaderAndIsrPartitionState] = field(default_factory=dict)
    metadata: dict[TopicPartition, m.UpdateMetadataRequest.UpdateMetadataPartitionState] = field(default_factory=dict)
    tells_brokers: bool = False
    stop: dict[TopicPartition, m.StopReplicaRequest.StopReplicaPartitionState] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def requests(
        self,
        sender: Sender,
        to: Broker,
        brokers: Mapping[BrokerId, Broker],
        listener: str | None,
        known: Mapping[BrokerId, Broker],
    ) -> Iterator[ControlRequest]:
        """In the order in which they are sent; `known`: the brokers that were told last."""
        leaders = {BrokerId(state.leader) for state in self.lead.values()} - {to.id}
        if any(brokers.get(each) != known.get(each) for each in leaders):
            yield update_metadata(sender, to, {}, {}, brokers.values())
        if self.lead:
            yield leader_and_isr(sender, to, self.lead, self.topic_ids, brokers, listener)
        if self.metadata or self.tells_brokers:
            yield update_metadata(sender, to, self.metadata, self.topic_ids, brokers.values())
        if self.stop:
            yield stop_replicas(sender, to, self.stop)


class Channel:
    """The way to one broker in one registration."""

    def __init__(
        self,
        sender: Sender,
        to: Broker,
        send: Send,
        brokers: Callable[[], Mapping[BrokerId, Broker]],
        on_answer: OnAnswer,
        listener: str | None = None,
    ) -> None:
        """`brokers` gives the live brokers of the moment; `on_answer` is called with each answer, and must not wait."""
        self._sender, self._to, self._send = sender, to, send
        self._brokers, self._on_answer, self._listener = brokers, on_answer, listener
        self._waiting: deque[Batch] = deque()
        self._sending: Batch | None = None
        self._known: Mapping[BrokerId, Broker] = {}
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller to broker {to.id}")

    @property
    def broker(self) -> Broker:
        """To whom."""
        return self._to

    @property
    def last_answered(self) -> "asyncio.Future[None] | None":
        """Done once everything that was said so far has been answered; None when it has."""
        last = self._waiting[-1] if self._waiting else self._sending
        return None if last is None else last.answered

    def batch(self) -> Batch:
        """The batch that waits, to be added to before anybody else runs."""
        if not self._waiting:
            self._waiting.append(Batch(asyncio.get_running_loop().create_future()))
            self._wake.set()
        return self._waiting[-1]

    def batch_after(self, partition: TopicPartition) -> Batch:
        """As `batch`, but another one when the one that waits is to stop a replica that is wanted again."""
        batch = self.batch()
        if partition in batch.stop:
            batch = Batch(asyncio.get_running_loop().create_future())
            self._waiting.append(batch)
        return batch

    def close(self) -> None:
        """Drops what waits; whoever waits for it goes on."""
        self._task.cancel()
        for batch in (*self._waiting, *([self._sending] if self._sending else [])):
            _done(batch)
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                self._sending = batch = self._waiting.popleft()
                brokers = dict(self._brokers())
                for request in batch.requests(self._sender, self._to, brokers, self._listener, self._known):
                    self._on_answer(self._to, request, await self._ask(request))
                    if isinstance(request, m.UpdateMetadataRequest):
                        self._known = brokers
                self._sending = None
                _done(batch)

    async def _ask(self, request: ControlRequest) -> ControlResponse:
        pause_s = PAUSE_MIN_S
        while True:
            try:
                response = await self._send(self._to, request)
            except Exception as error:
                if pause_s == PAUSE_MIN_S:
                    is_expected = isinstance(error, OSError | KafkaError)
                    words = self._to.id, type(request).__name__, error
                    log.warning("broker %d did not take %s: %s", *words, exc_info=None if is_expected else error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if response.error_code:
                code = ErrorCode(response.error_code).name
                log.warning("broker %d refused %s: %s", self._to.id, type(request).__name__, code)
            return response


def _done(batch: Batch) -> None:
    if not batch.answered.done():
        batch.answered.set_result(None)
