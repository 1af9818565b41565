"""Leases between brokers and the master: what a broker takes from answers, and the way to F when none comes."""

import pytest

from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.leases import UNLIMITED, BrokerUsage, Lease, LeaseAnswer, Report
from headrace.instances.flow.meter import Metered


def broker(partitions: int = 1, of: int = 2, limit: float = 1000) -> BrokerLeases:
    """A broker that leads some partitions of the instance `a`."""
    leases = BrokerLeases(1, 7)
    leases.set_share("a", limit, UNLIMITED, partitions, of, 0)
    return leases


def leased(leases: BrokerLeases, rate: float, now: float, epoch: int = 3, limit: float = 1000) -> Report:
    """Reports at `now`, and accepts an answer with a lease of `rate` 0.1 s later."""
    report = leases.report([], now)
    assert leases.accept(
        LeaseAnswer(epoch, report.number, 3, 1, [Lease("a", rate, UNLIMITED, limit, UNLIMITED)]), now + 0.1
    )
    return report


def test_without_a_lease_f_is_in_force() -> None:
    assert broker(1, 4).rates("a", 0) == (250, UNLIMITED)


def test_a_lease_is_in_force_for_its_time() -> None:
    leases = broker()
    leased(leases, 900, now=10)
    assert leases.rates("a", 10.1).rate_in == 900
    assert leases.rates("a", 12.99).rate_in == 900


def test_a_rate_above_f_falls_in_five_steps_from_the_end_of_the_lease() -> None:
    """F = 500. The report was sent at 10, so the lease ends at 13: 900 -> 820 -> 740 -> 660 -> 580 -> 500."""
    leases = broker()
    leased(leases, 900, now=10)
    assert [leases.rates("a", at).rate_in for at in (13, 14, 15, 16, 17, 30)] == [820, 740, 660, 580, 500, 500]


def test_a_rate_below_f_rises_a_lease_later() -> None:
    """F = 500. The answer came at 10.1: nothing rises before 16.1, when those that fall have gone four steps. The first
    step is an interval later: 100 -> 180 -> 260 -> 340 -> 420 -> 500."""
    leases = broker()
    leased(leases, 100, now=10)
    assert leases.rates("a", 17.0).rate_in == 100
    assert [leases.rates("a", 17.2 + step).rate_in for step in range(6)] == [180, 260, 340, 420, 500, 500]


def test_an_answer_to_an_earlier_report_is_refused() -> None:
    """The master takes the next report as an acknowledgement of what is in force: an old answer must not raise it
    after."""
    leases = broker()
    old = leases.report([], 1)
    leases.report([], 2)
    assert not leases.accept(LeaseAnswer(3, old.number, 3, 1, [Lease("a", 900, UNLIMITED, 1000, UNLIMITED)]), 2.1)
    assert leases.rates("a", 2.1).rate_in == 500


def test_an_answer_counts_once() -> None:
    leases = broker()
    report = leased(leases, 900, now=1)
    again = LeaseAnswer(3, report.number, 3, 1, [])
    assert not leases.accept(again, 3)
    assert leases.rates("a", 3).rate_in == 900


def test_a_controller_of_an_older_epoch_is_refused() -> None:
    leases = broker()
    leased(leases, 100, now=1, epoch=5)
    report = leases.report([], 2)
    assert not leases.accept(LeaseAnswer(4, report.number, 3, 1, []), 2.1)
    assert leases.rates("a", 2.1).rate_in == 100
    assert leases.controller_epoch == 5


def test_an_answer_without_the_instance_lets_it_use_f() -> None:
    leases = broker()
    leased(leases, 100, now=1)
    report = leases.report([], 2)
    assert leases.accept(LeaseAnswer(3, report.number, 3, 1, []), 2.1)
    assert leases.rates("a", 2.1).rate_in == 500


def test_a_lower_limit_applies_at_once_in_proportion() -> None:
    leases = broker()
    leased(leases, 900, now=1)
    leases.set_share("a", 100, UNLIMITED, 1, 2, 1.5)
    assert leases.rates("a", 1.5).rate_in == pytest.approx(90)
    leases.set_share("a", UNLIMITED, 100, 1, 2, 1.5)
    assert leases.rates("a", 1.5) == (UNLIMITED, 50)


