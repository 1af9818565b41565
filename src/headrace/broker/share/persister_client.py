"""The persister: reads and writes the state of share partitions at their share coordinators.

    write(group, updates) ─▶ by coordinator ─▶ this broker       ShareStateService
             ▲                             └─▶ another broker    WriteShareGroupState, one request of a kind at a time
             └─ a retriable error: again after a pause ◀─┘

The coordinator of a share partition is the leader of its partition of `__share_group_state`, which this broker's
metadata names; the topic is created at the first use. What comes for a broker while a request to it is under way is
sent with the next one. Each request has one group, as on the wire.

Apache Kafka pauses for 1 s and longer. Pauses begin shorter here, since a coordinator that has moved is found in the
metadata a moment later, and consumers wait. Both give up after some 15 seconds.
Source: Kafka's `DefaultStatePersister`, `PersisterStateManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    StateApi,
    read_response,
    weight,
    write_request,
)
from headrace.coordinators.share_state.keys import key_text
from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateUpdate,
    Summary,
    TopicIdPartition,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import Turns, in_slices
from headrace.limits import SHARE_STATE_ELEMENTS_PER_REQUEST_MAX
from headrace.network.peers.peers import Peers
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.share.share_state import ShareCoordinators
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.network.peers.broker_addresses import BrokerAddresses

log = logging.getLogger(__name__)

LANE = "share-state"
PAUSES_MS = (100, 200, 400, 800, 1600, 3200, 4000, 5000)
"""The pauses between tries, each longer or shorter by up to a fifth."""

RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NETWORK_EXCEPTION,
)
"""UNKNOWN_TOPIC_OR_PARTITION: the coordinator may not know a new topic yet."""

Results = dict[TopicIdPartition, Any]
Ask = Callable[[str, Mapping[TopicIdPartition, Any]], Coroutine[object, object, Mapping[TopicIdPartition, Any]]]


class _Asked(NamedTuple):
    """A part of a call that waits for the next request to a broker."""

    group_id: str
    items: Mapping[TopicIdPartition, Any]
    results: asyncio.Future[Results]


class PersisterClient:
    """The `Persister` of a broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        share_state: ShareCoordinators,
        *,
        metadata: MetadataCache,
        addresses: BrokerAddresses,
        peers: Peers,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        random_bytes: Callable[[int], bytes],
        request_timeout_ms: int,
    ) -> None:
        self._broker_id, self._share_state = broker_id, share_state
        self._metadata, self._addresses, self._peers = metadata, addresses, peers
        self._spawn, self._loop, self._random_bytes = spawn, loop, random_bytes
        self._request_timeout_ms = request_timeout_ms
        self._waiting: dict[tuple[str, BrokerId], list[_Asked]] = {}  # (API, broker) -> its next request
        self._callers: dict[asyncio.Task[object] | None, None] = {}
        self._is_closed = False

    def close(self) -> None:
        """Ends the tasks that wait for a result: the broker stops, and no try that begins now can reach a share
        coordinator."""
        self._is_closed = True
        for task in list(self._callers):
            if task is not None:
                task.cancel()

    # The persister's calls

    async def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, InitialState]
    ) -> Mapping[TopicIdPartition, PersisterOutcome]:
        """Begins share partitions, or begins them anew."""
        return await self._call(INITIALIZE, group_id, partitions, self._share_state.coordinator.initialize)

    async def read(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> Mapping[TopicIdPartition, SharePartitionState]:
        """Reads share partitions for their leader."""
        return await self._call(READ, group_id, leader_epochs, self._share_state.coordinator.read)

    async def write(
        self, group_id: str, updates: Mapping[TopicIdPartition, StateUpdate]
    ) -> Mapping[TopicIdPartition, PersisterOutcome]:
        """Stores changes."""
        return await self._call(WRITE, group_id, updates, self._share_state.coordinator.write)

    async def delete(
        self, group_id: str, partitions: frozenset[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, PersisterOutcome]:
        """Removes share partitions."""
        return await self._call(DELETE, group_id, dict.fromkeys(partitions), self._share_state.coordinator.delete)

    async def read_summary(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> Mapping[TopicIdPartition, Summary]:
        """Reads the start offsets of share partitions."""
        return await self._call(SUMMARY, group_id, leader_epochs, self._share_state.coordinator.read_summary)

    # Tries

    async def _call(self, api: StateApi, group_id: str, items: Mapping[TopicIdPartition, Any], local: Ask) -> Results:
        """Asks until each partition has a result that is not retriable, or the last pause is over."""
        if self._is_closed:
            return dict.fromkeys(items, api.result(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is shutting down."))
        task = asyncio.current_task()
        self._callers[task] = None
        try:
            return await self._call_again(api, group_id, items, local)
        finally:
            del self._callers[task]

    async def _call_again(
        self, api: StateApi, group_id: str, items: Mapping[TopicIdPartition, Any], local: Ask
    ) -> Results:
        results: Results = {}
        missing = dict(items)
        for pause_ms in (*PAUSES_MS, 0):
            async for key, result in in_slices((await self._try(api, group_id, missing, local)).items()):
                results[key] = result
                if result.error not in RETRIABLE:
                    del missing[key]
            if not missing:
                return results
            await asyncio.sleep(pause_ms / 1000 * (0.8 + 0.4 * self._random_bytes(1)[0] / 255))
        log.warning(
            "share group %s: %s of %d share partitions failed, such as %s: %s",
            group_id,
            api.name,
            len(missing),
            key_text(SharePartitionKey(group_id, *next(iter(missing)))),
            results[next(iter(missing))].error.name,
        )
        return results

    async def _try(self, api: StateApi, group_id: str, items: Mapping[TopicIdPartition, Any], local: Ask) -> Results:
        """Asks once for each partition; every one has a result."""
        topic = self._share_state.topic
        try:
            await topic.ensure()
        except KafkaError as error:
            text = f"The topic {topic.name} could not be created: {error}"
            return dict.fromkeys(items, api.result(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
        by_broker: dict[BrokerId, dict[TopicIdPartition, Any]] = {}
        results: Results = {}
        turns = Turns()
        for key, item in items.items():
            number = topic.partition_for(key_text(SharePartitionKey(group_id, *key)))
            known = self._metadata.partition(topic.name, number)
            if known is None or known.leader < 0:
                text = f"{topic.name}-{number} has no leader."
                results[key] = api.result(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            else:
                by_broker.setdefault(known.leader, {})[key] = item
            await turns.count()
        answers = await asyncio.gather(
            *(
                local(group_id, some) if broker == self._broker_id else self._ask_broker(api, broker, group_id, some)
                for broker, some in by_broker.items()
            )
        )
        for answer in answers:
            results.update(answer)
        return results

    # Requests to other brokers

    async def _ask_broker(
        self, api: StateApi, broker: BrokerId, group_id: str, items: Mapping[TopicIdPartition, Any]
    ) -> Results:
        """Asks with the next request to this broker that has room."""
        parts = [
            _Asked(group_id, part, self._loop.create_future())
            for part in _in_parts(items, SHARE_STATE_ELEMENTS_PER_REQUEST_MAX)
        ]
        waiting = self._waiting.get((api.name, broker))
        if waiting is not None:
            waiting += parts
        else:
            self._waiting[api.name, broker] = parts.copy()
            if not self._spawn(self._send(api, broker)):
                del self._waiting[api.name, broker]
                return dict.fromkeys(items, api.result(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is shutting down."))
        results: Results = {}
        for part in parts:
            results.update(await part.results)
        return results

    async def _send(self, api: StateApi, broker: BrokerId) -> None:
        """Sends requests to a broker, one at a time, until nothing waits for it."""
        waiting = self._waiting[api.name, broker]
        asked: list[_Asked] = []
        try:
            while waiting:
                asked = _next_request(waiting)
                items = {key: item for each in asked for key, item in each.items.items()}
                results = await self._request(api, broker, asked[0].group_id, items)
                for each in asked:
                    _finish(api, each, results)
                asked = []
        finally:
            del self._waiting[api.name, broker]
            for each in (*asked, *waiting):  # the broker is shutting down
                _finish(api, each, {})

    async def _request(
        self, api: StateApi, broker: BrokerId, group_id: str, items: Mapping[TopicIdPartition, Any]
    ) -> Results:
        try:
            address = self._addresses.address_of(broker)
            if address is None:
                raise KafkaError(f"broker {broker} has no known address", ErrorCode.NETWORK_EXCEPTION)
            response = await self._peers.send(
                address,
                await write_request(api, group_id, items),
                api.response,
                timeout_ms=self._request_timeout_ms,
                lane=LANE,
            )
        except KafkaError as error:
            log.debug("share state: broker %d could not be asked to %s: %s", broker, api.name, error)
            return dict.fromkeys(items, api.result(ErrorCode.NETWORK_EXCEPTION, str(error)))
        return await read_response(api, response)


def _finish(api: StateApi, asked: _Asked, results: Mapping[TopicIdPartition, Any]) -> None:
    """Gives a part of a call its results."""
    if not asked.results.done():
        nothing = api.result(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator's answer leaves the partition out.")
        asked.results.set_result({key: results.get(key, nothing) for key in asked.items})


def _next_request(waiting: list[_Asked]) -> list[_Asked]:
    """Removes and returns what the next request has: the oldest part, and others of its group with other partitions as
    long as there is room."""
    taken = [waiting[0]]
    keys = set(waiting[0].items)
    room = SHARE_STATE_ELEMENTS_PER_REQUEST_MAX - sum(map(weight, waiting[0].items.values()))
    left: list[_Asked] = []
    blocked: set[TopicIdPartition] = set()  # a later write of a partition must not overtake an earlier one
    for each in waiting[1:]:
        size = sum(map(weight, each.items.values()))
        is_free = keys.isdisjoint(each.items) and blocked.isdisjoint(each.items)
        if each.group_id == waiting[0].group_id and size <= room and is_free:
            taken.append(each)
            keys.update(each.items)
            room -= size
        else:
            left.append(each)
            if each.group_id == waiting[0].group_id:
                blocked.update(each.items)
    waiting[:] = left
    return taken


def _in_parts(items: Mapping[TopicIdPartition, Any], size: int) -> Iterable[dict[TopicIdPartition, Any]]:
    """The items in parts of at most `size` elements, or of one item."""
    part: dict[TopicIdPartition, Any] = {}
    room = size
    for key, item in items.items():
        elements = weight(item)
        if elements > room and part:
            yield part
            part, room = {}, size
        part[key] = item
        room -= elements
    if part:
        yield part
