"""The life of a transaction at its coordinator: begin, commit, abort, fencing, time-out, failover, expiry."""

import pytest

from headrace.coordinators.transactions.records import write_key, write_value
from headrace.coordinators.transactions.requests import Initial, TransactionProducer
from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.coordinators.transactions.transactional_ids import RETRY_MS
from headrace.errors import ErrorCode
from headrace.limits import INT16_MAX
from tests.coordinators.transactions.world import EPOCH, ID, SETTINGS, T0, T1, World

TIMEOUT_MS = 60_000
LAST_EPOCH = INT16_MAX - 1


def world_with_epoch(epoch: int) -> World:
    """A world whose id has had nearly all epochs."""
    stored = Transaction(ID, 4001, TIMEOUT_MS, 1_000_000, epoch)
    world = World(log=[(write_key(ID), write_value(stored))], version=2)
    world.next_id = 9000
    return world


@pytest.mark.parametrize("way", ["time-out", "EndTxn", "InitProducerId"])
def test_a_transaction_that_was_begun_in_the_last_epoch_ends_in_it(way: str) -> None:
    """No coordinator should begin one; a value that cannot be stored would block the id for ever."""
    stored = Transaction(
        ID, 4001, TIMEOUT_MS, 1_000_000, INT16_MAX, TransactionState.ONGOING, frozenset({T0}), 1_000_000
    )
    world = World(log=[(write_key(ID), write_value(stored))], version=2)
    world.next_id = 9000
    if way == "time-out":
        world.tick(TIMEOUT_MS)
    elif way == "EndTxn":
        assert world.end(TransactionProducer(4001, INT16_MAX), commit=False, version=2).error is ErrorCode.NONE
    else:
        assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.sent[-1].producer_epoch == INT16_MAX
    world.markers_written()
    found = world.init()
    assert (found.error, found.producer.producer_id > 9000, found.producer.epoch in (0, 1)) == (
        ErrorCode.NONE,
        True,
        True,
    )


@pytest.fixture
def world() -> World:
    return World()


def test_a_producer_gets_a_new_id_then_the_next_epoch_of_it(world: World) -> None:
    first, second = world.init(), world.init()
    assert first == Initial(ErrorCode.NONE, TransactionProducer(4001, 0))
    assert second == Initial(ErrorCode.NONE, TransactionProducer(4001, 1))


@pytest.mark.parametrize(
    ("kind", "is_commit"), [(TransactionState.COMPLETE_COMMIT, True), (TransactionState.COMPLETE_ABORT, False)]
)
def test_a_transaction_is_answered_when_decided_and_complete_when_all_markers_are_written(
    world: World, kind: TransactionState, is_commit: bool
) -> None:
    producer = world.begun(T0, T1)
    assert world.end(producer, commit=is_commit).error is ErrorCode.NONE
    (sent,) = world.sent
    assert (set(sent.partitions), sent.is_commit, sent.coordinator_epoch) == ({T0, T1}, is_commit, EPOCH)
    assert (sent.producer_id, sent.producer_epoch) == producer
    world.markers_written(T0)
    assert world.state().state.label in ("PrepareCommit", "PrepareAbort")
    world.markers_written(T0)  # repeated
    assert world.state().state.label in ("PrepareCommit", "PrepareAbort")
    world.markers_written(T1)
    assert world.state().state is kind
    assert world.state().partitions == frozenset()


def test_nothing_is_sent_before_the_decision_is_in_the_log(world: World) -> None:
    producer = world.begun()
    world.holds_writes = True
    assert world.end(producer) is None
    assert world.sent == []
    assert world.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_ends()
    assert world.answers.pop().error is ErrorCode.NONE
    assert len(world.sent) == 1


