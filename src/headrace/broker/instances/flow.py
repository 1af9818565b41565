"""The flow control and the storage of instances on one broker. Made with the first instance of the cluster.

throttling(name)     what takes the place of `Throttling` for the connections of an instance
may_store(name)      asked before each Produce
receive, describe    what the handlers of ReportInstanceUsage and DescribeInstanceFlow need

flow_placement ─▶ flow_rates ─▶ flow_throttling ─▶ flow_gate          enforces
                      ▲   storage_counts
                  flow_reports ◀──────────▶ flow_host, storage_sums   on the controller
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.instances.flow_host import FlowHost
from headrace.broker.instances.flow_messages import decode_report, encode_answer
from headrace.broker.instances.flow_placement import Placement
from headrace.broker.instances.flow_rates import FlowRates
from headrace.broker.instances.flow_reports import FlowReports
from headrace.broker.instances.flow_throttling import InstanceThrottling
from headrace.broker.instances.storage_counts import StorageCounts
from headrace.in_slices import Turns
from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.leases import UNLIMITED

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from headrace.broker.instances.flow_gate import FlowGate
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.broker.request.throttling import Throttling
    from headrace.controller.controller import Controller
    from headrace.errors import KafkaError
    from headrace.instances.definition import Instance
    from headrace.instances.flow.meter import Metered
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.metadata.stored_instances import StoredInstances
    from headrace.network.peers.broker_addresses import BrokerAddresses
    from headrace.network.peers.peers import Peers
    from headrace.types import BrokerId

INSTANCES_PER_TURN = 100
TOP_COUNT = 20
"""Clients and partitions that `describe` lists, with the longest throttling."""


class FlowServices(NamedTuple):
    """What the flow control is made of."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    instances: StoredInstances
    metadata: MetadataCache
    replicas: ReplicaManager
    controller: Controller
    addresses: BrokerAddresses
    peers: Peers
    throttling: Throttling
    loop: asyncio.AbstractEventLoop
    create_task: Callable[[Coroutine[object, object, None]], asyncio.Task[None]]
    interval_ms: int
    allocator: str


