"""The meter of one interval: bytes, and the time in which clients were held."""

from headrace.instances.flow.meter import BucketMeter, Metered
from headrace.quotas.token_bucket import TokenBucket


def test_bytes_are_counted_by_the_second_that_really_passed() -> None:
    meter = BucketMeter(10)
    meter.count(300, 0, 10.5)
    meter.count(100, 0, 11)
    assert meter.take(12) == Metered(200, 0)
    assert meter.take(13) == Metered(0, 0)


def test_overlapping_waits_count_once() -> None:
    """Held from 0.1 to 0.5, then to 0.7 by another request, and from 0.8 to 0.9."""
    meter = BucketMeter(0)
    meter.count(1, 0.4, 0.1)
    meter.count(1, 0.4, 0.3)
    meter.count(1, 0.1, 0.8)
    assert round(meter.take(1).throttled_s, 9) == 0.7


def test_a_wait_beyond_the_interval_goes_on_in_the_next_ones() -> None:
    meter = BucketMeter(0)
    meter.count(1, 2.0, 0.5)
    assert meter.take(1).throttled_s == 0.5
    assert meter.take(2).throttled_s == 1
    assert meter.take(3).throttled_s == 0.5
    assert meter.take(4).throttled_s == 0


def test_a_higher_rate_ends_the_wait_sooner() -> None:
    """1000 bytes of debt at 100/s would hold for 10 s; after 1 s the rate is 900/s, and the other 900 take one more."""
    bucket, meter = TokenBucket(100, 0, 0), BucketMeter(0)
    meter.count(1000, bucket.spend(1000, 0), 0)
    bucket.change(900, 0, 1)
    meter.hold_until(1 + bucket.wait_s(1), 1)
    assert meter.take(4).throttled_s == 2


def test_an_interval_of_no_length_is_left_for_the_next() -> None:
    meter = BucketMeter(5)
    meter.count(10, 0, 5)
    assert meter.take(5) == Metered(0, 0)
    assert meter.take(6) == Metered(10, 0)