def test_a_larger_share_waits_for_the_master_and_a_smaller_one_does_not() -> None:
    """Without an answer 7 s: as a lease that rises. The other brokers, and the master, know by then."""
    leases = broker(1, 4)
    leases.set_share("a", 1000, UNLIMITED, 2, 4, 10)
    assert leases.rates("a", 16.9).rate_in == 250
    assert leases.rates("a", 17).rate_in == 500
    leases.set_share("a", 1000, UNLIMITED, 1, 10, 12)
    assert leases.rates("a", 12).rate_in == 100


def test_a_larger_share_is_in_force_with_the_answer_to_a_report_that_was_sent_when_all_knew() -> None:
    """The first report is sent 0.5 s after the change, when other brokers may not know of theirs; the second 1.5 s."""
    leases = broker(1, 4)
    leases.set_share("a", 1000, UNLIMITED, 2, 4, 10)
    for at, rate in ((10.5, 250), (11.5, 500)):
        report = leases.report([], at)
        assert report.usages == [BrokerUsage("a", 0, 0, 0, 0, 250, UNLIMITED, False)]
        assert leases.accept(LeaseAnswer(3, report.number, 3, 1, []), at + 0.1)
        assert leases.rates("a", at + 0.1).rate_in == rate


def test_a_lowered_rate_is_acknowledged_out_of_turn_once() -> None:
    leases = broker()
    used = [("a", Metered(450, 0.25), Metered(0, 0))]
    first = leases.report(used, 1)
    assert leases.accept(LeaseAnswer(3, first.number, 3, 1, [Lease("a", 300, 0, 1000, UNLIMITED)]), 1.1)
    assert leases.is_to_acknowledge
    again = leases.acknowledgement(1.1)
    assert (again.number, again.answered, again.interval_s) == (first.number + 1, first.number, first.interval_s)
    assert again.usages == [BrokerUsage("a", 450, 0, 0.25, 0, 300, UNLIMITED, True)]
    assert leases.accept(LeaseAnswer(3, again.number, 3, 1, [Lease("a", 100, 0, 1000, UNLIMITED)]), 1.2)
    assert not leases.is_to_acknowledge


def test_a_raised_or_slightly_lowered_rate_is_not_acknowledged_out_of_turn() -> None:
    leases = broker()
    for rate in (600, 550):
        leased(leases, rate, now=rate)
        assert not leases.is_to_acknowledge


def test_what_uses_little_and_has_no_lease_is_not_reported() -> None:
    """F = 500: from 20 % of it, 100, an instance is active."""
    leases = broker()
    assert not leases.report([("a", Metered(99, 0), Metered(1e9, 0))], 1).usages
    (usage,) = leases.report([("a", Metered(100, 0), Metered(7, 0))], 2).usages
    assert usage == BrokerUsage("a", 100, 7, 0, 0, 500, UNLIMITED, False)
    (usage,) = leases.report([("a", Metered(1, 0.5), Metered(0, 0))], 3).usages
    assert usage.throttled_in_s == 0.5


def test_what_is_leased_is_reported_even_if_nothing_flows() -> None:
    """The report acknowledges the lease: without it, nobody else could be raised."""
    leases = broker()
    leased(leases, 100, now=1)
    report = leases.report([], 2)
    assert report.usages == [BrokerUsage("a", 0, 0, 0, 0, 100, UNLIMITED, True)]
    assert (report.answered, report.controller_epoch, report.ends_in_s) == (report.number - 1, 3, 2)


def test_a_lease_is_forgotten_when_the_rate_is_f_again() -> None:
    leases = broker()
    leased(leases, 100, now=1)
    assert leases.report([], 12).usages
    assert not leases.report([], 12.2).usages


def test_an_instance_that_is_not_served_any_more_is_not_reported() -> None:
    leases = broker()
    leases.drop("a")
    assert not leases.report([("a", Metered(1e6, 0), Metered(1, 0))], 1).usages
    leased(leases, 100, now=2)
