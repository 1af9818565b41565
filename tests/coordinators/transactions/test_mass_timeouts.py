"""Thousands of transactions that time out at once, or ids that expire, are handled in slices: other requests are served
in between."""

from headrace.coordinators.runtime import Append
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.coordinators.transactions.transactional_ids import RETRY_MS
from headrace.errors import ErrorCode
from headrace.limits import TIMEOUTS_PER_TICK_MAX, TRANSACTIONAL_IDS_PER_EXPIRY_TICK
from headrace.types import TopicPartition

COUNT = 2 * TIMEOUTS_PER_TICK_MAX + 1
TIMEOUT_MS, LATER_MS = 60_000, 90_000


def test_transactions_that_time_out_together_are_aborted_in_slices() -> None:
    settings = TransactionSettings(900_000, 3_600_000, 3_600_000, two_phase_commit_enable=False)
    coordinator = TransactionCoordinator(settings, lambda _: 0, 0, version=lambda: 2)
    replay = coordinator.partitions.begin(0, 0)
    assert replay is not None
    for number in range(COUNT):
        replay.transactions[f"x{number}"] = Transaction(
            f"x{number}", number, TIMEOUT_MS, 0, 0, TransactionState.ONGOING, frozenset({TopicPartition("t", 0)}), 0
        )
    assert not any(coordinator.loaded(replay, 0))
    coordinator.partitions.finish(0, replay)
    slices = []
    while (next_ms := coordinator.next_deadline_ms()) is not None and next_ms <= LATER_MS:
        actions = coordinator.tick(LATER_MS)
        assert all(isinstance(each, Append) for each in actions)
        slices.append(len(actions))
    assert slices == [TIMEOUTS_PER_TICK_MAX, TIMEOUTS_PER_TICK_MAX, 1]


def test_ids_that_expire_together_are_removed_in_slices() -> None:
    settings = TransactionSettings(900_000, 3_600_000, 600_000, two_phase_commit_enable=False)
    coordinator = TransactionCoordinator(settings, lambda _: 0, 0, version=lambda: 2)
    replay = coordinator.partitions.begin(0, 0)
    assert replay is not None
    for number in range(2 * TRANSACTIONAL_IDS_PER_EXPIRY_TICK + 1):
        replay.transactions[f"x{number}"] = Transaction(f"x{number}", number, TIMEOUT_MS, 0, 0)
    assert not any(coordinator.loaded(replay, 0))
    coordinator.partitions.finish(0, replay)
    now_ms, removed = 3_600_000, []
    while coordinator.overview()[1]:
        writes = [each for each in coordinator.tick(now_ms) if isinstance(each, Append)]
        for each in writes:
            assert each.then is not None
            coordinator.appended(each.then, ErrorCode.NONE, 0, now_ms)
        removed.append(sum(len(each.records) for each in writes))
        now_ms += RETRY_MS
    assert removed == [TRANSACTIONAL_IDS_PER_EXPIRY_TICK, TRANSACTIONAL_IDS_PER_EXPIRY_TICK, 1]
    assert coordinator.next_deadline_ms() == now_ms - RETRY_MS + 600_000
