"""A transaction coordinator whose log and marker sender are lists: each write and each marker ends when a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from headrace.coordinators.runtime import Action, Answer, Append
from headrace.coordinators.transactions.actions import DropMarkers, SendMarkers, Then
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.requests import Ended, Initial, InitProducer, TransactionProducer
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import Transaction
from headrace.errors import ErrorCode
from headrace.types import TopicPartition

PARTITION, EPOCH = 0, 7
ID = "payments"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = TransactionSettings(
    max_timeout_ms=900_000,
    id_expiration_ms=7 * 86_400_000,
    expiration_check_interval_ms=3_600_000,
    two_phase_commit_enable=False,
)


class World:
    """One partition of `__transaction_state`, and the coordinator that serves it."""

    def __init__(
        self, settings: TransactionSettings = SETTINGS, log: Iterable[tuple[bytes, bytes | None]] = (), version: int = 0
    ) -> None:
        self.now_ms = 1_000_000
        self.settings, self.version = settings, version
        self.log = list(log)
        self.writes: deque[Append[Then]] = deque()
        self.sent: list[SendMarkers] = []
        self.dropped: list[int] = []
        self.answers: list[Any] = []
        self.holds_writes = False
        self.next_id = 4000
        self.coordinator = TransactionCoordinator(
            settings, lambda _: PARTITION, self.now_ms, version=lambda: self.version
        )
        self.load()

    def _new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.settings, lambda _: PARTITION, self.now_ms, version=lambda: self.version)

    def load(self, epoch: int = EPOCH) -> None:
        """Loads the partition from the log."""
        replay = self.coordinator.partitions.begin(PARTITION, epoch)
        assert replay is not None
        for offset, (key, value) in enumerate(self.log):
            replay.record(key, value, offset)
        for actions in self.coordinator.loaded(replay, self.now_ms):
            self.run(actions)
        assert self.coordinator.partitions.finish(PARTITION, replay)

    def fail_over(self) -> None:
        """Another broker becomes the coordinator, and reads the log."""
        self.coordinator = TransactionCoordinator(
            self.settings, lambda _: PARTITION, self.now_ms, version=lambda: self.version
        )
        self.writes.clear()
        self.load(EPOCH + 1)

    def run(self, actions: Iterable[Action[Then]]) -> None:
        """Executes actions. A write ends at once unless `holds_writes`."""
        for action in actions:
            if isinstance(action, Answer):
                action.reply(action.message)
            elif isinstance(action, Append):
                self.writes.append(action)
                if not self.holds_writes:
                    self.write_ends()
            elif isinstance(action.what, SendMarkers):
                self.sent.append(action.what)
            else:
                assert isinstance(action.what, DropMarkers)
                self.dropped.append(action.what.coordinator_partition)

    def write_ends(self, error: ErrorCode = ErrorCode.NONE, *, is_in_log: bool | None = None) -> None:
        """The oldest write ends. After an error it may be in the log all the same."""
        write = self.writes.popleft()
        if is_in_log if is_in_log is not None else error is ErrorCode.NONE:
            self.log += write.records
        assert write.then is not None
        self.run(self.coordinator.appended(write.then, error, len(self.log), self.now_ms))

    def tick(self, by_ms: int = 0) -> None:
        """Time passes."""
        self.now_ms += by_ms
        self.run(self.coordinator.tick(self.now_ms))

    def _last(self) -> Any:
        return self.answers.pop() if self.answers else None

    def init(
        self,
        transactional_id: str = ID,
        *,
        timeout_ms: int = 60_000,
        expected: TransactionProducer | None = None,
        **more: bool,
    ) -> Initial:
        """InitProducerId; None while it is not answered."""
        request = InitProducer(transactional_id, timeout_ms, expected, **more)
        new_id = None
        if self.coordinator.needs_producer_id(transactional_id):
            self.next_id += 1
            new_id = self.next_id
        self.run(self.coordinator.init_producer(request, new_id, self.answers.append, self.now_ms))
        return cast(Initial, self._last())

    def add(self, producer: TransactionProducer, *partitions: TopicPartition, version: int = 0) -> ErrorCode:
        """AddPartitionsToTxn."""
        added = frozenset(partitions)
        self.run(self.coordinator.add_partitions(ID, producer, added, version, self.answers.append, self.now_ms))
        return cast(ErrorCode, self._last())

    def end(self, producer: TransactionProducer, *, commit: bool = True, version: int = 0) -> Ended:
        """EndTxn."""
        new_id = None
        if version >= 2 and self.coordinator.needs_producer_id(ID):
            self.next_id += 1
            new_id = self.next_id
        self.run(self.coordinator.end(ID, producer, commit, version, new_id, self.answers.append, self.now_ms))
        return cast(Ended, self._last())

    def markers_written(self, *partitions: TopicPartition) -> None:
        """The newest markers are written: all of them, or those of these partitions."""
        sent = self.sent[-1]
        for each in partitions or sorted(sent.partitions):
            self.run(self.coordinator.marker_written(ID, sent.producer_id, sent.producer_epoch, each, self.now_ms))

    def state(self) -> Transaction:
        """The transactional id, as it is described."""
        error, found = self.coordinator.describe(ID)
        assert found is not None, error
        return found

    def begun(self, *partitions: TopicPartition, version: int = 0) -> TransactionProducer:
        """A producer with an ongoing transaction."""
        producer = self.init().producer
        assert self.add(producer, *(partitions or (T0, T1)), version=version) is ErrorCode.NONE
        return producer
