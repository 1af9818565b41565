"""The master of the flow control and of the storage sums, on the broker that is the active controller.

It is made anew for each controller epoch, from the definitions of the instances and the metadata of this broker, at the
first report that comes. Until it knows all instances, reports are refused, and brokers keep what they have. A broker
that is no longer the controller drops it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from headrace.broker.instances.flow_messages import FullAnswer, FullReport
from headrace.broker.instances.storage_sums import StorageSums, Stored
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import Turns
from headrace.instances.flow.leases import FALL_INTERVALS, LEASE_INTERVALS, UNLIMITED, Standing
from headrace.instances.flow.master import ALLOCATORS, Explanation, FlowMaster
from headrace.types import BrokerId

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.instances.flow_placement import Placement
    from headrace.controller.controller import Controller
    from headrace.instances.definition import Instance
    from headrace.metadata.stored_instances import StoredInstances

INSTANCES_PER_TURN = 100
LEASES_PER_TURN = 100
LEFT_INTERVALS = LEASE_INTERVALS + FALL_INTERVALS + 1
"""After so many intervals nothing that a broker was leased is in force, if it could not be reached any more."""


class _Mastership:
    """What one controller epoch knows."""

    __slots__ = ("is_ready", "left", "master", "storage")

    def __init__(self, master: FlowMaster, storage: StorageSums, left: Collection[BrokerId]) -> None:
        self.master, self.storage, self.left = master, storage, left
        self.is_ready = False


class FlowHost:
    """The master, while this broker is the active controller."""

    def __init__(
        self,
        controller: Controller,
        instances: StoredInstances,
        placement: Placement,
        loop: asyncio.AbstractEventLoop,
        *,
        allocator: str,
        interval_s: float,
    ) -> None:
        self._controller, self._instances, self._placement, self._loop = controller, instances, placement, loop
        self._allocator, self._interval_s = allocator, interval_s
        self._mastership: _Mastership | None = None
        self._live = frozenset(placement.brokers)
        self._left_at: dict[BrokerId, float] = {}

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        return self._controller.is_active

    async def receive(self, report: FullReport) -> FullAnswer:
        """Answers a report. Raises NOT_CONTROLLER, and COORDINATOR_LOAD_IN_PROGRESS if the master is being made, or has
        received a later report."""
        mastership = await self._find_or_make()
        flow, now = report.flow, self._loop.time()
        broker = BrokerId(flow.broker_id)
        leases = mastership.master.receive(flow, now)
        if leases is None:
            raise KafkaError("a later report was received", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        given, turns = [], Turns(LEASES_PER_TURN)
        for lease in leases:
            given.append(lease)
            await turns.count()
        return FullAnswer(mastership.master.answer_of(flow, given), _take_sums(mastership, broker, report, now))

    def explain(self, name: str) -> Mapping[str, object] | None:
        """How the limits of an instance are shared out, and what it has stored, for `headrace instance why`; None if
        this broker is not the controller, or has had no report yet."""
        mastership = self._current()
        if mastership is None or not mastership.is_ready:
            return None
        now = self._loop.time()
        found = mastership.master.explain(name, now) or Explanation(None, None)
        return {
            "allocator": self._allocator,
            "controller_epoch": mastership.master.epoch,
            "in": _described(found.flow_in, now),
            "out": _described(found.flow_out, now),
            "stored": mastership.storage.stored(name),
            "is_full": mastership.storage.is_full(name),
        }

    def is_full(self, name: str) -> bool:
        """Whether the master holds an instance's storage to be full."""
        mastership = self._current()
        return mastership is not None and mastership.storage.is_full(name)

    # ---- what changes

    def instance_changed(self, name: str, instance: Instance | None) -> None:
        """An instance was made, altered or removed, or its partitions are led by others."""
        mastership = self._current()
        if mastership is not None:
            self._set(mastership, name, instance)

    def brokers_changed(self, live: Collection[BrokerId]) -> None:
        """Brokers came or went. `instance_changed` follows for all instances."""
        now, before, self._live = self._loop.time(), self._live, frozenset(live)
        for each in before - self._live:
            self._left_at[each] = now
        for each in [each for each in self._left_at if each in self._live]:
            del self._left_at[each]
        mastership = self._current()
        if mastership is not None:
            mastership.storage.forget(live)

    # ---- inside

    def _current(self) -> _Mastership | None:
        mastership = self._mastership
        if mastership is None:
            return None
        if not self._controller.is_active or self._controller.epoch != mastership.master.epoch:
            self._mastership = None
            return None
        return mastership

    async def _find_or_make(self) -> _Mastership:
        if not self._controller.is_active:
            self._mastership = None
            raise KafkaError("this broker is not the controller", ErrorCode.NOT_CONTROLLER)
        mastership = self._current()
        if mastership is None:
            mastership = self._mastership = self._make()
            turns = Turns(INSTANCES_PER_TURN)
            for instance in self._instances.all():
                self._set(mastership, instance.name, self._instances.get(instance.name))
                await turns.count()
            mastership.is_ready = True
        if not mastership.is_ready or mastership is not self._current():
            raise KafkaError("the flow control is being taken over", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return mastership

    def _make(self) -> _Mastership:
        now = self._loop.time()
        master = FlowMaster(self._controller.epoch, now, ALLOCATORS[self._allocator], self._interval_s)

        def on_full(name: str) -> None:
            self.instance_changed(name, self._instances.get(name))

        since = now - LEFT_INTERVALS * self._interval_s
        left = [each for each, at in self._left_at.items() if at >= since]
        return _Mastership(master, StorageSums(self._interval_s, on_full), left)

    def _set(self, mastership: _Mastership, name: str, instance: Instance | None) -> None:
        now, led = self._loop.time(), self._placement.led(name)
        if instance is None:
            mastership.master.drop_instance(name)
            mastership.storage.set_instance(name, None, led, now)
            return
        if instance.is_limited:
            live = self._placement.brokers
            serving = [each for each in instance.brokers if each in live] if instance.brokers else live
            mastership.master.set_instance(
                name,
                UNLIMITED if instance.bytes_in is None else instance.bytes_in,
                UNLIMITED if instance.bytes_out is None else instance.bytes_out,
                dict.fromkeys(serving, 0) | dict(led),
                now,
                storage_full=mastership.storage.is_full(name),
                left=[each for each in mastership.left if not instance.brokers or each in instance.brokers],
            )
        else:
            mastership.master.drop_instance(name)
        mastership.storage.set_instance(name, instance.capacity, led, now)


def _take_sums(
    mastership: _Mastership, broker: BrokerId, report: FullReport, now: float
) -> Mapping[str, Stored] | None:
    """What the broker has to know of the storage; None if it has to report all its sums."""
    is_whole = report.sums_epoch == -1
    if not is_whole and (report.sums_epoch != mastership.master.epoch or not mastership.storage.knows(broker)):
        return None
    return mastership.storage.hear(broker, report.sums, now, is_whole=is_whole)


def _described(standing: Standing | None, now: float) -> Mapping[str, object] | None:
    if standing is None:
        return None
    return {
        "limit": standing.limit,
        "branch": standing.branch,
        "for_s": max(now - standing.since, 0.0),
        "brokers": [
            {**each._asdict(), "heard_s": None if each.heard_s == UNLIMITED else each.heard_s}
            for each in standing.brokers
        ],
    }
