"""Leases of an instance's limit: the messages between brokers and the master, the times, and the invariant. Pure.

Each interval a broker sends a `Report` to the master. It lists the instances that were active on the broker, and those
of which it holds a lease. The `LeaseAnswer` gives it a `Lease` of each instance of which it may not use just F. So
silence has a meaning on both sides: an instance that is not in a report uses less than `ACTIVE_FROM` of its F
there, and F is in force; one that is not in an answer may use F. F is the share by partitions, which every broker knows
from the metadata.

An answer renews all leases of the broker at once. A lease ends by the broker's clock; nothing is compared between
clocks:

    broker   report sent ───────── answer received ── …
             ├── LEASE ──▶ end: a rate above F falls to F, in FALL steps of an interval
                               ├── 2 * LEASE ──▶ a rate below F rises to F, in FALL steps
    master        report received ─ answer sent
                                    ├── LEASE + FALL ──▶ F, if nothing was heard since

A rate that falls is timed from the earlier moment and one that rises from the later, a lease after the others have
begun to fall. So when the master is gone, all brokers move towards F, and at no time have the rising ones gone further
than the falling ones. As the sum at the start and the sum of F are at most the limit, so is each sum between.

The invariant: THE SUM OF THE RATES IN FORCE OVER ALL BROKERS IS AT MOST THE LIMIT, whatever is lost, delayed or
restarted between brokers and master, and whichever controllers come and go. The master raises a broker only by what the
upper bounds of all others leave of the limit. A bound is the rate that the broker last reported or was granted since,
whichever is higher; its next report acknowledges the grant. It takes four exceptions to exceed the limit, each by at
most F of the brokers concerned:

  - brokers to which the controller's metadata do not come (they see other partitions, hence another F),
  - a broker that has just restarted, and begins at F until its first answer, which comes within an interval,
  - brokers that a deposed controller still serves, or that a controller of a moment, after a time without any, has not
    heard before it was gone,
  - brokers of an idle instance whose partitions move twice in a row: each takes the F of its own metadata, which may be
    late, as no broker is told a lease.

A new master knows no old leases. It learns from the reports what each broker holds, and renews that, until every broker
of the instance has accepted an answer, or until the leases of those that have not have ended. So nothing jumps at a
takeover. A report alone is not enough: a broker may accept an answer of the former master after it sent the report, and
only one that has accepted an answer of the new master refuses all others. Brokers that left the cluster with the former
master, as its own does if it fails, count as brokers of the instance: they may be alive, with a lease above F.

A rate is what a token bucket is filled at (`TokenBucket.retune`). Its burst, `burst.seconds` times the rate, comes on
top, once: tokens do not move with a rate.
"""

from collections.abc import Sequence
from typing import NamedTuple

INTERVAL_S = 1.0
"""The default of `headrace.flow.report.ms`, in seconds."""

LEASE_INTERVALS = 3
"""Intervals for which a lease is valid: two reports in a row may be lost."""

FALL_INTERVALS = 5
"""Intervals, and steps, in which a broker without a master comes to F."""

ACTIVE_FROM = 0.2
"""The share of F from which an instance is reported."""

TRICKLE = 1e-6
"""The share of the limit that each broker may always use: a bucket does not fill at 0."""

UNLIMITED = float("inf")
"""The limit of a direction without one. Its rate is the same everywhere."""


class BrokerUsage(NamedTuple):
    """What one instance used on one broker in an interval, and the rates in force at its end. Rates in bytes/s."""

    instance: str
    bytes_in_per_s: float
    bytes_out_per_s: float
    throttled_in_s: float
    """Seconds of the interval in which the bucket was overdrawn, so that clients were held."""
    throttled_out_s: float
    rate_in: float
    rate_out: float
    leased: bool
    """Whether the rates come from a lease, in force or ended; if not, they are F."""


class Report(NamedTuple):
    """What a broker sends to the master each interval."""

    broker_id: int
    broker_epoch: int
    """The epoch of the broker's registration: it grows when the broker restarts."""
    number: int
    """Grows with each report of the registration. The broker accepts no answer to an earlier report."""
    answered: int
    """The number of the last report whose answer was accepted; -1 for none."""
    controller_epoch: int
    """The epoch in that answer."""
    ends_in_s: float
    """Seconds until the leases of that answer end; below 0 if they have, -86,400 at the least."""
    interval_s: float
    """Seconds in which the usages were measured."""
    usages: Sequence[BrokerUsage]


class Lease(NamedTuple):
    """The rates that a broker may use of one instance."""

    instance: str
    rate_in: float
    rate_out: float
    limit_in: float
    """The limit that was shared out. Under a lower one the broker lowers its rate in proportion, at once."""
    limit_out: float


class LeaseAnswer(NamedTuple):
    """What the master answers."""

    controller_epoch: int
    number: int
    """That of the report."""
    valid_for_s: float
    """Counted from the sending of the report."""
    interval_s: float
    leases: Sequence[Lease]
    """All that the broker may hold. Of every other instance it may use F."""


class Standing(NamedTuple):
    """How one direction of an instance is shared out, for `headrace instance why`."""

    limit: float
    branch: str
    """The text of the allocator's branch."""
    since: float
    """When the branch was taken first, by the master's clock."""
    brokers: Sequence["BrokerStanding"]


class BrokerStanding(NamedTuple):
    """One broker's part in it. Rates in bytes/s."""

    broker_id: int
    partitions: int
    fair: float
    allotted: float
    bound: float
    """The most that the broker may use now: above `allotted` until it has acknowledged a lower lease."""
    flowed: float
    demand: float
    throttled_share: float
    """The share of the last interval, 0 to 1."""
    heard_s: float
    """Seconds since the broker's last report; infinite if this master has had none."""
