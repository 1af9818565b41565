"""A share coordinator whose log is a list: each write ends when a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from headrace.coordinators.runtime import Action, Answer, Append, KeyValue
from headrace.coordinators.share_state.coordinator import ShareCoordinator
from headrace.coordinators.share_state.persister import (
    InitialState,
    SharePartitionKey,
    StateBatch,
    StateUpdate,
)
from headrace.coordinators.share_state.records import ShareStateRecord, read_record
from headrace.coordinators.share_state.requests import (
    DeleteState,
    Prune,
    ReadState,
    ReadSummary,
    RecordsWritten,
    Request,
    What,
)
from headrace.coordinators.share_state.settings import ShareStateSettings
from headrace.errors import ErrorCode

PARTITION = 3
TOPIC, OTHER = b"t" * 16, b"u" * 16
KEY = SharePartitionKey("queue", TOPIC, 0)
SETTINGS = ShareStateSettings(updates_per_snapshot=3, prune_interval_ms=1000, cold_snapshot_interval_ms=5000)


def update(
    *batches: tuple[int, int, int, int], leader: int = 1, state: int = 1, start: int = -1, done: int = 0
) -> StateUpdate:
    """A write."""
    return StateUpdate(state, leader, start, done, tuple(StateBatch(*each) for each in batches))


class World:
    """One partition of `__share_group_state`, and the coordinator that serves it."""

    def __init__(self, log: Iterable[KeyValue] = (), settings: ShareStateSettings = SETTINGS) -> None:
        self.now_ms, self.settings = 1_000_000, settings
        self.log = list(log)
        self.writes: deque[Append[RecordsWritten]] = deque()
        self.pruned: list[Prune] = []
        self.holds_writes = False
        self.topics = {TOPIC: 4, OTHER: 4}
        self.coordinator = self._new()
        self.load(7)

    def _new(self) -> ShareCoordinator:
        return ShareCoordinator(
            self.settings, lambda _: PARTITION, lambda topic_id: self.topics.get(topic_id, 0), self.now_ms
        )

    def load(self, epoch: int) -> None:
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
        self.coordinator = self._new()
        self.writes.clear()
        self.load(8)

    def ask(self, what: What, key: SharePartitionKey = KEY) -> Any:
        """Sends one request. The result; an empty list that gets it while it waits."""
        answers: list[Any] = []
        self.run(self.coordinator.submit([Request(key, what, answers.append)], self.now_ms))
        return answers[0] if answers else answers

    def begin(self, start_offset: int = -1, state_epoch: int = 1, key: SharePartitionKey = KEY) -> Any:
        """Initializes a share partition."""
        return self.ask(InitialState(state_epoch, start_offset), key)

    def read(self, leader_epoch: int = -1, key: SharePartitionKey = KEY) -> Any:
        """Reads a share partition."""
        return self.ask(ReadState(leader_epoch), key)

    def summary(self, key: SharePartitionKey = KEY) -> Any:
        """Reads the summary of a share partition."""
        return self.ask(ReadSummary(), key)

    def delete(self, key: SharePartitionKey = KEY) -> Any:
        """Removes a share partition."""
        return self.ask(DeleteState(), key)

    def run(self, actions: Iterable[Action[RecordsWritten]]) -> None:
        """Executes actions. A write ends at once unless `holds_writes`."""
        for action in actions:
            if isinstance(action, Answer):
                action.reply(action.message)
            elif isinstance(action, Append):
                self.writes.append(action)
                if not self.holds_writes:
                    self.write_ends()
            else:
                self.pruned.append(action.what)

    def write_ends(self, error: ErrorCode = ErrorCode.NONE, *, is_in_log: bool = False) -> None:
        """The oldest write ends; after an error its records may be in the log all the same."""
        append = self.writes.popleft()
        offset = len(self.log)
        if error is ErrorCode.NONE or is_in_log:
            self.log += append.records
        assert append.then is not None
        at = offset if error is ErrorCode.NONE else -1
        self.run(self.coordinator.appended(append.then, error, at, self.now_ms))

    def tick(self, after_ms: int) -> None:
        """Lets time pass, up to the last deadline in it."""
        end_ms = self.now_ms + after_ms
        while (next_ms := self.coordinator.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.run(self.coordinator.tick(self.now_ms))
        self.now_ms = end_ms

    @property
    def records(self) -> list[ShareStateRecord]:
        """What is in the log."""
        found = [read_record(key, value) for key, value in self.log]
        return [each for each in found if each is not None]

    @property
    def kinds(self) -> str:
        """The kinds of the log's records: s(napshot), u(pdate), t(ombstone)."""
        return "".join(
            "t" if each.content is None else "s" if type(each.content).__name__ == "ShareState" else "u"
            for each in self.records
        )
