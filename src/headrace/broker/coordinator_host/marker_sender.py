"""Sends transaction markers to the leaders of a transaction's partitions, and tries again until each is written.

    SendMarkers ─▶ missing partitions ─▶ by leader ─▶ this broker      TransactionMarkers.write
                         ▲                        └─▶ another broker   WriteTxnMarkers, one request at a time
                         └── a retriable error: again after RETRY_MS ◀─┘
                                                 └─▶ report(…) for each partition that has its marker

Markers that wait for one broker share its next request. A partition that does not exist any more needs no marker:
the metadata store is asked, since this broker's metadata may not have a new topic yet.

A marker that is refused for its coordinator epoch means that another broker coordinates the id: the transaction's
markers are dropped here, and the other coordinator sends them. Source: Kafka's `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.partitions.transaction_markers import MarkerOutcome, TransactionMarker, TransactionMarkers
from headrace.coordinators.transactions.actions import DropMarkers, SendMarkers
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.in_slices import in_slices
from headrace.limits import MARKERS_PER_REQUEST_MAX, MARKERS_SENT_PER_TURN_MAX
from headrace.metadata import znodes
from headrace.metastore.store import MetadataStore, SessionLost
from headrace.network.peers.peers import Peers
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.network.peers.broker_addresses import BrokerAddresses

log = logging.getLogger(__name__)

RETRY_MS = 100
LANE = "transaction-markers"

DONE_ALL_THE_SAME = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
"""Errors of partitions that cannot have a marker, nor transactional records."""
FENCED = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)

Report = Callable[[SendMarkers, TopicPartition], None]
"""Takes in that a partition has its marker, or needs none."""


class _Missing(NamedTuple):
    """One marker that is still to be written."""

    sending: SendMarkers
    partition: TopicPartition


class _Sending(NamedTuple):
    """A transaction whose markers are being written, and the partitions without one."""

    sending: SendMarkers
    missing: set[TopicPartition]


class MarkerSender:
    """The markers that this broker's transaction coordinator has to get written."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        metadata: MetadataCache,
        addresses: BrokerAddresses,
        peers: Peers,
        local: TransactionMarkers,
        partition_count: Callable[[str], Awaitable[int]],
        report: Report,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        request_timeout_ms: int,
    ) -> None:
        """`partition_count` asks the metadata store for a topic's partitions, 0 if it does not exist; it may raise
        `KafkaError`. `report` is called on the event loop."""
        self._broker_id, self._metadata, self._addresses = broker_id, metadata, addresses
        self._peers, self._local, self._partition_count = peers, local, partition_count
        self._report, self._spawn, self._loop = report, spawn, loop
        self._request_timeout_ms = request_timeout_ms
        self._current: dict[str, _Sending] = {}  # by transactional id
        self._waiting: dict[BrokerId, dict[_Missing, None]] = {}  # another leader -> what its next request has
        self._retries: dict[_Missing, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: deque[_Missing] = deque()
        self._left_in_turn = MARKERS_SENT_PER_TURN_MAX
        self._next_turn: asyncio.Handle | None = None
        self._is_closed = False

    def close(self) -> None:
        """Sends nothing any more. The next coordinator finds the prepared transactions in the log."""
        self._is_closed = True
        self._current.clear()
        self._unsent.clear()
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()

    @property
    def pending(self) -> int:
        """The number of transactions whose markers are not all written."""
        return len(self._current)

    def perform(self, effect: object) -> None:
        """Executes an effect of the transaction coordinator."""
        if isinstance(effect, SendMarkers):
            if not self._is_closed:
                self._current[effect.transactional_id] = _Sending(effect, set(effect.partitions))
                self._send([_Missing(effect, each) for each in sorted(effect.partitions)])
        elif isinstance(effect, DropMarkers):
            self._current = {
                key: each
                for key, each in self._current.items()
                if each.sending.coordinator_partition != effect.coordinator_partition
            }

    def _is_current(self, missing: _Missing) -> bool:
        current = self._current.get(missing.sending.transactional_id)
        return current is not None and current.sending is missing.sending and missing.partition in current.missing

    def _done(self, missing: _Missing) -> None:
        transactional_id = missing.sending.transactional_id
        left = self._current[transactional_id].missing
        left.discard(missing.partition)
        if not left:
            del self._current[transactional_id]
        self._report(*missing)

    def _send(self, missing: Iterable[_Missing]) -> None:
        """Writes markers here, or adds them to the next request to their leader; of thousands, some now and the others
        in the next turns of the event loop."""
        self._unsent.extend(missing)
        if self._next_turn is None and self._unsent and not self._is_closed:
            self._next_turn = self._loop.call_soon(self._on_next_turn)
        here: dict[SendMarkers, list[TopicPartition]] = {}
        while self._unsent and self._left_in_turn:
            self._left_in_turn -= 1
            each = self._unsent.popleft()
            if not self._is_current(each):
                continue
            leader = self._leader(each.partition)
            if leader is None:
                self._retry([each])
            elif leader == self._broker_id:
                here.setdefault(each.sending, []).append(each.partition)
            else:
                waiting = self._waiting.get(leader)
                if waiting is None:
                    self._waiting[leader] = {each: None}
                    self._spawn(self._send_to(leader))
                else:
                    waiting[each] = None
        for sending, partitions in here.items():
            self._write_here(sending, partitions)

    def _on_next_turn(self) -> None:
        self._next_turn, self._left_in_turn = None, MARKERS_SENT_PER_TURN_MAX
        self._send(())

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        """The leader; None while it is not known, or the topic does not exist."""
        known = self._metadata.partition(*partition)
        return None if known is None or known.leader < 0 else known.leader

    def _write_here(self, sending: SendMarkers, partitions: list[TopicPartition]) -> None:
        written = self._local.write([_marker(sending, partitions)])
        if written.done():
            self._outcomes(sending, written.result()[0])
        else:
            written.add_done_callback(
                lambda done: None if done.cancelled() else self._outcomes(sending, done.result()[0])
            )

    async def _send_to(self, leader: BrokerId) -> None:
        """Sends requests to another broker, one at a time, until none of its markers waits, or a request fails. Then
        all of them are tried again: their partitions may have another leader, and must not wait for this broker."""
        waiting = self._waiting[leader]
        batch: list[_Missing] = []
        try:
            while waiting and not self._is_closed:
                batch = list(islice(waiting, MARKERS_PER_REQUEST_MAX))
                for each in batch:
                    del waiting[each]
                by_sending: dict[SendMarkers, list[TopicPartition]] = {}
                by_producer: dict[int, SendMarkers] = {}
                for each in filter(self._is_current, batch):
                    if by_producer.setdefault(each.sending.producer_id, each.sending) is each.sending:
                        by_sending.setdefault(each.sending, []).append(each.partition)
                    else:  # two ids with one producer id, after damage: an answer has one result for each producer
                        waiting[each] = None
                if by_sending:
                    await self._request(leader, by_sending)
                batch = []
        except KafkaError as error:
            log.debug("transaction markers could not be sent to broker %d: %s", leader, error)
        finally:
            del self._waiting[leader]
            self._retry([*batch, *waiting])

    async def _request(self, leader: BrokerId, wanted: Mapping[SendMarkers, list[TopicPartition]]) -> None:
        """Sends one request and handles its answer. Raises `KafkaError` without an answer."""
        address = self._addresses.address_of(leader)
        if address is None:
            raise KafkaError(f"broker {leader} has no known address", ErrorCode.NETWORK_EXCEPTION)
        answer = await self._peers.send(
            address,
            m.WriteTxnMarkersRequest(markers=[_wire_marker(*each) for each in wanted.items()]),
            m.WriteTxnMarkersResponse,
            timeout_ms=self._request_timeout_ms,
            lane=LANE,
        )
        by_producer = {sending.producer_id: sending for sending in wanted}
        async for result in in_slices(answer.markers, MARKERS_SENT_PER_TURN_MAX):
            sending_ = by_producer.pop(result.producer_id, None)
            if sending_ is None:
                continue
            outcome = {
                TopicPartition(topic.name, each.partition_index): known_code(each.error_code)
                for topic in result.topics
                for each in topic.partitions
            }
            missing = dict.fromkeys(wanted[sending_], ErrorCode.UNKNOWN_SERVER_ERROR)
            self._outcomes(sending_, {**missing, **{key: code for key, code in outcome.items() if key in missing}})
        for sending in by_producer.values():  # the answer left them out
            self._retry(_Missing(sending, each) for each in wanted[sending])

    def _outcomes(self, sending: SendMarkers, outcome: MarkerOutcome) -> None:
        for partition, code in outcome.items():
            missing = _Missing(sending, partition)
            if not self._is_current(missing):
                continue
            if code is ErrorCode.NONE or code in DONE_ALL_THE_SAME:
                self._done(missing)
            elif code in FENCED:
                log.warning(
                    "transactional id %s: %s refused the marker of producer %d, epoch %d, coordinator epoch %d "
                    "with %s; another coordinator ends the transaction",
                    sending.transactional_id,
                    partition,
                    sending.producer_id,
                    sending.producer_epoch,
                    sending.coordinator_epoch,
                    code.name,
                )
                del self._current[sending.transactional_id]
            else:
                self._retry([missing])

    # Retries

    def _retry(self, missing: Iterable[_Missing]) -> None:
        self._retries.update(dict.fromkeys(missing))
        if self._timer is None and self._retries and not self._is_closed:
            self._timer = self._loop.call_later(RETRY_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        retries, self._retries = self._retries, {}
        self._spawn(self._send_again(retries))

    async def _send_again(self, retries: Iterable[_Missing]) -> None:
        known: list[_Missing] = []
        unknown: list[_Missing] = []
        async for each in in_slices(retries):
            (unknown if self._metadata.partition(*each.partition) is None else known).append(each)
        self._send(known)
        await self._skip_deleted(unknown)

    async def _skip_deleted(self, unknown: list[_Missing]) -> None:
        """Reports partitions that do not exist; tries the others again. A topic that was deleted and created again may
        have fewer partitions than before."""
        counts: dict[str, int | None] = {}
        async for each in in_slices(filter(self._is_current, unknown)):
            topic, number = each.partition
            if topic not in counts:
                try:
                    counts[topic] = await self._partition_count(topic)
                except KafkaError:
                    counts[topic] = None  # not known: the store cannot be reached
            count = counts[topic]
            if count is None or number < count:
                self._retry([each])
            elif self._is_current(each):
                log.info(
                    "transactional id %s: %s is deleted and gets no marker",
                    each.sending.transactional_id,
                    each.partition,
                )
                self._done(each)


async def partition_count(store: MetadataStore, topic: str) -> int:
    """The number of a topic's partitions in the metadata store; 0 if it does not exist. Raises `KafkaError` when the
    session with the store ended, or the store's node cannot be read."""
    try:
        (node,) = await store.get_many([znodes.topic(topic)])
        return 0 if node is None else len(znodes.decode_topic(topic, node.data).partitions)
    except SessionLost as error:
        raise KafkaError("the session with the metadata store ended", ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
    except znodes.CorruptNode as error:
        raise KafkaError(f"the node of topic {topic} cannot be read", ErrorCode.COORDINATOR_NOT_AVAILABLE) from error


def _marker(sending: SendMarkers, partitions: list[TopicPartition]) -> TransactionMarker:
    return TransactionMarker(
        sending.producer_id,
        sending.producer_epoch,
        sending.coordinator_epoch,
        sending.is_commit,
        partitions,
        sending.transaction_version,
    )


def _wire_marker(sending: SendMarkers, partitions: list[TopicPartition]) -> m.WriteTxnMarkersRequest.WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=sending.producer_id,
        producer_epoch=sending.producer_epoch,
        transaction_result=sending.is_commit,
        topics=[
            m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
        coordinator_epoch=sending.coordinator_epoch,
        transaction_version=sending.transaction_version,
    )
