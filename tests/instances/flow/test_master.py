"""The master: reports and answers by hand."""

from headrace.instances.flow.leases import UNLIMITED, BrokerUsage, Lease, Report
from headrace.instances.flow.master import FlowMaster

NAN, INFINITE = float("nan"), float("inf")


def usage(flowed: float, rate: float, *, throttled_s: float = 0, leased: bool = False, name: str = "a") -> BrokerUsage:
    """In the direction `in`; nothing goes out."""
    return BrokerUsage(name, flowed, 0, throttled_s, 0, rate, UNLIMITED, leased)


class Broker:
    """Reports, and remembers what it was answered."""

    def __init__(self, master: FlowMaster, broker_id: int) -> None:
        self.master, self.broker_id, self.number, self.answered = master, broker_id, 0, -1

    def report(self, now: float, *usages: BrokerUsage) -> list[Lease]:
        self.number += 1
        answer = self.master.answer(self.made(*usages), now)
        assert answer is not None
        assert (answer.number, answer.controller_epoch) == (self.number, self.master.epoch)
        self.answered = self.number
        return list(answer.leases)

    def made(self, *usages: BrokerUsage) -> Report:
        return Report(self.broker_id, 1, self.number, self.answered, self.master.epoch, 2.0, 1.0, usages)


def two_brokers(limit: float = 1000) -> tuple[FlowMaster, Broker, Broker]:
    """Both lead a partition of `a`, and have been heard twice: what they hold is known."""
    master = FlowMaster(5, 0)
    master.set_instance("a", limit, UNLIMITED, {1: 1, 2: 1}, 0)
    one, two = Broker(master, 1), Broker(master, 2)
    for now in (1.0, 2.0):
        assert not one.report(now)
        assert not two.report(now + 0.5)
    return master, one, two


def test_nobody_is_raised_before_another_has_acknowledged_less() -> None:
    """Broker 1 is throttled at its F, 500. Broker 2 uses less than it would report, 100: it may keep a demand of 100
    with the margin, 103; broker 1 is to get 897. First it gets 500, then broker 2 hears of 103, then broker 1 reports
    again: still 500, as broker 2 has not said that it obeys. Only after that it gets more."""
    _, one, two = two_brokers()
    hot = usage(500, 500, throttled_s=0.9)
    (lease,) = one.report(3, hot)
    assert lease.rate_in == 500
    (lowered,) = two.report(3.5)
    assert round(lowered.rate_in) == 103
    (lease,) = one.report(4, usage(500, 500, throttled_s=0.9, leased=True))
    assert lease.rate_in == 500
    two.report(4.5, usage(0, lowered.rate_in, leased=True))
    (lease,) = one.report(5, usage(500, 500, throttled_s=0.9, leased=True))
    assert round(lease.rate_in) == 897


def test_a_report_that_comes_late_is_not_answered() -> None:
    master, one, _ = two_brokers()
    late = one.made()
    one.report(3)
    assert master.answer(late, 3.1) is None


def test_an_answer_in_slices_stops_when_the_broker_reports_again() -> None:
    """The broker refuses it; to go on would count grants for it that it never gets."""
    master, one, _ = two_brokers()
    master.set_instance("b", 1000, UNLIMITED, {1: 1, 2: 1}, 0)
    one.report(3, usage(500, 500, throttled_s=0.9), usage(500, 500, throttled_s=0.9, name="b"))
    one.number += 1
    leases = master.receive(one.made(usage(500, 500, throttled_s=0.9, leased=True)), 4)
    assert leases is not None
    assert next(leases).instance == "a"
    one.report(4.1)
    assert list(leases) == []


def test_whatever_a_broker_says_it_uses_rates_stay_finite() -> None:
    _, one, two = two_brokers()
    for now, nonsense in enumerate((NAN, INFINITE, -INFINITE, -5.0), 3):
        for lease in one.report(now, usage(nonsense, nonsense, throttled_s=nonsense, leased=True)):
            assert 0 <= lease.rate_in <= 1000
        for lease in two.report(now + 0.5, usage(10, 500, leased=True)):
            assert 0 <= lease.rate_in <= 1000


def test_full_storage_blocks_production_and_lets_consumption_through() -> None:
    master, one, two = two_brokers()
    master.set_instance("a", 1000, 600, {1: 1, 2: 1}, 3, storage_full=True)
    for broker, now in ((one, 3.0), (two, 3.1)):
        (lease,) = broker.report(now)
        assert (lease.rate_in, lease.rate_out) == (0, 300)
    explained = master.explain("a", 4)
    assert explained is not None
    assert explained.flow_in is not None
    assert explained.flow_in.branch.startswith("storage is full")
    master.set_instance("a", 1000, 600, {1: 1, 2: 1}, 4)
    blocked = BrokerUsage("a", 0, 0, 0, 0, 0, 300, True)
    assert not one.report(4.1, blocked)
    assert not two.report(4.2, blocked)


