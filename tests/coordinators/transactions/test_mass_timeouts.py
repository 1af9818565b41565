"""Thousands of transactions that time out at once are aborted in slices, so that other requests are served between."""

from headrace.coordinators.runtime import Append
from headrace.coordinators.transactions.coordinator import Settings, TransactionCoordinator
from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.limits import TIMEOUTS_PER_TICK_MAX
from headrace.types import TopicPartition

COUNT = 2 * TIMEOUTS_PER_TICK_MAX + 1
TIMEOUT_MS, LATER_MS = 60_000, 90_000


def test_transactions_that_time_out_together_are_aborted_in_slices() -> None:
    settings = Settings(900_000, 3_600_000, 3_600_000, two_phase_commit_enable=False)
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
