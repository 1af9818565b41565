"""What is known of the times of records behind a table."""

import random

from headrace.lake.tail_times import SPANS_MAX, TailTimes, Times, Window


def test_what_is_not_wanted_is_skipped_from_the_start_on() -> None:
    known = TailTimes()
    known.learn("a", 10, 20, Times(100, 200))
    known.learn("a", 20, 30, Times(150, 300))
    known.learn("a", 30, 35, None)
    for window, first in (
        (Window(None, 100), 35),
        (Window(None, 101), 10),
        (Window(301, None), 35),
        (Window(300, None), 20),
        (Window(201, 202), 20),
        (Window(400, 500), 35),
        (Window(None, None), 10),
    ):
        assert known.first_wanted("a", 10, window) == first
        assert known.first_wanted("b", 10, window) == 10
    assert known.first_wanted("a", 9, Window(400, None)) == 9  # nothing is known of the record at 9
    assert known.first_wanted("a", 25, Window(400, None)) == 35
    assert known.first_wanted("a", 35, Window(400, None)) == 35


def test_no_wanted_record_is_ever_skipped() -> None:
    generator = random.Random(17)
    for _ in range(200):
        known, times = TailTimes(), [generator.randrange(50) for _ in range(100)]
        for _ in range(3 * SPANS_MAX):
            start = generator.randrange(100)
            end = min(100, start + generator.randrange(1, 10))
            known.learn("a", start, end, Times(min(times[start:end]), max(times[start:end])))
            at, low = generator.randrange(100), generator.randrange(50)
            window = Window(low, low + generator.randrange(1, 20))
            first = known.first_wanted("a", at, window)
            assert at <= first <= 100
            assert not any(window.may_have(Times(one, one)) for one in times[at:first])


def test_what_is_known_stays_small() -> None:
    known = TailTimes()
    for at in range(10 * SPANS_MAX):
        known.learn("a", at, at + 1, Times(at, at))
    assert len(known._spans["a"]) <= SPANS_MAX
    assert known.first_wanted("a", 0, Window(10 * SPANS_MAX, None)) == 10 * SPANS_MAX