def test_why_tells_shares_bounds_demand_and_since_when() -> None:
    master, one, two = two_brokers()
    one.report(3, usage(500, 500, throttled_s=0.5))
    two.report(3.5)
    explained = master.explain("a", 3.6)
    assert explained is not None
    assert explained.flow_out is None
    standing = explained.flow_in
    assert standing is not None
    assert (standing.limit, standing.since) == (1000, 3)
    busy, quiet = standing.brokers
    assert (busy.broker_id, busy.partitions, busy.fair, busy.flowed, busy.demand) == (1, 1, 500, 500, 1000)
    assert (busy.throttled_share, round(busy.heard_s, 6)) == (0.5, 0.6)
    assert quiet.allotted < quiet.bound == 500
    assert master.explain("unknown", 4) is None


def test_an_instance_without_limits_or_deleted_has_no_leases() -> None:
    master, one, _ = two_brokers()
    master.set_instance("free", UNLIMITED, UNLIMITED, {1: 1, 2: 1}, 0)
    assert not one.report(3, usage(1e9, UNLIMITED, name="free"))
    one.report(4, usage(500, 500, throttled_s=0.9))
    master.drop_instance("a")
    assert not one.report(5, usage(500, 500, throttled_s=0.9))


def test_a_broker_that_serves_no_longer_is_waited_for() -> None:
    """Broker 2 leaves with 500 in force. Until it reports less, or its lease has ended, broker 1 cannot have it."""
    master, one, two = two_brokers()
    master.set_instance("a", 1000, UNLIMITED, {1: 2}, 3)
    hot = usage(500, 500, throttled_s=0.9)
    (lease,) = one.report(3.1, hot)
    assert lease.rate_in == 500
    for now in (4.1, 5.1, 6.1):
        two.report(now - 0.5)
        one.report(now, usage(500, 500, throttled_s=0.9, leased=True))
    (lease,) = one.report(7.1, usage(900, 500, throttled_s=0.9, leased=True))
    assert lease.rate_in == 1000


def test_what_a_broker_holds_that_left_with_the_former_master_is_not_shared_out() -> None:
    """Broker 1 was the controller. It lost its session, and holds 729 of a limit of 1000; broker 2 leads all since."""
    master = FlowMaster(5, 0)
    for now in (0, 0.5):
        master.set_instance("a", 1000, UNLIMITED, {2: 2}, now, left=[1])
    two, hot = Broker(master, 2), usage(271, 271, throttled_s=0.9, leased=True)
    for now in range(1, 9):
        (lease,) = two.report(now, hot)
        assert lease.rate_in == 271
    two.report(10, hot)
    (lease,) = two.report(11, hot)
    assert lease.rate_in == 1000


def test_a_broker_that_left_and_is_back_is_shared_with_as_soon_as_it_is_heard() -> None:
    master = FlowMaster(5, 0)
    master.set_instance("a", 1000, UNLIMITED, {2: 2}, 0, left=[1])
    one, two = Broker(master, 1), Broker(master, 2)
    two.report(1, usage(271, 271, throttled_s=0.9, leased=True))
    master.set_instance("a", 1000, UNLIMITED, {1: 0, 2: 2}, 1.5, left=[1])
    rate_1, rate_2 = 729.0, 271.0
    for now in range(2, 7):
        (lease,) = one.report(now, usage(0, rate_1, leased=True))
        rate_1 = lease.rate_in
        (lease,) = two.report(now + 0.5, usage(rate_2, rate_2, throttled_s=0.9, leased=True))
        rate_2 = lease.rate_in
        assert rate_1 + rate_2 <= 1000
    assert rate_2 > 900


def test_a_lease_for_what_comes_in_holds_what_goes_out_too() -> None:
    """Broker 1 leads all partitions. Its lease says 2000 for the quiet direction, too. When half of the partitions
    move, broker 2 cannot have its 1000 of that before broker 1 has said that it obeys less."""
    master = FlowMaster(5, 0)
    master.set_instance("a", 1000, 2000, {1: 4, 2: 0}, 0)
    one, two = Broker(master, 1), Broker(master, 2)
    for now in (1.0, 2.0):
        assert not one.report(now)
        assert not two.report(now + 0.5)
    (lease,) = one.report(3, BrokerUsage("a", 1000, 0, 0.9, 0, 1000, 2000, False))
    assert lease.rate_out == 2000
    master.set_instance("a", 1000, 2000, {1: 2, 2: 2}, 3.2)
    (lease,) = two.report(3.5)
    assert lease.rate_out == 0
    (lease,) = one.report(4, BrokerUsage("a", 1000, 0, 0.9, 0, 1000, 2000, True))
    assert lease.rate_out == 1000
    one.report(4.1, BrokerUsage("a", 1000, 0, 0.9, 0, 1000, 1000, True))
    (lease,) = two.report(4.5, BrokerUsage("a", 0, 0, 0, 0, 0, 0, True))
    assert lease.rate_out == 1000
