"""The master of the flow control: hears what brokers use, and answers with leases. The controller runs one. Pure.

    set_instance    the metadata changed: limits, partitions by broker, storage full or not
    receive         a report came; returns the leases of the answer one by one, so that a long one can be sent in slices
    answer          the same, at once
    explain         what `headrace instance why` asks for

A master is of one controller epoch. A new controller makes a new one, which learns what is leased from the reports.
"""

from collections.abc import Collection, Iterator, Mapping
from math import isfinite
from typing import NamedTuple

from headrace.instances.flow.allotment import Allocator
from headrace.instances.flow.leases import (
    FALL_INTERVALS,
    INTERVAL_S,
    LEASE_INTERVALS,
    UNLIMITED,
    BrokerUsage,
    Lease,
    LeaseAnswer,
    Report,
    Standing,
)
from headrace.instances.flow.max_min import allot_max_min
from headrace.instances.flow.pool import NEVER, Pool, PoolBroker, Timing
from headrace.instances.flow.seed import allot_by_seed

ALLOCATORS: Mapping[str, Allocator] = {"max-min": allot_max_min, "seed": allot_by_seed}
"""The values of `headrace.flow.allocator`."""


_Brokers = Mapping[int, tuple[PoolBroker, int]]
"""Brokers, each with the partitions that it leads."""


class Explanation(NamedTuple):
    """Both directions of an instance; None for one without a limit."""

    flow_in: Standing | None
    flow_out: Standing | None


class _Instance:
    """An instance with a limit in at least one direction."""

    __slots__ = ("name", "pool_in", "pool_out")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pool_in: Pool | None = None
        self.pool_out: Pool | None = None

    def is_idle(self) -> bool:
        return (self.pool_in is None or self.pool_in.idle) and (self.pool_out is None or self.pool_out.idle)


