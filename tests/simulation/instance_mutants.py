"""Deliberate bugs in instances, put into the running code for a test, as those in `mutants.py`.

a group is not qualified      two instances share the group `app`, and its offsets
topic ids are not masked      a client that knows the id of another's topic is told that it exists
an instance goes in haste     a broker still serves it when its name is free, and its coordinators have its groups
no gate                       what is over the limit is answered at once
leases never end              a broker that no controller reaches stays at the rate that it was leased
raised unacknowledged         the controller raises a broker before another has acknowledged that it was lowered
a moving replica counts twice the storage of partitions that move counts where they are and where they go
full storage takes more       a broker adds what it takes in, but not what the controller tells of the others
a controller forgets          a broker that comes back reports changes to a controller that forgot the rest
a new controller counts the live   what brokers hold that left the cluster with the former one is given to the others
"""

from typing import Any

import pytest

from headrace.broker.handlers import offset_commit, offset_fetch
from headrace.broker.instances import flow_host
from headrace.broker.instances.flow_gate import FlowGate
from headrace.broker.instances.names import InstanceNames
from headrace.broker.instances.removal import InstanceRemovals
from headrace.broker.instances.storage_counts import StorageCounts
from headrace.broker.instances.view import InstanceMetadata
from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.pool import AS_HELD, Pool, PoolMember
from headrace.instances.names import SEPARATOR
from headrace.metadata.image import Snapshot
from headrace.replication.partition_state import PartitionState
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.network import Weather
from tests.simulation.plan import Plan, with_instances


def group_not_qualified(patch: pytest.MonkeyPatch) -> None:
    for module in (offset_commit, offset_fetch):

        def handle(ctx: Any, request: Any, handle: Any = module.handle) -> Any:
            request.group_id = request.group_id.rpartition(SEPARATOR)[2]
            return handle(ctx, request)

        patch.setattr(module, "handle", handle)


def topic_ids_not_masked(patch: pytest.MonkeyPatch) -> None:
    made = InstanceMetadata._next

    def with_all(self: InstanceMetadata, now: Snapshot) -> Snapshot:
        own = made(self, now)
        return Snapshot(now.topics, now.names_by_id, own.brokers, own.controller_id)

    patch.setattr(InstanceNames, "masked", lambda self, topic_id: topic_id)
    patch.setattr(InstanceMetadata, "_next", with_all)


def removal_in_haste(patch: pytest.MonkeyPatch) -> None:
    async def nothing_left(self: InstanceRemovals, name: str) -> bool:
        return True

    patch.setattr(InstanceRemovals, "_state_gone", nothing_left)


def no_gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowGate, "spend", lambda self, connection, size, who: 0)


def leases_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerLeases, "_steps_towards_fair", lambda self, rate, fair, now: 0)

    def begin(self: BrokerLeases, now: float) -> Any:
        self._number += 1
        self._sent_at = now
        return self._usages(now)

    patch.setattr(BrokerLeases, "_begin", begin)


def raised_unacknowledged(patch: pytest.MonkeyPatch) -> None:
    def grant(self: Pool, member: PoolMember, now: float) -> float:
        granted = member.held(now) if member.target == AS_HELD else member.target
        member.granted, member.granted_at = granted, member.broker.number
        return granted

    patch.setattr(Pool, "grant", grant)


def moving_counts_twice(patch: pytest.MonkeyPatch) -> None:
    apply = PartitionState.apply

    def counts_all(self, state, *arguments):  # type: ignore[no-untyped-def]
        result = apply(self, state, *arguments)
        self.settled_replicas = len(self.replicas)
        return result

    patch.setattr(PartitionState, "apply", counts_all)


def others_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    set_to = StorageCounts._set

    def alone(self: StorageCounts, count: Any, *, is_full: bool, others: int) -> None:
        set_to(self, count, is_full=count.is_full, others=0)

    patch.setattr(StorageCounts, "_set", alone)


def controller_forgets(patch: pytest.MonkeyPatch) -> None:
    def take(mastership, broker, report, now):  # type: ignore[no-untyped-def]
        is_whole = report.sums_epoch == -1
        if not is_whole and report.sums_epoch != mastership.master.epoch:
            return None
        return mastership.storage.hear(broker, report.sums, now, is_whole=is_whole)

    patch.setattr(flow_host, "_take_sums", take)


def only_the_live_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flow_host, "LEFT_INTERVALS", 0)


_CALM = with_instances(Plan())
_SHORT = {"headrace.flow.report.ms": "200"}
"""Leases that end, and the way to F behind them, within a fault."""

_CUT = with_instances(
    Plan(partitions=1, faults=(kinds.ISOLATE,), gap_ms=2500, session_timeout_ms=1500, settings=_SHORT)
)
_LATE = with_instances(Plan(faults=(kinds.CUT, kinds.PAUSE), weather=Weather(loss=0.02)))
_REASSIGNED = with_instances(
    Plan(replicas=2, spare_brokers=2, partitions=1, faults=(kinds.REASSIGN, kinds.CRASH), settings=_SHORT)
)._replace(gap_ms=700, instance_capacity=20_000)

_PAUSED = with_instances(
    Plan(
        replicas=2,
        min_insync_replicas=1,
        partitions=2,
        faults=(kinds.ELECT, kinds.PAUSE, kinds.SKEW),
        gap_ms=1200,
        weather=Weather(),
        has_group=True,
        topic_settings={"segment.bytes": "600", "message.format.version": "3.0"},
    )
)

_FULL = with_instances(Plan(partitions=3, faults=(), settings=_SHORT))._replace(instance_capacity=4_000)

LEAK, LIMIT, CAPACITY = frozenset({"leak", "commit"}), frozenset({"limit"}), frozenset({"capacity"})

INSTANCE_MUTANTS = (
    Mutant("a group is not qualified", group_not_qualified, _CALM, LEAK),
    Mutant("topic ids are not masked", topic_ids_not_masked, _CALM, LEAK),
    Mutant("an instance goes in haste", removal_in_haste, _LATE, LEAK, first_seed=1051),
    Mutant("no gate", no_gate, _CALM, frozenset({"volume"})),
    Mutant("leases never end", leases_never_end, _CUT, LIMIT),
    Mutant("raised unacknowledged", raised_unacknowledged, _CALM, LIMIT, first_seed=1),
    Mutant("a moving replica counts twice", moving_counts_twice, _REASSIGNED, CAPACITY, first_seed=1),
    Mutant("full storage takes more", others_are_not_counted, _FULL, frozenset({"overshoot"})),
    Mutant(
        "a controller forgets",
        controller_forgets,
        _CUT._replace(instance_capacity=8_000),
        CAPACITY | {"unavailable"},
        first_seed=22,
    ),
    Mutant("a new controller counts the live", only_the_live_count, _PAUSED, LIMIT, first_seed=11255),
)
