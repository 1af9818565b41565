"""What a fetch returns when it may not take everything, asked through a raw socket of headrace and of Apache Kafka.

Five batches of one 1,024-byte record are 1,094 bytes each. A fetch of 3,500 bytes ends inside the fourth: the file
is sent as it is, and the reader drops what is torn. A fetch smaller than a batch gets that batch whole, and a fetch
from tests.eventually import eventually
from the middle of a batch gets it from its beginning.
"""

import uuid
from collections.abc import Callable

import pytest

from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.wire import Fetched, Wire, batch, stored_batches

pytestmark = pytest.mark.slow  # processes of its own

BATCH_SIZE = 1_094
Answers = dict[str, Fetched]


def write(wire: Wire, batches: list[bytes]) -> str:
    """A new topic that holds these batches."""
    topic = f"small-{uuid.uuid4().hex[:12]}"
    assert wire.create_topic(topic, configs={"retention.ms": "-1"}) == 0
    eventually(lambda: wire.list_offset(topic, -1)[0] == 0, f"a leader of {topic}")
    for each in batches:
        assert wire.produce(topic, each).error_code == 0
    return topic


def single_record_batches(wire: Wire) -> Answers:
    """Five batches of one record: a fetch that ends in the fourth, and the one after it."""
    topic = write(wire, [batch([bytes([number]) * 1_024]) for number in range(5)])
    return {
        "3500 bytes": wire.fetch(topic, 0, max_bytes=3_500),
        "then the rest": wire.fetch(topic, 3, max_bytes=3_500),
        "3500 bytes of the partition": wire.fetch(topic, 0, partition_max_bytes=3_500),
        "exactly three": wire.fetch(topic, 0, max_bytes=3 * BATCH_SIZE),
        "one byte": wire.fetch(topic, 2, max_bytes=1),
        "everything": wire.fetch(topic, 0),
        "at the end": wire.fetch(topic, 5, max_wait_ms=10),
        "past the end": wire.fetch(topic, 6),
    }


def two_records_in_a_batch(wire: Wire) -> Answers:
    """One batch of 1 KiB and 2 KiB: asked for less than it, and from its second record."""
    topic = write(wire, [batch([b"a" * 1_024, b"b" * 2_048])])
    return {
        "10 bytes": wire.fetch(topic, 0, max_bytes=10),
        "10 bytes of the partition": wire.fetch(topic, 0, partition_max_bytes=10),
        "from the second record": wire.fetch(topic, 1),
        "10 bytes from the second record": wire.fetch(topic, 1, max_bytes=10),
    }


def test_a_fetch_of_3500_bytes_ends_inside_the_fourth_batch(headrace_server: StartHeadrace) -> None:
    with Wire(headrace_server().bootstrap) as wire:
        answers = single_record_batches(wire)
    everything = answers["everything"].records
    assert [each.size for each in stored_batches(everything)] == [BATCH_SIZE] * 5
    assert answers["3500 bytes"].records == everything[:3_500]
    assert len(stored_batches(answers["3500 bytes"].records)) == 3
    assert answers["then the rest"].records == everything[3 * BATCH_SIZE :]
    assert answers["3500 bytes of the partition"].records == everything[:3_500]
    assert answers["exactly three"].records == everything[: 3 * BATCH_SIZE]


def test_a_fetch_smaller_than_a_batch_gets_that_batch_whole(headrace_server: StartHeadrace) -> None:
    with Wire(headrace_server().bootstrap) as wire:
        answers = two_records_in_a_batch(wire)
        one_byte = single_record_batches(wire)["one byte"]
    whole = answers["from the second record"].records
    assert [(each.base_offset, each.record_count) for each in stored_batches(whole)] == [(0, 2)]
    assert answers["10 bytes"].records == answers["10 bytes of the partition"].records == whole
    assert [each.base_offset for each in stored_batches(one_byte.records)] == [2]
    assert len(one_byte.records) == BATCH_SIZE


def test_a_fetch_from_the_middle_of_a_batch_gets_it_from_its_beginning(headrace_server: StartHeadrace) -> None:
    with Wire(headrace_server().bootstrap) as wire:
        answers = two_records_in_a_batch(wire)
    for name in ("from the second record", "10 bytes from the second record"):
        (found,) = stored_batches(answers[name].records)
        assert (found.base_offset, found.record_count) == (0, 2)


def test_a_fetch_at_the_end_waits_and_past_the_end_is_out_of_range(headrace_server: StartHeadrace) -> None:
    with Wire(headrace_server().bootstrap) as wire:
        answers = single_record_batches(wire)
    assert (answers["at the end"].error_code, answers["at the end"].records) == (0, b"")
    assert answers["past the end"].error_code == 1


@pytest.mark.parametrize("scenario", [single_record_batches, two_records_in_a_batch])
def test_headrace_answers_with_the_bytes_that_apache_kafka_answers_with(
    headrace_server: StartHeadrace, apache_kafka: str, scenario: Callable[[Wire], Answers]
) -> None:
    with Wire(headrace_server().bootstrap) as ours, Wire(apache_kafka) as theirs:
        assert scenario(ours) == scenario(theirs)
