"""A broker's side of the leases: the rates in force, the reports, and the way to F when no master answers. Pure.

    set_share    the metadata changed: limit, partitions here and in all
    report       each interval: what was used
    accept       the answer came
    rates        what is in force now; asked again when an answer was accepted, and each interval

`leases` has the times and the reasons.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.instances.flow.leases import (
    ACTIVE_FROM,
    FALL_INTERVALS,
    INTERVAL_S,
    LEASE_INTERVALS,
    TRICKLE,
    UNLIMITED,
    BrokerUsage,
    Lease,
    LeaseAnswer,
    Report,
)
from headrace.instances.flow.meter import Metered

NEVER = float("-inf")
LOWERED = 0.9
"""The share of its former rate below which a rate counts as lowered."""

LONG_AGO_S = -86_400.0


class Rates(NamedTuple):
    """What is in force, in bytes/s; above 0, infinite without a limit."""

    rate_in: float
    rate_out: float


class _Instance:
    """What a broker knows of one instance."""

    __slots__ = ("changed_at", "lease", "limit_in", "limit_out", "of_partitions", "rises_at", "share", "share_before")

    def __init__(self, limit_in: float, limit_out: float, share: float, of_partitions: int) -> None:
        self.limit_in, self.limit_out, self.of_partitions = limit_in, limit_out, of_partitions
        self.share = self.share_before = share
        self.changed_at = self.rises_at = NEVER
        self.lease: Lease | None = None

    def share_at(self, now: float) -> float:
        """This broker's share of the limit by partitions. A larger one waits, until the other brokers know of it, and
        the master has had a chance to give less."""
        return self.share if now >= self.rises_at else min(self.share, self.share_before)


class BrokerLeases:
    """All instances that one broker serves. Times are in seconds."""

    def __init__(self, broker_id: int, broker_epoch: int, interval_s: float = INTERVAL_S) -> None:
        self._broker_id, self._broker_epoch, self._interval_s = broker_id, broker_epoch, interval_s
        self._instances: dict[str, _Instance] = {}
        self._number = 0
        self._answered = -1
        self._controller_epoch = -1
        self._rise_s = interval_s * (2 * LEASE_INTERVALS + 1)
        self._sent_at = NEVER
        self._lowered = self._early = False
        self._used: list[tuple[str, Metered, Metered]] = []
        self._elapsed_s, self._measured_at = interval_s, NEVER
        self._falls_at = self._rises_at = NEVER

    @property
    def controller_epoch(self) -> int:
        """The epoch of the last answer that was accepted; -1 before the first."""
        return self._controller_epoch

    @property
    def interval_s(self) -> float:
        """The time between reports, as the last answer had it."""
        return self._interval_s

    def is_led(self, now: float) -> bool:
        """Whether a master's answer is in force. If not, the rates are F, or on the way to it."""
        return now < self._falls_at

    @property
    def is_to_acknowledge(self) -> bool:
        """Whether the last answer lowered a rate by much: then an `acknowledgement` is to be sent at once, as others
        wait for it to be raised. After one there is none until the next report."""
        return self._lowered

    def set_share(
        self, instance: str, limit_in: float, limit_out: float, partitions: int, of_partitions: int, now: float
    ) -> None:
        """Sets limits (`UNLIMITED` for none) and share of an instance, as the metadata has them.

        Call it for each instance that this broker serves, also before it leads a partition of it. `partitions` are
        those that this broker leads, `of_partitions` those of the instance.
        """
        share = partitions / of_partitions if of_partitions > 0 else 0.0
        known = self._instances.get(instance)
        if known is None:
            self._instances[instance] = _Instance(limit_in, limit_out, share, of_partitions)
            return
        if known.of_partitions == 0:
            known.share = known.share_before = share  # no broker had a partition: no other rate is to fall first
        elif share != known.share:
            known.share_before = known.share_at(now)
            known.share = share
            known.changed_at = now
            known.rises_at = now + self._rise_s
        known.limit_in, known.limit_out, known.of_partitions = limit_in, limit_out, of_partitions

    def drop(self, instance: str) -> None:
        """The broker no longer serves the instance."""
        self._instances.pop(instance, None)

    def rates(self, instance: str, now: float) -> Rates:
        """What is in force. Without a lease F, which is `TRICKLE` of the limit at least."""
        each = self._instances[instance]
        share, lease = each.share_at(now), each.lease
        fair_in = _fair(each.limit_in, share)
        fair_out = _fair(each.limit_out, share)
        if lease is None:
            return Rates(fair_in, fair_out)
        return Rates(
            self._in_force(lease.rate_in, lease.limit_in, each.limit_in, fair_in, now),
            self._in_force(lease.rate_out, lease.limit_out, each.limit_out, fair_out, now),
        )

    def fair(self, instance: str, now: float) -> Rates:
        """F, whatever is leased."""
        each = self._instances[instance]
        share = each.share_at(now)
        return Rates(_fair(each.limit_in, share), _fair(each.limit_out, share))

    def _in_force(self, rate: float, of_limit: float, limit: float, fair: float, now: float) -> float:
        if limit == UNLIMITED:
            return UNLIMITED
        if of_limit > limit:
            # The limit was lowered, or set where there was none. All brokers lower their rates by the same factor.
            rate = fair if of_limit == UNLIMITED else rate * (limit / of_limit)
        rate = max(rate, limit * TRICKLE)
        steps = self._steps_towards_fair(rate, fair, now)
        return rate + (fair - rate) * steps / FALL_INTERVALS

    def _steps_towards_fair(self, rate: float, fair: float, now: float) -> int:
        """How many of the `FALL_INTERVALS` steps a rate has gone since the leases ended."""
        since = now - (self._falls_at if rate > fair else self._rises_at)
        if since < 0:
            return 0
        steps = int(since / self._interval_s)
        # A fall begins with the end of the lease, a rise an interval later.
        return min(steps + 1 if rate > fair else steps, FALL_INTERVALS)

    def report(self, used: Iterable[tuple[str, Metered, Metered]], now: float) -> Report:
        """What is to be sent to the master now. `used`: instance, in, out, for each that used anything.

        Send it when it was made. An answer to it is accepted until the next call. `used` is since the last call.
        """
        usages = list(self.reporting(used, now))
        return self.report_of(usages, now)

    def reporting(self, used: Iterable[tuple[str, Metered, Metered]], now: float) -> Iterator[BrokerUsage]:
        """The usages of a `report`, one by one, so that a long one can be made in slices. Nothing may be accepted
        until `report_of` was called with them, and the same `now`."""
        self._used = list(used)
        self._elapsed_s = now - self._measured_at if self._measured_at != NEVER else self._interval_s
        self._measured_at = now
        self._lowered = self._early = False
        return self._begin(now)

    def acknowledgement(self, now: float) -> Report:
        """A report out of turn, if `is_to_acknowledge`: the same use, and the rates that are in force now."""
        self._lowered, self._early = False, True
        return self.report_of(list(self._begin(now)), now)

    def _begin(self, now: float) -> Iterator[BrokerUsage]:
        self._number += 1
        self._sent_at = now
        if now >= self._rises_at + FALL_INTERVALS * self._interval_s:
            for each in self._instances.values():
                each.lease = None
        return self._usages(now)

    def _usages(self, now: float) -> Iterator[BrokerUsage]:
        usage, listed = self._usage(now), set()
        for used in self._used:
            found = usage(used)
            if found is not None:
                listed.add(found.instance)
                yield found
        nothing = Metered(0.0, 0.0)
        for name, known in list(self._instances.items()):
            if (known.lease is not None or known.rises_at > now) and name not in listed and name in self._instances:
                rates = self.rates(name, now)
                yield _usage(name, nothing, nothing, rates, leased=known.lease is not None)

    def report_of(self, usages: Sequence[BrokerUsage], now: float) -> Report:
        """The report with the usages that `reporting` returned."""
        return Report(
            self._broker_id,
            self._broker_epoch,
            self._number,
            self._answered,
            self._controller_epoch,
            max(self._falls_at - now, LONG_AGO_S),
            self._elapsed_s,
            usages,
        )

    def _usage(self, now: float) -> Callable[[tuple[str, Metered, Metered]], BrokerUsage | None]:
        def usage(used: tuple[str, Metered, Metered]) -> BrokerUsage | None:
            name, metered_in, metered_out = used
            known = self._instances.get(name)
            if known is None:
                return None
            rates = self.rates(name, now)
            if (
                known.lease is None
                and known.rises_at <= now
                and not (_is_active(metered_in, rates.rate_in) or _is_active(metered_out, rates.rate_out))
            ):
                return None
            return _usage(name, metered_in, metered_out, rates, leased=known.lease is not None)

        return usage

    def accept(self, answer: LeaseAnswer, now: float) -> bool:
        """Puts the leases of an answer in force. False, and nothing changes, if it is not of the last report, or of a
        controller that has been replaced."""
        if answer.number != self._number or answer.number == self._answered:
            return False
        if answer.controller_epoch < self._controller_epoch:
            return False
        self._controller_epoch, self._answered = answer.controller_epoch, answer.number
        self._interval_s = answer.interval_s
        self._falls_at = self._sent_at + answer.valid_for_s
        self._rises_at = now + 2 * answer.valid_for_s
        self._rise_s = 2 * answer.valid_for_s + answer.interval_s
        before = [
            (lease, self.rates(lease.instance, now)) for lease in answer.leases if lease.instance in self._instances
        ]
        for each in self._instances.values():
            each.lease = None
            if each.rises_at > now and self._sent_at >= each.changed_at + self._interval_s:
                each.rises_at = now
        lowered = False
        for lease, old in before:
            self._instances[lease.instance].lease = lease
            new = self.rates(lease.instance, now)
            lowered = lowered or new.rate_in < LOWERED * old.rate_in or new.rate_out < LOWERED * old.rate_out
        self._lowered = lowered and not self._early
        return True


def _fair(limit: float, share: float) -> float:
    return UNLIMITED if limit == UNLIMITED else limit * max(share, TRICKLE)


def _is_active(metered: Metered, rate: float) -> bool:
    return metered.throttled_s > 0 or metered.bytes_per_s >= ACTIVE_FROM * rate > 0


def _usage(name: str, used_in: Metered, used_out: Metered, rates: Rates, *, leased: bool) -> BrokerUsage:
    return BrokerUsage(
        name,
        used_in.bytes_per_s,
        used_out.bytes_per_s,
        used_in.throttled_s,
        used_out.throttled_s,
        rates.rate_in,
        rates.rate_out,
        leased,
    )
