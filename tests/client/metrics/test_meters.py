"""Meters by a clock of the test."""

import math

import pytest

from headrace.client.metrics.meters import Meter
from headrace.client.metrics.registry import Registry


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_meter_without_values_has_no_average_and_a_rate_of_0(clock: Clock) -> None:
    meter = Meter(clock)
    assert (meter.total, meter.count, meter.rate, meter.frequency) == (0, 0, 0, 0)
    assert math.isnan(meter.average) and math.isnan(meter.most)


def test_a_rate_is_over_thirty_seconds_at_least(clock: Clock) -> None:
    meter = Meter(clock)
    meter.record(60)
    assert (meter.rate, meter.frequency) == (2, 1 / 30)
    clock.now_s += 40
    meter.record(20)
    assert (meter.rate, meter.frequency) == (2, 2 / 40)


def test_values_are_forgotten_after_a_minute_and_totals_never(clock: Clock) -> None:
    meter = Meter(clock)
    meter.record(9)
    clock.now_s += 31
    meter.record(1)
    assert (meter.average, meter.most) == (5, 9)
    clock.now_s += 28.9
    assert meter.most == 9
    clock.now_s += 0.1
    assert (meter.average, meter.most, meter.rate) == (1, 1, 1 / 30)
    clock.now_s += 60
    assert math.isnan(meter.average) and meter.rate == 0
    assert (meter.total, meter.count) == (10, 2)


def test_a_group_has_its_values_under_the_names_of_kafka(clock: Clock) -> None:
    registry = Registry(clock)
    group = registry.group("producer-metrics")
    group.totalled("record-send").record(3)
    group.timed("batch-size", "batch").record(100)
    group.gauge("connection-count", lambda: 2)
    registry.group("producer-topic-metrics", "topic", "orders").totalled("byte").record(7)
    assert registry.read() == {
        "producer-metrics": {
            "record-send-total": 3,
            "record-send-rate": 0.1,
            "batch-size-avg": 100,
            "batch-size-max": 100,
            "batch-total": 1,
            "batch-rate": 1 / 30,
            "connection-count": 2,
        },
        "producer-topic-metrics.orders": {"byte-total": 7, "byte-rate": 7 / 30},
    }
    assert registry.group("producer-metrics") is group
