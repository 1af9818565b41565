"""Records that were lost and that nobody asked about: they are noted where they become garbage, and logged later."""

import gc
import logging

import pytest

from headrace.client.producer import delivery, lost_records
from headrace.client.producer.accumulator import Accumulator, Limits
from headrace.client.producer.lost_records import LostRecords
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

PARTITION = TopicPartition("mine", 0)
REFUSED = KafkaError("no", ErrorCode.INVALID_RECORD)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> LostRecords:
    """Of this test alone: producers of others may still run."""
    own = LostRecords()
    monkeypatch.setattr(delivery, "LOST", own)
    return own


def lose() -> None:
    held = Accumulator(Limits(100, 0.0, 1000, 60.0))
    held.append(PARTITION, None, b"x", 0, (), 0.0)
    batch = held.queues[PARTITION].take_head()
    batch.finish(-1, -1, REFUSED)


@pytest.mark.slow
def test_a_batch_that_becomes_garbage_logs_nothing_until_a_sender_does(
    lost: LostRecords, caplog: pytest.LogCaptureFixture
) -> None:
    """The garbage collector may run in a thread that holds a lock of the logging."""
    with caplog.at_level(logging.ERROR):
        lose()
        gc.collect()
        assert "mine" not in caplog.text
        lost.tell(now=True)
        assert "1 record for mine-0 not delivered, and nobody asked for their result: INVALID_RECORD: no" in caplog.text


def test_a_line_tells_of_all_records_of_a_partition(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostRecords()
    with caplog.at_level(logging.ERROR):
        lost.note(PARTITION, 1, REFUSED)
        lost.tell()
        lost.note(PARTITION, 2, REFUSED)
        lost.note(PARTITION, 3, REFUSED)
        lost.tell()  # too soon
        assert len(caplog.records) == 1
        lost.tell(now=True)
        assert caplog.records[1].getMessage().startswith("5 records for mine-0 not delivered, and nobody")
        for number in range(13):
            lost.note(TopicPartition("u", number), 20 - number, REFUSED)
        lost.tell(now=True)
    assert len(caplog.records) == 12
    assert "11 records for u-9 not delivered (and 27 for other partitions)" in caplog.text


def test_notes_are_bounded() -> None:
    lost = LostRecords()
    for _ in range(lost_records._NOTED_MAX + 5):
        lost.note(PARTITION, 1, REFUSED)
    assert len(lost._noted) == lost_records._NOTED_MAX
