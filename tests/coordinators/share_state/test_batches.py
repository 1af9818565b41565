"""Merging of state batches: compared with a dictionary of records, and with examples of Apache Kafka's combiner."""

import random
from itertools import pairwise

import pytest

from headrace.coordinators.share_state.batches import merged
from headrace.coordinators.share_state.persister import StateBatch

Batches = tuple[StateBatch, ...]
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def batches(*each: tuple[int, int, int, int]) -> Batches:
    return tuple(StateBatch(*one) for one in each)


def dumb(stored: Batches, written: Batches, start_offset: int) -> dict[int, tuple[int, int]]:
    """Record -> (delivery count, delivery state), the strongest of its statements."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in (*stored, *written):
        for offset in range(first, last + 1):
            if offset >= start_offset:
                found[offset] = max(found.get(offset, (count, state)), (count, state))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_says_of_each_record_what_a_dictionary_says(seed: int) -> None:
    chance = random.Random(seed)
    stored: Batches = ()
    start = -1
    for _ in range(60):
        written = []
        for _ in range(chance.randrange(5)):
            first = chance.randrange(80)
            count, state = chance.randrange(1, 4), chance.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
            written.append(StateBatch(first, first + chance.randrange(12), state, count))
        start = chance.choice((start, start, max(start, chance.randrange(40))))
        wanted = dumb(stored, tuple(written), start)
        stored = merged(stored, tuple(written), start)
        assert dumb(stored, (), -1) == wanted
        for one, two in pairwise(stored):
            assert one.last_offset < two.first_offset
            assert one[2:] != two[2:] or one.last_offset + 1 < two.first_offset
        assert merged((), stored, -1) == stored


@pytest.mark.parametrize(
    ("stored", "written", "start", "wanted"),
    [
        (batches((100, 110, 0, 1)), batches((111, 119, 0, 1)), -1, batches((100, 119, 0, 1))),
        (batches((100, 110, 0, 1)), batches((111, 119, 2, 2)), -1, batches((100, 110, 0, 1), (111, 119, 2, 2))),
        (batches((100, 110, 0, 1)), batches((100, 110, 0, 2)), -1, batches((100, 110, 0, 2))),
        (batches((100, 110, 0, 3)), batches((100, 115, 2, 1)), -1, batches((100, 110, 0, 3), (111, 115, 2, 1))),
        (
            batches((100, 115, 0, 1)),
            batches((105, 110, 0, 2)),
            -1,
            batches((100, 104, 0, 1), (105, 110, 0, 2), (111, 115, 0, 1)),
        ),
        (batches((100, 110, 0, 2)), batches((105, 115, 0, 1)), -1, batches((100, 110, 0, 2), (111, 115, 0, 1))),
        (batches((100, 110, 0, 1), (120, 130, 0, 1)), (), 105, batches((105, 110, 0, 1), (120, 130, 0, 1))),
        (batches((100, 110, 0, 1)), batches((90, 120, 4, 1)), 115, batches((115, 120, 4, 1))),
        (batches((100, 110, 0, 1)), (), 111, ()),
    ],
)
def test_lays_a_write_over_what_is_stored(stored: Batches, written: Batches, start: int, wanted: Batches) -> None:
    assert merged(stored, written, start) == wanted


def test_a_batch_that_ends_before_it_begins_says_nothing() -> None:
    assert merged((), batches((10, 9, 0, 1), (20, 21, 0, 1)), -1) == batches((20, 21, 0, 1))
