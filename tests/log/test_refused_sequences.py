"""What a refused batch of an unknown idempotent producer means for its later ones, and when it means nothing."""

import pytest

from headrace.errors import ErrorCode, InvalidProducerEpoch, OutOfOrderSequence
from headrace.limits import INT32_MAX, REFUSED_PRODUCERS_MAX, REFUSED_SEQUENCE_KEPT_MS
from headrace.log.producers.refused_sequences import RefusedSequences
from headrace.records.format2.header import read_header
from tests.log.support import NOW_MS, batch_of

WHERE = ("flights", 0)
RETRIED = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
GIVEN_UP = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)


class Refused(RefusedSequences):
    """Of producer 7, unless told otherwise."""

    def refuse(
        self,
        sequence: int,
        code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS,
        *,
        epoch: int = 0,
        count: int = 1,
        producer_id: int = 7,
        now_ms: int = NOW_MS,
        known: tuple[int, ...] = (),
    ) -> None:
        batch = batch_of(*[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
        self.note(WHERE, bytes(batch), code, known, now_ms)

    def accepts(
        self, sequence: int, *, epoch: int = 0, producer_id: int = 7, partition: int = 0, now_ms: int = NOW_MS
    ) -> bool:
        batch = batch_of(b"v", producer_id=producer_id, epoch=epoch, sequence=sequence)
        try:
            self.check(("flights", partition), read_header(batch), now_ms)
        except OutOfOrderSequence:
            return False
        return True


@pytest.fixture
def refused() -> Refused:
    return Refused()


@pytest.mark.parametrize("code", RETRIED)
def test_later_sequences_wait_for_a_batch_that_clients_send_again(refused: Refused, code: ErrorCode) -> None:
    refused.refuse(3, code)
    assert not refused.accepts(4)
    assert not refused.accepts(3 + INT32_MAX // 2)
    assert refused.accepts(3)
    assert not refused.entries


@pytest.mark.parametrize("code", GIVEN_UP)
def test_nothing_waits_for_a_batch_that_clients_give_up(refused: Refused, code: ErrorCode) -> None:
    refused.refuse(3, code)
    assert refused.accepts(4)


def test_a_batch_that_is_given_up_after_it_was_sent_again_is_not_waited_for_any_more(refused: Refused) -> None:
    refused.refuse(3)
    refused.refuse(4, ErrorCode.INVALID_TIMESTAMP)
    assert not refused.accepts(4)
    refused.refuse(3, ErrorCode.INVALID_TIMESTAMP)
    assert refused.accepts(4)


def test_a_batch_that_is_too_large_is_waited_for_if_a_client_can_split_it(refused: Refused) -> None:
    refused.refuse(0, ErrorCode.MESSAGE_TOO_LARGE, count=2)
    assert not refused.accepts(2)
    assert refused.accepts(0)
    refused.refuse(0, ErrorCode.MESSAGE_TOO_LARGE, count=1)
    assert refused.accepts(1)


def test_the_earliest_refused_batch_is_the_one_that_has_to_come(refused: Refused) -> None:
    refused.refuse(3)
    refused.refuse(5)
    assert not refused.accepts(5)
    refused.refuse(1)
    assert not refused.accepts(3)
    assert refused.accepts(1)


def test_an_earlier_sequence_than_the_refused_one_is_accepted(refused: Refused) -> None:
    refused.refuse(3)
    assert refused.accepts(0)


def test_sequences_wrap_to_zero_behind_a_refused_one(refused: Refused) -> None:
    refused.refuse(INT32_MAX - 1)
    assert not refused.accepts(1)
    assert refused.accepts(INT32_MAX - 1)
    refused.refuse(1)
    assert refused.accepts(INT32_MAX)


def test_a_newer_epoch_ends_the_waiting_and_an_older_one_is_fenced(refused: Refused) -> None:
    refused.refuse(0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        refused.accepts(5)
    refused.refuse(0, epoch=0)
    assert not refused.accepts(5, epoch=1)
    refused.refuse(0, epoch=2)
    assert not refused.accepts(5, epoch=2)
    assert refused.accepts(0, epoch=3)
    assert refused.accepts(5, epoch=1)


def test_other_producers_and_other_partitions_do_not_wait(refused: Refused) -> None:
    refused.refuse(0)
    assert refused.accepts(5, producer_id=8)
    assert refused.accepts(5, partition=1)


def test_a_producer_that_the_log_knows_takes_no_room(refused: Refused) -> None:
    refused.refuse(0, known=(7,))
    assert not refused.entries


def test_behind_a_damaged_batch_an_unknown_producer_begins_with_sequence_zero(refused: Refused) -> None:
    """What says whose batch it was may be what is damaged."""
    refused.refuse(0, ErrorCode.CORRUPT_MESSAGE, producer_id=7777)
    assert not refused.accepts(10)
    assert refused.accepts(5, partition=1)
    assert refused.accepts(0)
    assert refused.accepts(10, now_ms=NOW_MS + REFUSED_SEQUENCE_KEPT_MS)


def test_batches_without_a_producer_leave_nothing(refused: Refused) -> None:
    for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_ENOUGH_REPLICAS):
        refused.refuse(-1, code, producer_id=-1)
        refused.note(WHERE, bytes(batch_of(b"v", producer_id=7, sequence=0)[:60]), code, (), NOW_MS)
        refused.note(WHERE, None, code, (), NOW_MS)
    assert not refused.entries


def test_waiting_ends_when_nothing_can_be_in_flight_any_more(refused: Refused) -> None:
    refused.refuse(0)
    refused.refuse(0, now_ms=NOW_MS + 1000)
    refused.refuse(1, now_ms=NOW_MS + 2000)
    assert not refused.accepts(1, now_ms=NOW_MS + REFUSED_SEQUENCE_KEPT_MS)
    assert refused.accepts(1, now_ms=NOW_MS + 1000 + REFUSED_SEQUENCE_KEPT_MS)
    assert not refused.entries


@pytest.mark.slow
def test_the_oldest_and_what_is_over_make_room(refused: Refused) -> None:
    for producer_id in range(REFUSED_PRODUCERS_MAX + 3):
        refused.refuse(0, producer_id=producer_id, now_ms=NOW_MS + producer_id // 100)
    assert len(refused.entries) == REFUSED_PRODUCERS_MAX
    assert refused.accepts(1, producer_id=2)
    assert not refused.accepts(1, producer_id=3)
    refused.refuse(0, now_ms=NOW_MS + 2 * REFUSED_SEQUENCE_KEPT_MS)
    assert len(refused.entries) == 1
