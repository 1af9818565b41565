"""The token bucket against what it promises, and against Kafka's formula, in virtual time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.quotas.token_bucket import TokenBucket

RATES = st.floats(0.01, 1e9)
STEPS = st.lists(st.tuples(st.floats(0, 30), st.floats(0, 1e6)), max_size=40)


def test_a_full_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(100, 1000, now=5)
    assert bucket.spend(1000, 5) == 0
    assert bucket.spend(50, 5) == 0.5
    assert bucket.wait_s(5.25) == 0.25
    assert bucket.wait_s(5.5) == 0
    assert bucket.spend(10, 6.5) == 0
    assert bucket.wait_for(100, 6.5) == pytest.approx(0.1)


def test_what_is_larger_than_the_burst_passes_and_is_paid_for_afterwards() -> None:
    bucket = TokenBucket(10, 100, now=0)
    assert bucket.wait_for(1e9, 0) == 0
    assert bucket.spend(1100, 0) == 100
    assert bucket.wait_for(1e9, 0) == 110


@given(rate=RATES, seconds=st.integers(1, 20), steps=STEPS)
def test_nobody_gets_more_than_the_burst_and_the_rate(
    rate: float, seconds: int, steps: list[tuple[float, float]]
) -> None:
    """Whoever waits as told uses at most burst + rate * time + the last request."""
    bucket, now, used = TokenBucket(rate, rate * seconds, 0), 0.0, 0.0
    for pause, amount in steps:
        now += pause
        assert used <= (rate * seconds + rate * now) * (1 + 1e-9)
        wait = bucket.spend(amount, now)
        used += amount
        now += wait


@given(rate=RATES, seconds=st.integers(1, 20), steps=STEPS)
def test_the_wait_is_just_long_enough(rate: float, seconds: int, steps: list[tuple[float, float]]) -> None:
    bucket, now = TokenBucket(rate, rate * seconds, 0), 0.0
    for pause, amount in steps:
        now += pause
        wait = bucket.spend(amount, now)
        assert bucket.tokens <= bucket.burst
        if wait > 1e-3:
            assert bucket.wait_s(now + wait * 0.99) > 0
        now += wait * 1.01 + 1e-6
        assert bucket.wait_s(now) == 0


@given(rate=st.floats(1, 1e6), amounts=st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_within_one_window_the_wait_is_that_of_kafkas_rate(rate: float, amounts: list[float]) -> None:
    """Kafka: (observed - rate) / rate * window, with observed = used / window, and a window of (11 - 1) * 1 s."""
    window, bucket, used = 10.0, TokenBucket(rate, rate * 10, 0), 0.0
    for amount in amounts:
        used += amount
        kafka = max(0.0, (used / window - rate) / rate * window)
        assert bucket.spend(amount, 0) == pytest.approx(kafka, abs=1e-6, rel=1e-6)


@given(STEPS, st.lists(st.floats(0, 100), max_size=5))
def test_the_order_of_looks_changes_nothing(steps: list[tuple[float, float]], looks: list[float]) -> None:
    one, other, now = TokenBucket(7, 70, 0), TokenBucket(7, 70, 0), 0.0
    for pause, amount in steps:
        for share in looks:
            other.wait_for(amount, now + pause * min(1, share / 100))
        now += pause
        assert one.spend(amount, now) == pytest.approx(other.spend(amount, now), rel=1e-6, abs=1e-6)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 100, now=50)
    bucket.spend(100, 50)
    assert bucket.fill(40) == 0
    assert bucket.fill(51) == 10


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10), st.floats(0, 1e6))
def test_a_change_to_and_fro_gains_nothing(rates: list[float], used: float) -> None:
    bucket = TokenBucket(1000, 10_000, 0)
    bucket.spend(used, 0)
    before = bucket.tokens
    for rate in [*rates, 1000]:
        bucket.change(rate, rate * 10, 0)
    assert bucket.tokens == pytest.approx(before, rel=1e-6, abs=1e-3)


def test_a_higher_rate_ends_a_wait_and_a_lower_one_prolongs_it() -> None:
    bucket = TokenBucket(10, 100, 0)
    waits = []
    assert bucket.spend(200, 0) == 10
    for rate in (5, 10, 20, 40):
        bucket.change(rate, rate * 10, 0)
        waits.append(bucket.wait_s(0))
    assert waits == [30, 10, 0, 0]
    assert all(a >= b for a, b in pairwise(waits))


def test_only_a_bucket_of_which_nothing_is_used_is_full() -> None:
    bucket = TokenBucket(10, 100, 0)
    assert bucket.is_full(0)
    bucket.spend(1, 0)
    assert not bucket.is_full(0.05)
    assert bucket.is_full(0.1)
    bucket.spend(5, 1)
    bucket.refund(5)
    assert bucket.is_full(1)


def test_a_limit_that_moves_between_buckets_gives_its_burst_once_and_leaves_no_debt() -> None:
    """Two buckets share 100/s with a burst of a second. All of it moves from one to the other, and back, each
    second."""
    one, two = TokenBucket(99, 99, 0), TokenBucket(1, 1, 0)
    used = 0.0
    for now in range(1, 11):
        one, two = two, one
        one.retune(99, 99, now)
        two.retune(1, 1, now)
        assert min(one.tokens, two.tokens) >= 0
        for bucket in (one, two):
            used += bucket.tokens
            bucket.spend(bucket.tokens, now)
    assert used <= 100 + 100 * 10