def test_while_markers_are_written_requests_are_told_to_come_again(world: World) -> None:
    producer = world.begun()
    world.end(producer)
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.add(producer, T0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert set(world.coordinator.verify_partitions(ID, producer, [T0]).values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}


def test_a_new_producer_aborts_the_transaction_of_its_predecessor_and_fences_it(world: World) -> None:
    old = world.begun()
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.sent[-1].producer_epoch == old.epoch + 1
    assert not world.sent[-1].is_commit
    world.markers_written()
    assert world.end(old).error is ErrorCode.PRODUCER_FENCED
    assert world.add(old, T0) is ErrorCode.PRODUCER_FENCED
    assert world.init().producer == TransactionProducer(old.producer_id, old.epoch + 2)


def test_a_transaction_past_its_time_out_is_aborted_with_a_bumped_epoch(world: World) -> None:
    producer = world.begun()
    world.tick(TIMEOUT_MS - 1)
    assert world.sent == []
    world.tick(1)
    assert (world.sent[-1].is_commit, world.sent[-1].producer_epoch) == (False, producer.epoch + 1)
    world.markers_written()
    assert world.end(producer).error is ErrorCode.PRODUCER_FENCED


def test_further_partitions_do_not_postpone_the_time_out(world: World) -> None:
    producer = world.begun(T0)
    world.tick(TIMEOUT_MS - 1)
    world.add(producer, T1)
    world.tick(1)
    assert len(world.sent) == 1


def test_a_failed_abort_at_the_time_out_is_tried_again_with_the_same_epoch(world: World) -> None:
    producer = world.begun()
    world.holds_writes = True
    world.tick(TIMEOUT_MS)
    world.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.add(producer, T0) is ErrorCode.PRODUCER_FENCED  # the record may be in the log
    world.tick(RETRY_MS)
    world.write_ends()
    assert world.sent[-1].producer_epoch == producer.epoch + 1


def test_a_failed_write_of_the_complete_state_is_tried_again(world: World) -> None:
    producer = world.begun()
    world.end(producer)
    world.holds_writes = True
    world.markers_written()
    world.write_ends(ErrorCode.REQUEST_TIMED_OUT)
    assert world.state().state is TransactionState.PREPARE_COMMIT
    world.tick(RETRY_MS)
    world.write_ends()
    assert world.state().state is TransactionState.COMPLETE_COMMIT


def test_the_next_coordinator_finishes_what_is_decided(world: World) -> None:
    producer = world.begun()
    world.end(producer)
    world.markers_written(T0)
    world.fail_over()
    assert world.sent[-1].partitions == {T0, T1}
    assert world.sent[-1].coordinator_epoch == EPOCH + 1
    world.markers_written()
    assert world.state().state is TransactionState.COMPLETE_COMMIT
    assert world.end(producer).error is ErrorCode.NONE  # a retry of the commit whose answer was lost


def test_the_next_coordinator_times_out_what_is_ongoing(world: World) -> None:
    world.begun()
    world.tick(TIMEOUT_MS - 1)
    world.fail_over()
    assert world.sent == []
    world.tick(1)
    assert not world.sent[-1].is_commit


def test_a_write_that_ends_after_the_partition_moved_away_decides_nothing(world: World) -> None:
    producer = world.begun()
    world.holds_writes = True
    world.end(producer)
    world.run(world.coordinator.unloaded(0, world.now_ms))
    world.write_ends()
    assert world.answers.pop().error is ErrorCode.NOT_COORDINATOR
    assert world.sent == []
    assert world.dropped == [0]


def test_a_commit_that_failed_may_be_followed_by_an_abort_even_if_it_is_in_the_log(world: World) -> None:
    producer = world.begun()
    world.holds_writes = True
    world.end(producer)
    world.write_ends(ErrorCode.REQUEST_TIMED_OUT, is_in_log=True)
    assert world.answers.pop().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.holds_writes = False
    assert world.end(producer, commit=False).error is ErrorCode.NONE
    world.fail_over()
    assert not world.sent[-1].is_commit  # the last record counts, and no marker of the first was sent


@pytest.mark.parametrize("version", [0, 2])
def test_partitions_are_verified_only_within_the_transaction(world: World, version: int) -> None:
    producer = world.begun(T0, version=version)
    assert world.coordinator.verify_partitions(ID, producer, [T0, T1]) == {
        T0: ErrorCode.NONE,
        T1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    other = TransactionProducer(producer.producer_id + 1, producer.epoch)
    assert world.coordinator.verify_partitions(ID, other, [T0])[T0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old = TransactionProducer(producer.producer_id, producer.epoch - 1)
    assert world.coordinator.verify_partitions(ID, old, [T0])[T0] is ErrorCode.PRODUCER_FENCED


class TestTransactionVersion2:
    def test_each_transaction_has_an_epoch_of_its_own(self, world: World) -> None:
        producer = world.begun(version=2)
        ended = world.end(producer, version=2)
        assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, producer.epoch + 1)
        assert world.sent[-1].producer_epoch == producer.epoch + 1
        world.markers_written()
        assert world.add(producer, T0, version=2) is ErrorCode.PRODUCER_FENCED
        assert world.add(TransactionProducer(ended.producer_id, ended.producer_epoch), T0, version=2) is ErrorCode.NONE

    def test_a_retry_of_the_same_end_gets_the_same_epoch(self, world: World) -> None:
        producer = world.begun(version=2)
        ended = world.end(producer, version=2)
        world.markers_written()
        assert world.end(producer, version=2) == ended
        assert world.end(producer, commit=False, version=2).error is ErrorCode.INVALID_TXN_STATE

    def test_a_commit_after_the_time_out_is_fenced(self) -> None:
        """Kafka Streams goes on after this error. INVALID_TXN_STATE, as of Apache Kafka up to 4.3, ends it."""
        world = World(version=2)
        producer = world.begun(version=2)
        world.tick(TIMEOUT_MS)
        assert world.end(producer, version=2).error is ErrorCode.CONCURRENT_TRANSACTIONS
        world.markers_written()
        assert world.end(producer, version=2).error is ErrorCode.PRODUCER_FENCED
        assert world.end(producer, commit=False, version=2).error is ErrorCode.NONE

    def test_an_abort_without_partitions_bumps_the_epoch_and_a_commit_is_refused(self, world: World) -> None:
        producer = world.init().producer
        assert world.end(producer, version=2).error is ErrorCode.INVALID_TXN_STATE
        ended = world.end(producer, commit=False, version=2)
        assert (ended.error, ended.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
        assert world.sent == []
        assert world.state().state is TransactionState.COMPLETE_ABORT

    @pytest.mark.parametrize("client", [0, 2])
    def test_a_fence_bumps_the_epoch_once_and_the_fenced_producer_may_continue(self, client: int) -> None:
        world = World(version=2)
        producer = world.begun(version=client)
        world.tick(TIMEOUT_MS)
        world.markers_written()
        assert world.add(producer, T0) is ErrorCode.PRODUCER_FENCED
        assert world.init(expected=producer).producer == TransactionProducer(producer.producer_id, producer.epoch + 1)

    def test_a_new_producer_gets_the_epoch_after_that_of_the_fence(self) -> None:
        world = World(version=2)
        producer = world.begun(version=2)
        world.init()
        assert world.sent[-1].producer_epoch == producer.epoch + 1
        world.markers_written()
        assert world.init().producer.epoch == producer.epoch + 2

    def test_an_exhausted_epoch_rotates_to_a_new_producer_id_and_its_retry_finds_it(self) -> None:
        world = world_with_epoch(LAST_EPOCH - 1)
        ended = world.end(TransactionProducer(4001, LAST_EPOCH - 1), commit=False, version=2)
        producer = TransactionProducer(4001, LAST_EPOCH)
        assert (ended.producer_id, ended.producer_epoch) == producer
        assert world.add(producer, T0, version=2) is ErrorCode.NONE
        ended = world.end(producer, version=2)
        assert (ended.producer_id, ended.producer_epoch) == (9001, 0)
        assert (world.sent[-1].producer_id, world.sent[-1].producer_epoch) == (4001, INT16_MAX)
        world.markers_written()
        assert world.end(producer, version=2) == ended
        world.fail_over()
        assert world.end(producer, version=2) == ended


def test_an_exhausted_epoch_gets_a_new_producer_id_at_the_next_initialization() -> None:
    world = world_with_epoch(LAST_EPOCH - 1)
    assert world.init().producer == TransactionProducer(4001, LAST_EPOCH)
    assert world.init().producer == TransactionProducer(9001, 0)


def test_a_continuing_producer_names_its_epoch_and_an_old_one_is_fenced(world: World) -> None:
    first = world.init().producer
    second = world.init(expected=first).producer
    assert second == TransactionProducer(first.producer_id, first.epoch + 1)
    assert world.init(expected=first).producer == second  # a retry whose answer was lost
    third = world.init(expected=second).producer
    assert world.init(expected=first).error is ErrorCode.PRODUCER_FENCED
    assert world.init(expected=TransactionProducer(first.producer_id + 9, 0)).error is ErrorCode.PRODUCER_FENCED
    assert third.epoch == second.epoch + 1


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [(0, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (1, ErrorCode.NONE)],
)
def test_a_time_out_out_of_range_is_refused(world: World, timeout_ms: int, error: ErrorCode) -> None:
    assert world.init(timeout_ms=timeout_ms).error is error


def test_two_phase_commit_must_be_enabled_and_then_never_times_out() -> None:
    assert World().init(is_two_phase=True).error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    world = World(SETTINGS._replace(two_phase_commit_enable=True))
    producer = world.init(is_two_phase=True).producer
    world.add(producer, T0)
    world.tick(SETTINGS.id_expiration_ms)
    assert world.sent == []


def test_an_id_expires_when_it_was_not_used_and_not_while_its_transaction_is_open() -> None:
    world = World(SETTINGS._replace(two_phase_commit_enable=True))
    producer = world.init(is_two_phase=True).producer
    world.add(producer, T0)
    world.tick(SETTINGS.id_expiration_ms + SETTINGS.expiration_check_interval_ms)
    assert world.state().state is TransactionState.ONGOING
    world.end(producer)
    world.markers_written()
    world.tick(SETTINGS.id_expiration_ms + SETTINGS.expiration_check_interval_ms)
    assert world.coordinator.describe(ID)[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.log[-1][1] is None
    world.fail_over()
    assert world.coordinator.describe(ID)[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.add(producer, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_ids_with_a_prefix_are_removed_when_their_transactions_have_ended(world: World) -> None:
    def removed(prefix: str) -> int:
        found, actions = world.coordinator.remove_with(prefix, world.now_ms)
        world.run(actions)
        return found

    producer = world.begun()
    assert removed("payments.") == 0
    assert removed("pay") == 1
    assert (world.sent[-1].is_commit, world.sent[-1].producer_epoch) == (False, producer.epoch + 1)
    assert removed("pay") == 1  # its markers are missing
    assert world.coordinator.describe(ID)[0] is ErrorCode.NONE
    world.markers_written()
    world.holds_writes = True
    assert removed("pay") == 1
    assert removed("pay") == 1  # its tombstone is being written
    world.write_ends()
    assert not world.writes
    assert removed("pay") == 0
    assert world.log[-1][1] is None
    world.fail_over()
    assert world.coordinator.describe(ID)[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_id_whose_tombstone_is_not_written_stays(world: World) -> None:
    producer = world.init().producer
    world.holds_writes = True
    world.tick(SETTINGS.id_expiration_ms + SETTINGS.expiration_check_interval_ms)
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.holds_writes = False
    assert world.init().producer == TransactionProducer(producer.producer_id, producer.epoch + 1)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_may_be_repeated_with_the_same_outcome_only(world: World, commit: bool) -> None:
    producer = world.begun()
    world.end(producer, commit=commit)
    world.markers_written()
    assert world.end(producer, commit=commit).error is ErrorCode.NONE
    assert world.end(producer, commit=not commit).error is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_without_partitions_cannot_end(world: World) -> None:
    producer = world.init().producer
    assert world.end(producer).error is ErrorCode.INVALID_TXN_STATE


def test_an_unknown_id_has_no_transactions(world: World) -> None:
    assert world.add(TransactionProducer(1, 0), T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end(TransactionProducer(1, 0)).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.coordinator.describe(ID)[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_first_initialization_that_fails_leaves_nothing(world: World) -> None:
    world.holds_writes = True
    world.init()
    world.write_ends(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.answers.pop().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.needs_producer_id(ID)
    assert world.coordinator.overview() == (ErrorCode.NONE, [])


def test_a_set_clock_neither_aborts_nor_keeps_a_transaction(world: World) -> None:
    world.begun()
    world.coordinator.clock_was_set(3_600_000)
    world.tick(3_600_000)
    assert world.sent == []
    world.tick(TIMEOUT_MS)
    assert len(world.sent) == 1
