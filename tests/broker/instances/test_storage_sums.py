"""When the storage of an instance is full: the controller's side."""

import logging

import pytest

from headrace.broker.instances.storage_sums import StorageSums, Stored
from headrace.types import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = {ONE: 2, TWO: 2, THREE: 2}


class Controller:
    """The sums of one controller epoch, with a clock."""

    def __init__(self, capacity: int | None = 1000) -> None:
        self.now = 50.0
        self.changes: list[tuple[str, bool]] = []
        self.sums = StorageSums(1.0, lambda name: self.changes.append((name, self.sums.is_full(name))))
        self.sums.set_instance("acme", capacity, ALL, self.now)

    def hear(self, broker: BrokerId, size: int, *, is_full: bool = False, is_whole: bool = True) -> dict[str, Stored]:
        return self.sums.hear(broker, {"acme": (size, is_full)}, self.now, is_whole=is_whole)

    def round(self, *sizes: int) -> None:
        for broker, size in zip((ONE, TWO, THREE), sizes, strict=True):
            self.hear(broker, size)
        self.now += 1

    @property
    def state(self) -> str:
        return "full" if self.sums.is_full("acme") else "free"


def test_is_full_from_the_capacity_on_and_free_again_below_95_percent() -> None:
    controller = Controller()
    controller.round(300, 300, 399)
    assert controller.state == "free"
    controller.round(300, 300, 400)
    assert controller.state == "full"
    controller.round(300, 300, 350)
    assert controller.state == "full"
    controller.round(300, 300, 349)
    assert controller.state == "free"
    controller.round(300, 300, 399)
    assert controller.state == "free"
    assert controller.changes == [("acme", True), ("acme", False)]


def test_tells_brokers_what_is_near_its_capacity_and_what_they_mention() -> None:
    controller = Controller()
    assert controller.hear(ONE, 10) == {"acme": Stored(10, is_full=False, is_settled=False)}
    controller.hear(TWO, 10)
    controller.hear(THREE, 10)
    assert controller.sums.hear(ONE, {}, controller.now, is_whole=False) == {}
    controller.hear(TWO, 740)
    told = controller.sums.hear(ONE, {}, controller.now, is_whole=False)
    assert told == {"acme": Stored(760, is_full=False, is_settled=True)}


def test_a_partition_that_is_counted_twice_for_a_moment_fills_nothing() -> None:
    controller = Controller()
    controller.round(300, 300, 100)
    controller.sums.set_instance("acme", 1000, {ONE: 1, TWO: 3, THREE: 2}, controller.now)
    controller.hear(TWO, 600)  # broker 1 has not reported yet that it leads one less
    assert controller.sums.stored("acme") == 1000 and controller.state == "free"
    controller.hear(ONE, 0)
    controller.now += 10
    controller.round(0, 600, 100)
    assert controller.state == "free"


def test_constant_changes_of_leaders_do_not_keep_full_storage_open() -> None:
    controller = Controller()
    for step in range(6):
        led = {ONE: 2, TWO: 2 + step % 2, THREE: 2}
        controller.sums.set_instance("acme", 1000, led, controller.now)
        controller.round(400, 400, 400)
    assert controller.state == "full"


def test_storage_stays_full_while_the_leader_of_a_partition_is_being_replaced() -> None:
    controller = Controller()
    controller.round(400, 400, 300)
    assert controller.state == "full"
    controller.sums.set_instance("acme", 1000, {TWO: 3, THREE: 3}, controller.now)  # broker 1 is dead
    controller.hear(TWO, 400)
    assert controller.sums.stored("acme") == 700 and controller.state == "full"
    controller.hear(TWO, 600)
    controller.hear(THREE, 500)
    controller.now += 10
    controller.round(0, 600, 500)
    assert controller.state == "full"


def test_a_new_controller_keeps_blocked_what_a_broker_holds_to_be_full() -> None:
    controller = Controller()
    controller.hear(ONE, 100, is_full=True)
    assert controller.state == "full"
    controller.hear(TWO, 100)
    assert controller.state == "full"
    controller.hear(THREE, 100)  # now all is known
    assert controller.state == "free"


def test_a_new_controller_does_not_open_before_it_has_heard_all_leaders() -> None:
    controller = Controller()
    controller.hear(ONE, 500, is_full=True)
    controller.now += 100
    controller.hear(ONE, 500)
    assert controller.state == "full"
    controller.hear(TWO, 500)
    controller.hear(THREE, 0)
    assert controller.state == "full"


def test_a_broker_that_leads_again_counts_what_it_reported_last() -> None:
    """Its report of the same bytes is not repeated: whatever the metadata said meanwhile, they are not forgotten."""
    controller = Controller()
    controller.round(300, 300, 300)
    controller.sums.set_instance("acme", 1000, {ONE: 3, TWO: 3}, controller.now)
    assert controller.sums.stored("acme") == 600
    controller.sums.hear(THREE, {"acme": (350, False)}, controller.now, is_whole=False)  # before its metadata came
    assert controller.sums.stored("acme") == 600
    controller.sums.set_instance("acme", 1000, ALL, controller.now)
    assert controller.sums.stored("acme") == 950


def test_a_broker_that_was_gone_has_to_report_everything() -> None:
    controller = Controller()
    assert not controller.sums.knows(ONE)
    controller.round(300, 300, 300)
    assert controller.sums.knows(ONE)
    controller.sums.forget({TWO, THREE})
    assert not controller.sums.knows(ONE)
    assert controller.sums.knows(TWO)


def test_a_whole_report_leaves_out_what_is_gone() -> None:
    controller = Controller()
    controller.round(400, 400, 400)
    assert controller.state == "full"
    controller.sums.hear(ONE, {}, controller.now, is_whole=True)
    assert controller.sums.stored("acme") == 800 and controller.state == "free"


def test_an_instance_without_a_capacity_is_never_full() -> None:
    controller = Controller()
    controller.round(400, 400, 400)
    controller.sums.set_instance("acme", None, ALL, controller.now)
    assert controller.state == "free" and controller.sums.stored("acme") is None
    controller.hear(ONE, 5000)
    assert controller.state == "free"


def test_more_capacity_opens_at_once() -> None:
    controller = Controller()
    controller.round(400, 400, 400)
    controller.sums.set_instance("acme", 2000, ALL, controller.now)
    assert controller.state == "free"


def test_says_in_the_log_at_80_and_100_percent_and_when_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    with caplog.at_level(logging.WARNING):
        for third in (200, 280, 290, 400, 390, 400, 300):
            controller.round(third, third, third)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "840 of 1000 bytes, 84 %" in said[0]
    assert "is full: 1090 of 1000 bytes" in said[1] and "delete topics" in said[1]
    assert "room again: 900 of 1000" in said[2]
