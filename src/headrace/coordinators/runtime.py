"""The interface between a coordinator and its runtime: actions, replay of records, and partition ownership.

A coordinator is a state machine. The partitions of a compacted internal topic hold its state: groups are in
`__consumer_offsets`, transactions in `__transaction_state`. The leader of a partition serves the groups in it. The
runtime (`broker.coordinator_host.coordinator_runtime`) reads partitions, executes actions, and passes the time.

    partition:    unknown ──begin──▶ loading ──finish──▶ active ──release──▶ unknown
                                        └───────fail or release─────────────▶ unknown
    error code:   NOT_COORDINATOR     COORDINATOR_LOAD_IN_PROGRESS     NONE

    Answer(reply, message)               send this response now
    Append(partition, records, then)     write a batch with acks=all, then pass `then` to `appended`
    Effect(what)                         the coordinator's service does it, such as a request to another broker

`then`, the second step of a write, is a value and not a closure, so that tests can compare it and logs can print it.
A `reply` is the caller's token. The machine keeps it and returns it once, in an Answer; it never calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.errors import ErrorCode
from headrace.types import NO_PRODUCER

Then = TypeVar("Then")
KeyValue: TypeAlias = tuple[bytes, bytes | None]

APPEND_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error of a write -> the error of its request; others are passed on unchanged. A coordinator may have its own for
some. Source: Kafka's `CoordinatorOperationExceptionHelper`."""


class Answer(NamedTuple):
    """The response to one request."""

    reply: Callable[[Any], None]
    message: object


class TransactionalProducer(NamedTuple):
    """The producer of a transactional batch. The log issued the `verification` of its transaction's first append, and
    checks it; a coordinator passes it on. It is None when the transaction is open in the partition already."""

    producer_id: int
    producer_epoch: int
    verification: object | None = None


class Append(NamedTuple, Generic[Then]):
    """A batch to append to a partition of the coordinator's topic. Without `then`, nothing waits for it.

    With a `producer` the batch is part of its transaction.
    """

    partition: int
    records: tuple[KeyValue, ...]
    timestamp_ms: int
    then: Then | None = None
    producer: TransactionalProducer | None = None


What = TypeVar("What")


class Effect(NamedTuple, Generic[What]):
    """Something that the coordinator's service does outside the topic."""

    what: What


Action: TypeAlias = "Answer | Append[Then] | Effect[Any]"


class Replay(Protocol):
    """The state of one partition while it is read, from its first record to its last."""

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Replays one record of the batch at `record_offset`; `producer_id` is that of a transactional batch. Raises
        `CorruptMessage`; the runtime then skips the record."""

    def marker(self, producer_id: int, committed: bool) -> None:
        """Replays a transaction's marker."""


R = TypeVar("R", bound=Replay)


class OwnedPartitions(Generic[R]):
    """The partitions of the coordinator's topic that this broker serves or loads.

    A replay belongs to one load. Only the newest load of a partition counts; an older one that ends or fails late
    changes nothing.
    """

    __slots__ = ("_active", "_epochs", "_loading", "_new_replay")

    def __init__(self, new_replay: Callable[[int], R]) -> None:
        self._new_replay = new_replay
        self._loading: dict[int, R] = {}
        self._active: set[int] = set()
        self._epochs: dict[int, int] = {}

    @property
    def loading(self) -> Collection[R]:
        """The replays of partitions that are being loaded."""
        return self._loading.values()

    @property
    def active(self) -> int:
        """The number of partitions that are served."""
        return len(self._active)

    def epoch(self, partition: int) -> int:
        """The leader epoch in which this broker leads the partition; -1 if it does not."""
        return self._epochs.get(partition, -1)

    def begin(self, partition: int, leader_epoch: int) -> R | None:
        """Starts to load a partition that this broker leads now. Returns the replay that must get every record; None if
        the partition is active already."""
        self._epochs[partition] = leader_epoch
        if partition in self._active or partition in self._loading:
            return None
        replay = self._loading[partition] = self._new_replay(partition)
        return replay

    def is_loading(self, partition: int, replay: R) -> bool:
        """Whether this replay is the partition's newest load."""
        return self._loading.get(partition) is replay

    def finish(self, partition: int, replay: R) -> bool:
        """Ends a load. Whether it was the newest, so that the partition is active now."""
        if not self.is_loading(partition, replay):
            return False
        del self._loading[partition]
        self._active.add(partition)
        return True

    def fail(self, partition: int, replay: R) -> bool:
        """Ends a load that failed. Whether it was the newest; the partition is not served then."""
        if not self.is_loading(partition, replay):
            return False
        del self._loading[partition]
        return True

    def release(self, partition: int) -> None:
        """Drops a partition that this broker no longer leads."""
        self._loading.pop(partition, None)
        self._active.discard(partition)
        self._epochs.pop(partition, None)

    def availability(self, partition: int) -> ErrorCode:
        """NONE if the partition is active, else the error code for its clients."""
        if partition in self._active:
            return ErrorCode.NONE
        is_loading = partition in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR


class Coordinator(Protocol[R, Then]):
    """A coordinator's state machine, as its runtime drives it. No clock, no IO, no randomness."""

    @property
    def partitions(self) -> OwnedPartitions[R]:
        """The partitions that are served. The runtime begins and releases them."""
        ...

    def loaded(self, replay: R, now_ms: int) -> Iterator[Sequence[Action[Then]]]:
        """Takes over the state of a loaded partition, in steps: each takes over some of it and yields the actions that
        follow. The partition is active after the last step. `unloaded` may come between two steps; none follows it."""
        ...

    def unloaded(self, partition: int, now_ms: int) -> Sequence[Action[Then]]:
        """Drops the state of a partition that another broker leads now; waiting requests get NOT_COORDINATOR."""
        ...

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Sequence[Action[Then]]:
        """Takes in the end of a write: its batch is at `record_offset`, or it failed with `error`. A batch that was
        appended, and was not durable in time, has both."""
        ...

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`; None without deadlines."""
        ...

    def tick(self, now_ms: int) -> Sequence[Action[Then]]:
        """Handles every deadline that has passed."""
        ...

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        ...
