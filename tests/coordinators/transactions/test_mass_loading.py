"""Thousands of ids are taken over in slices when their partition is loaded."""

from headrace.coordinators.runtime import Effect
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.types import TopicPartition

COUNT = 2 * ELEMENTS_PER_SLICE + 1


def test_prepared_transactions_are_taken_over_in_slices() -> None:
    settings = TransactionSettings(900_000, 3_600_000, 3_600_000, two_phase_commit_enable=False)
    coordinator = TransactionCoordinator(settings, lambda _: 0, 0, version=lambda: 2)
    replay = coordinator.partitions.begin(0, 0)
    assert replay is not None
    for number in range(COUNT):
        replay.transactions[f"x{number}"] = Transaction(
            f"x{number}", number, 1, 0, 0, TransactionState.PREPARE_COMMIT, frozenset({TopicPartition("t", 0)}), 0
        )
    steps = coordinator.loaded(replay, 0)
    sizes = []
    for actions in steps:
        assert all(isinstance(each, Effect) for each in actions)
        sizes.append(len(actions))
    assert sizes == [ELEMENTS_PER_SLICE, ELEMENTS_PER_SLICE, 1]


def test_a_partition_that_is_let_go_between_two_slices_leaves_no_ids() -> None:
    settings = TransactionSettings(900_000, 3_600_000, 3_600_000, two_phase_commit_enable=False)
    coordinator = TransactionCoordinator(settings, lambda _: 0, 0, version=lambda: 2)
    replay = coordinator.partitions.begin(0, 0)
    assert replay is not None
    for number in range(COUNT):
        replay.transactions[f"x{number}"] = Transaction(f"x{number}", number, 1, 0, 0, TransactionState.EMPTY)
    next(coordinator.loaded(replay, 0))
    coordinator.partitions.release(0)
    coordinator.unloaded(0, 0)
    assert coordinator.overview()[1] == []