class FlowMaster:
    """The leases of all instances. Times are in seconds of the controller's clock."""

    def __init__(
        self, epoch: int, now: float, allocate: Allocator = allot_max_min, interval_s: float = INTERVAL_S
    ) -> None:
        self.epoch = epoch
        self._allocate = allocate
        self._timing = Timing(interval_s, LEASE_INTERVALS, FALL_INTERVALS)
        self._started_at = now
        self._instances: dict[str, _Instance] = {}
        self._brokers: dict[int, PoolBroker] = {}

    def set_instance(
        self,
        name: str,
        limit_in: float,
        limit_out: float,
        partitions: Mapping[int, int],
        now: float,
        *,
        storage_full: bool = False,
        left: Collection[int] = (),
    ) -> None:
        """Sets limits (`UNLIMITED` for none) and the partitions that each broker which serves the instance leads, also
        the brokers that lead none. `storage_full` blocks production. `left`: brokers that left the cluster shortly
        before this master began; what a former one leased them is not shared out until that has ended."""
        instance = self._instances.setdefault(name, _Instance(name))
        brokers = {each: (self._broker(each), count) for each, count in partitions.items()}
        gone = {each: (self._broker(each), 0) for each in left if each not in partitions}
        instance.pool_in = self._pool(instance.pool_in, limit_in, brokers, gone, now)
        instance.pool_out = self._pool(instance.pool_out, limit_out, brokers, gone, now)
        if instance.pool_in is not None and instance.pool_in.blocked != storage_full:
            instance.pool_in.blocked = storage_full
            instance.pool_in.idle = False
        if not instance.is_idle():
            self._tell_everywhere(instance)

    def _pool(self, pool: Pool | None, limit: float, brokers: _Brokers, gone: _Brokers, now: float) -> Pool | None:
        if limit == UNLIMITED:
            return None
        if pool is None:
            pool = Pool(limit, self._allocate, self._timing, now, self._started_at)
            if gone:
                pool.set_members(limit, {**brokers, **gone}, now)
        pool.set_members(limit, brokers, now)
        return pool

    def _broker(self, broker_id: int) -> PoolBroker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = PoolBroker(broker_id)
        return broker

    def drop_instance(self, name: str) -> None:
        """The instance was deleted."""
        self._instances.pop(name, None)
        for broker in self._brokers.values():
            broker.to_tell.pop(name, None)

    def receive(self, report: Report, now: float) -> Iterator[Lease] | None:
        """Takes a report. Returns the leases of its answer, which are computed as they are asked for; all of them must
        be sent. None if a later report of the broker was received before: it is to be left without an answer.
        """
        broker = self._broker(report.broker_id)
        if (report.broker_epoch, report.number) <= (broker.epoch, broker.number):
            return None
        self._hear(broker, report, now)
        for usage in report.usages:
            self._observe(broker, usage, report.interval_s)
        return self._leases(broker, report, now)

    def answer(self, report: Report, now: float) -> LeaseAnswer | None:
        """The answer to a report; None if it came after a later one."""
        leases = self.receive(report, now)
        return None if leases is None else self.answer_of(report, list(leases))

    def answer_of(self, report: Report, leases: list[Lease]) -> LeaseAnswer:
        """The answer with the leases that `receive` returned."""
        return LeaseAnswer(self.epoch, report.number, self._timing.lease_s, self._timing.interval_s, leases)

    def _hear(self, broker: PoolBroker, report: Report, now: float) -> None:
        timing = self._timing
        if report.broker_epoch != broker.epoch:
            broker.epoch = report.broker_epoch
            broker.answers.clear()
            broker.acknowledged_at = NEVER
            broker.is_ours = False
        broker.number = report.number
        broker.heard_at = now
        if report.controller_epoch == self.epoch and report.answered in broker.answers:
            broker.acknowledged_at = broker.answers[report.answered]
            broker.is_ours = True
        elif report.controller_epoch < self.epoch:
            # Leases of a former master. The report was sent an interval ago at the most, and no rate rises sooner than
            # a lease and an interval after they ended.
            ended_at = now - timing.interval_s + report.ends_in_s
            broker.acknowledged_at = ended_at + timing.lease_s + timing.interval_s - timing.rises_s
        for number in [each for each in broker.answers if each < report.answered]:
            del broker.answers[number]
        while len(broker.answers) > LEASE_INTERVALS + FALL_INTERVALS:
            del broker.answers[next(iter(broker.answers))]

    def _observe(self, broker: PoolBroker, usage: BrokerUsage, interval_s: float) -> None:
        instance = self._instances.get(usage.instance)
        if instance is None:
            return
        was_idle = instance.is_idle()
        pool = instance.pool_in
        member = None if pool is None else pool.members.get(broker.broker_id)
        if pool is not None and member is not None:
            throttled = _share(usage.throttled_in_s, interval_s)
            pool.observe(member, _rate(usage.bytes_in_per_s), throttled, _rate(usage.rate_in), leased=usage.leased)
        pool = instance.pool_out
        member = None if pool is None else pool.members.get(broker.broker_id)
        if pool is not None and member is not None:
            throttled = _share(usage.throttled_out_s, interval_s)
            pool.observe(member, _rate(usage.bytes_out_per_s), throttled, _rate(usage.rate_out), leased=usage.leased)
        if was_idle and not instance.is_idle():
            self._tell_everywhere(instance)

    def _leases(self, broker: PoolBroker, report: Report, now: float) -> Iterator[Lease]:
        broker.answered_at = broker.answers[report.number] = now
        for name in list(broker.to_tell):
            if (broker.epoch, broker.number) != (report.broker_epoch, report.number):
                return  # A later report came while this one was answered in slices: the broker refuses this answer.
            instance = self._instances.get(name)
            if instance is None:
                broker.to_tell.pop(name, None)
                continue
            lease = self._lease(instance, broker, now)
            if lease is not None:
                yield lease

    def _lease(self, instance: _Instance, broker: PoolBroker, now: float) -> Lease | None:
        is_idle = instance.is_idle()
        rate_in, limit_in, stands_in = _grant(instance.pool_in, broker, now, is_idle=is_idle)
        rate_out, limit_out, stands_out = _grant(instance.pool_out, broker, now, is_idle=is_idle)
        if stands_in and stands_out:
            if instance.is_idle():
                broker.to_tell.pop(instance.name, None)
            return None
        return Lease(instance.name, rate_in, rate_out, limit_in, limit_out)

    def _tell_everywhere(self, instance: _Instance) -> None:
        for pool in (instance.pool_in, instance.pool_out):
            if pool is not None:
                for member in pool.members.values():
                    member.broker.to_tell[instance.name] = None

    def explain(self, name: str, now: float) -> Explanation | None:
        """How the limits of an instance are shared out; None if it is not known, or has no limit."""
        instance = self._instances.get(name)
        if instance is None:
            return None
        return Explanation(
            None if instance.pool_in is None else instance.pool_in.standing(now),
            None if instance.pool_out is None else instance.pool_out.standing(now),
        )


def _grant(pool: Pool | None, broker: PoolBroker, now: float, *, is_idle: bool) -> tuple[float, float, bool]:
    """Rate, limit, and whether F stands.

    `is_idle`: of the instance, not of the pool. A lease has a rate for both directions. One that is sent for the other
    direction holds the broker at this rate also when F changes, so it has to be a grant that the pool remembers.
    """
    if pool is None:
        return UNLIMITED, UNLIMITED, True
    member = pool.members.get(broker.broker_id)
    if member is None:
        return 0.0, pool.limit, False
    if is_idle:
        return member.fair, pool.limit, True
    pool.allot(now)
    granted = pool.grant(member, now)
    return granted, pool.limit, pool.stands(member, granted, now)


def _rate(value: float) -> float:
    """A rate from the wire: whatever a broker sends, allotments stay finite."""
    return value if value >= 0 and isfinite(value) else 0.0


def _share(seconds: float, interval_s: float) -> float:
    share = seconds / interval_s if interval_s > 0 else 0.0
    return min(share, 1.0) if share > 0 else 0.0