class InstanceFlow:
    """All instances on one broker."""

    def __init__(self, services: FlowServices) -> None:
        self._services = services
        interval_s = services.interval_ms / 1000
        self._flows: dict[str, InstanceThrottling] = {}
        self._placement = Placement(services.metadata)
        leases = BrokerLeases(services.broker_id, services.broker_epoch(), interval_s)
        self.rates = FlowRates(leases, self._placement, services.broker_id, services.loop)
        self.counts = StorageCounts(
            services.replicas, self._placement, services.broker_id, self._bytes_in, self._full_changed
        )
        self.host = FlowHost(
            services.controller,
            services.instances,
            self._placement,
            services.loop,
            allocator=services.allocator,
            interval_s=interval_s,
        )
        self._reports = FlowReports(
            services.broker_id,
            self._flows,
            self.rates,
            self.counts,
            self.host,
            broker_epoch=services.broker_epoch,
            metadata=services.metadata,
            addresses=services.addresses,
            peers=services.peers,
            loop=services.loop,
        )
        self._dirty: dict[str, None] = {}
        self._is_cleaning = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follows the instances and the metadata, and begins to report."""
        self._placement.on_change(self._placed)
        self._services.instances.on_change(self._changed)
        self._task = self._services.create_task(self._reports.run())

    def close(self) -> None:
        """Ends the reports, and lets go of all connections."""
        if self._task is not None:
            self._task.cancel()
        for flow in self._flows.values():
            flow.close()

    # ---- what the view of an instance uses

    def throttling(self, name: str) -> InstanceThrottling:
        """What takes the place of `Throttling` for the connections of an instance that exists."""
        flow = self._flows.get(name)
        if flow is None:
            instance = self._services.instances.get(name)
            if instance is None:
                raise KeyError(name)
            flow = self._flows[name] = InstanceThrottling(
                instance,
                self._services.throttling,
                self.rates,
                self._services.metadata,
                self._services.loop,
                is_full=lambda: self.counts.is_full(name),
                reported_at=lambda: self._reports.reported_at,
            )
        return flow

    def may_store(self, name: str) -> KafkaError | None:
        """None, or the error with which every partition of a Produce is to be answered, with its message."""
        return self.counts.may_store(name)

    def was_refused(self, name: str, size: int) -> None:
        """A Produce of `size` bytes is answered with the error of `may_store`."""
        self.counts.was_refused(name, size)

    # ---- what the handlers use

    async def receive(self, text: str) -> str:
        """Answers the document of a report. Raises NOT_CONTROLLER, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST."""
        return await encode_answer(await self.host.receive(await decode_report(text)))

    async def describe(self, names: Iterable[str] | None = None) -> dict[str, object]:
        """What this broker knows of instances, all when None: as JSON."""
        found: dict[str, object] = {}
        turns = Turns(INSTANCES_PER_TURN)
        for name in [each.name for each in self._services.instances.all()] if names is None else names:
            instance = self._services.instances.get(name)
            if instance is not None:
                found[name] = self._described(instance)
                await turns.count()
        return {"broker": self._services.broker_id, "is_controller": self.host.is_here, "instances": found}

    def flows(self) -> Mapping[str, InstanceThrottling]:
        """Of each instance that has had a connection."""
        return self._flows

    # ---- what changes

    def _changed(self, name: str, instance: Instance | None) -> None:
        if instance is None:
            self.rates.drop(name)
            self.counts.drop(name)
            flow = self._flows.pop(name, None)
            if flow is not None:
                flow.close()
        else:
            self.counts.set_instance(instance)
            if name in self._flows:
                self._flows[name].set_instance(instance)
        self._mark([name])

    def _placed(self, names: Collection[str], is_membership: bool) -> None:
        if is_membership:
            self.host.brokers_changed(self._placement.brokers)
            self._mark(each.name for each in self._services.instances.all())
        self._mark(names)

    def _mark(self, names: Iterable[str]) -> None:
        self._dirty.update(dict.fromkeys(names))
        if self._dirty and not self._is_cleaning:
            self._is_cleaning = True
            self._services.loop.call_soon(self._clean)

    def _clean(self) -> None:
        """Takes some of what has changed; the next turn takes the next."""
        self._is_cleaning = False
        if not self._placement.is_known:
            return  # the first metadata is a change of membership, which marks all
        for name in list(self._dirty)[:INSTANCES_PER_TURN]:
            del self._dirty[name]
            instance = self._services.instances.get(name)
            if instance is not None:
                self.rates.set_instance(instance)
                flow = self._flows.get(name)
                if flow is not None:
                    flow.tune()
            self.host.instance_changed(name, instance)
        self._mark(())

    def _bytes_in(self, name: str) -> int:
        flow = self._flows.get(name)
        return 0 if flow is None else flow.bytes_in

    def _full_changed(self, name: str) -> None:
        self.rates.generation += 1

    # ---- describing

    def _described(self, instance: Instance) -> dict[str, object]:
        name = instance.name
        flow, rates, fair = self._flows.get(name), self.rates.rates(name), self.rates.fair(name)
        here, _ = self.counts.count_here(name, counts_replicas=instance.counts_replicas)
        return {
            "in": _direction(
                instance.bytes_in,
                rates.rate_in,
                fair.rate_in,
                None if flow is None else (flow.bytes_in, flow.last_in, flow.gate_in),
            ),
            "out": _direction(
                instance.bytes_out,
                rates.rate_out,
                fair.rate_out,
                None if flow is None else (flow.bytes_out, flow.last_out, flow.gate_out),
            ),
            "groups": {} if flow is None or flow.gate_groups is None else _held(flow.gate_groups),
            "capacity": instance.capacity,
            "stored_here": here,
            "stored": self.counts.stored(name),
            "is_full": self.counts.is_full(name),
            "refused": self.counts.refused(name),
            "is_led": self.rates.leases.is_led(self._services.loop.time()),
            "controller": self.host.explain(name),
        }


def _direction(
    limit: int | None, rate: float, fair: float, flow: tuple[int, Metered, FlowGate | None] | None
) -> dict[str, object]:
    described: dict[str, object] = {"limit": limit, "rate": None, "fair": None, "total": 0, "bytes_per_s": 0.0}
    if limit is not None and rate < UNLIMITED:  # otherwise it has just been limited
        described |= {"rate": rate, "fair": fair}
    if flow is None:
        return described
    total, last, gate = flow
    described |= {"total": total, "bytes_per_s": last.bytes_per_s, "throttled_s": last.throttled_s}
    if gate is not None:
        described |= {**_held(gate), "partitions": gate.partitions.largest(TOP_COUNT)}
    return described


def _held(gate: FlowGate) -> dict[str, object]:
    return {
        "held": gate.waiting_count,
        "told_count": gate.throttled.count,
        "held_s": gate.held_s,
        "clients": gate.clients.largest(TOP_COUNT),
    }
