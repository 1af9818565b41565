"""Whatever is in `__transaction_state`, a coordinator loads it and serves requests: bad values block no id for ever."""

import random
from collections import deque

import pytest

from headrace.coordinators.runtime import Answer, Append
from headrace.coordinators.transactions.actions import Actions, SendMarkers
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.records import write_key, write_value
from headrace.coordinators.transactions.requests import InitProducer, TransactionProducer
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import PREPARED, Transaction, TransactionState
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT16_MAX, INT32_MAX, INT64_MAX
from headrace.types import TopicPartition

NAMES = "abcdef"
LONGS = (-INT64_MAX - 1, -1, 0, 5, INT64_MAX)
INTS = (-INT32_MAX - 1, -1, 0, 60_000, INT32_MAX)
EPOCHS = (-INT16_MAX - 1, -1, 0, 5, INT16_MAX - 1, INT16_MAX)


class Attack:
    """A coordinator that has loaded random records, and its requests."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 10**12
        self.coordinator = TransactionCoordinator(
            TransactionSettings(900_000, 10**9, 3_600_000, two_phase_commit_enable=True),
            lambda _: 0,
            self.now_ms,
            version=lambda: self.random.choice((0, 1, 2)),
        )
        replay = self.coordinator.partitions.begin(0, 0)
        assert replay is not None
        for name in NAMES:
            try:
                replay.record(write_key(name), self._value(name), 0)
            except KafkaError:
                continue  # the runtime skips the batch
        for actions in self.coordinator.loaded(replay, self.now_ms):
            self.run(actions)
        self.coordinator.partitions.finish(0, replay)

    def _value(self, name: str) -> bytes:
        choice = self.random.choice
        partitions = [TopicPartition(choice(("t", "", "\n")), choice(INTS)) for _ in range(self.random.randrange(4))]
        stored = Transaction(
            name,
            choice(LONGS),
            choice(INTS),
            choice(LONGS),
            choice(EPOCHS),
            choice(list(TransactionState)),
            frozenset(partitions),
            choice(LONGS),
            choice(LONGS),
            choice(LONGS),
            choice((-5, 0, 1, 2, 7)),
        )
        value = bytearray(write_value(stored, is_flexible=self.random.random() < 0.8))
        for _ in range(choice((0, 0, 0, 1, 3))):
            value[self.random.randrange(len(value))] = self.random.randrange(256)
        return bytes(value[: self.random.randrange(len(value))] if self.random.random() < 0.1 else value)

    def run(self, actions: Actions, fails: float = 0.2) -> list[object]:
        """Executes actions; some writes fail, and some markers are not written. Returns the answers."""
        answers: list[object] = []
        left = deque(actions)
        while left:
            action = left.popleft()
            if isinstance(action, Answer):
                answers.append(action.message)
            elif isinstance(action, Append):
                failure = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.random.random() < fails else ErrorCode.NONE
                assert action.then is not None
                left += self.coordinator.appended(action.then, failure, 0, self.now_ms)
            elif isinstance(action.what, SendMarkers) and self.random.random() >= fails:
                self.write_markers(action.what)
        return answers

    def write_markers(self, sent: SendMarkers) -> None:
        """All markers of a transaction are written."""
        for each in sent.partitions:
            self.run(
                self.coordinator.marker_written(
                    sent.transactional_id, sent.producer_id, sent.producer_epoch, each, self.now_ms
                )
            )

    def request(self, number: int) -> None:
        """One random request."""
        choice, coordinator = self.random.choice, self.coordinator
        name, new_id = choice(NAMES), choice((None, 1000 + number))
        _, found = coordinator.describe(name)
        producer = (
            TransactionProducer(5, 0) if found is None else TransactionProducer(found.producer_id, found.producer_epoch)
        )
        match self.random.randrange(4):
            case 0:
                request = InitProducer(name, choice(INTS), choice((None, producer)))
                actions = coordinator.init_producer(request, new_id, _ignored, self.now_ms)
            case 1:
                added = frozenset((TopicPartition("t", self.random.randrange(3)),))
                actions = coordinator.add_partitions(name, producer, added, choice((0, 2)), _ignored, self.now_ms)
            case 2:
                is_commit, version = choice((True, False)), choice((0, 2))
                actions = coordinator.end(name, producer, is_commit, version, new_id, _ignored, self.now_ms)
            case _:
                actions = coordinator.tick(self.now_ms)
        self.run(actions)
        self.now_ms += choice((1, 1_000, 1_000_000))


def _ignored(_message: object) -> None:
    """A client that does not listen."""


@pytest.mark.parametrize("seed", range(0, 400, 50))
def test_any_records_are_loaded_and_any_request_is_served(seed: int) -> None:
    for each in range(seed, seed + 50):
        attack = Attack(each)
        for number in range(30):
            attack.request(number)
        for entry in attack.coordinator._ids.entries.values():
            is_waiting = entry.transaction.state in PREPARED  # for markers that were not written
            assert is_waiting or entry.pending is None, f"seed {each}: id {entry.transaction} is blocked"
