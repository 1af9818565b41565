"""Watches what the brokers let through of each instance, and what the controller counts of its storage.

Looked at every 40 ms, from outside: the definitions and the leaders are those of the metadata store, the rates those
that the brokers have in force at that moment.

    unreachable    a broker that no controller's answer has reached for a lease, whose answers are from a controller
                   that was replaced, or which is not registered, so that it gets no metadata; it counts for
                   REMEMBERED_INTERVALS more, as a master that takes over renews what each broker holds until it has
                   heard all of them. Such a broker may add F to the limit
    quiet          no leader of the instance has changed, and no leader or controller was down or cut off, for
                   QUIET_INTERVALS: then every byte must be counted once, also those of a replica that moves, and
                   what is full must be known to be full within BLOCKED_INTERVALS
"""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.instances.storage_counts import OTHERS_EVERY
from headrace.instances.definition import Instance
from headrace.metadata import znodes
from headrace.types import TopicPartition
from tests.simulation.history import GrownFull, LateRate, RatesInForce, StoredSeen, Volume
from tests.simulation.scheduler import Life

if TYPE_CHECKING:
    from headrace.broker.instances.flow import InstanceFlow
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import Cluster

REMEMBERED_INTERVALS = 15
LATE_INTERVALS = 3
"""Intervals in which what is in force must reach those who are held back by it."""

QUIET_INTERVALS = 5
BLOCKED_INTERVALS = 3
"""Intervals after which no broker takes more into full storage: one until the controller is told, one until it tells
the others, and a request on its way."""

COUNTED_INTERVALS = OTHERS_EVERY + 3
"""Intervals within which the controller knows what was deleted of an instance that is not near its capacity."""

CONNECTION_BYTES = 1000
"""What a connection may send before it is held: a request, and one that was on its way."""

UNSEEN_BYTES = 2000
"""What may have been produced and deleted between two looks, on all replicas."""

DIRECTIONS = ("in", "out")


class _Seen(NamedTuple):
    """What one broker had in force, and its F, of one instance and direction."""

    at_s: float
    rate: float
    fair: float


class FlowWatch:
    """The watch over the instances that live as long as the run."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, int, str], deque[_Seen]] = {}
        self._unreachable_s: dict[int, float] = {}
        self._disturbed_s: dict[int, float] = {}
        self._gone_s: dict[int, float] = {}
        self._held_lately: dict[str, deque[tuple[float, int]]] = {}
        self._full_since: dict[str, float] = {}
        self._blocked_at: dict[str, int] = {}
        """What an instance held when it had been full for BLOCKED_INTERVALS."""
        self._leaders: dict[str, tuple[dict[TopicPartition, int], float]] = {}
        self._produced: dict[tuple[str, int], int] = {}
        self._volume: dict[str, float] = {}
        self._allowed: dict[str, float] = {}
        self._flows: dict[int, InstanceFlow] = {}
        self._last_s = 0.0
        self._interval_s = int(cluster.plan.settings.get("headrace.flow.report.ms", "1000")) / 1000

    def look(self) -> None:
        """Looks at everything once."""
        cluster = self._cluster
        now = cluster.scheduler.now_us / 1e6
        flows = {number: flow for number, broker in cluster.brokers.items() if (flow := _flow_of(broker)) is not None}
        self._look_at_brokers(flows, now)
        for name in cluster.tenancy.long_lived:
            found = cluster.tenancy.definitions.get(name)
            if found is not None and found.is_limited:
                self._look_at_rates(name, flows, now)
                self._look_at_storage(name, now)
        self._flows, self._last_s = flows, now

    def finish(self) -> None:
        """Notes what flowed in all."""
        history = self._cluster.history
        for name, volume in self._volume.items():
            history.volumes.append(Volume(name, volume, self._allowed[name]))

    # ---- brokers

    def _look_at_brokers(self, flows: "dict[int, InstanceFlow]", now: float) -> None:
        cluster = self._cluster
        node = cluster.ensemble.store.find(znodes.CONTROLLER_EPOCH)
        epoch = 0 if node is None else int(node.data)
        for number, broker in cluster.brokers.items():
            flow = flows.get(number)
            is_registered = cluster.ensemble.store.find(f"{znodes.BROKER_IDS}/{number}") is not None
            if not is_registered or flow is None:
                self._gone_s[number] = now
            leases = None if flow is None else flow.rates.leases
            if leases is None or not is_registered or not leases.is_led(now) or leases.controller_epoch < epoch:
                self._unreachable_s[number] = now
            is_cut = any(broker.host in pair for pair in (*cluster.network.cuts, *cluster.network.refusals))
            if flow is None or not broker.is_ready or is_cut:
                self._disturbed_s[number] = now

    def _is_remembered(self, broker: int, now: float) -> bool:
        return now < self._unreachable_s.get(broker, -1e9) + REMEMBERED_INTERVALS * self._interval_s

    def was_gone(self, host: str) -> bool:
        """Whether a broker was not registered a moment ago, so that nobody waits for it."""
        now = self._cluster.scheduler.now_us / 1e6
        return any(
            now - self._gone_s.get(number, -1e9) < QUIET_INTERVALS * self._interval_s
            for number, broker in self._cluster.brokers.items()
            if broker.host == host
        )

    # ---- rates

    def _look_at_rates(self, name: str, flows: "dict[int, InstanceFlow]", now: float) -> None:
        history, remembered = self._cluster.history, REMEMBERED_INTERVALS * self._interval_s
        for at, direction in enumerate(DIRECTIONS):
            limit = self._limit(name, at, now - remembered)
            in_force = unreachable = 0.0
            for number in self._cluster.brokers:
                seen = self._seen.setdefault((name, number, direction), deque())
                flow = flows.get(number)
                if flow is not None and flow.rates.limits(name) is not None:
                    rate, fair = flow.rates.leases.rates(name, now)[at], flow.rates.leases.fair(name, now)[at]
                    in_force += rate
                    if direction == "in" and flow.counts.is_full(name):
                        rate = max(rate, fair)  # that of the requests which are refused
                    seen.append(_Seen(now, rate, fair))
                    self._look_at_gate(name, number, flow, direction, now)
                while seen and seen[0].at_s < now - remembered:
                    seen.popleft()
                if self._is_remembered(number, now):
                    unreachable += max((each.fair for each in seen), default=0.0)
            at_us = self._cluster.scheduler.now_us
            history.rates.append(RatesInForce(name, direction, at_us, in_force, limit, unreachable))
            if direction == "in":
                self._measure(name, flows, limit + unreachable, now)

    def _limit(self, name: str, at: int, since: float) -> float:
        """The highest limit of an instance since then."""
        written = [each for each in self._cluster.tenancy.limits[name] if each[1].is_limited]
        before = [each for at_us, each in written if at_us / 1e6 < since][-1:]
        lately = [each for at_us, each in written if at_us / 1e6 >= since]
        return max(float(_limits(each)[at]) for each in before + lately)

    def _look_at_gate(self, name: str, number: int, flow: "InstanceFlow", direction: str, now: float) -> None:
        """Clients that are held back must not be at a rate of the past."""
        throttling = flow.flows().get(name)
        gate = None if throttling is None else throttling.gate_in if direction == "in" else throttling.gate_out
        late_s = LATE_INTERVALS * self._interval_s
        broker = self._cluster.brokers[number]
        if gate is None or not gate.waiting_count or now - self._disturbed_s.get(number, -1e9) < late_s:
            return
        lately = [each.rate for each in self._seen[name, number, direction] if each.at_s >= now - late_s]
        if self._flows.get(number) is flow and gate.bucket.rate > max(lately) * 1.001:
            late = LateRate(name, broker.number, self._cluster.scheduler.now_us, gate.bucket.rate, max(lately))
            self._cluster.history.late_rates.append(late)

    def _measure(self, name: str, flows: "dict[int, InstanceFlow]", allowed: float, now: float) -> None:
        """Adds up what was produced, and what was allowed."""
        burst_s = self._cluster.tenancy.definitions[name].burst_seconds
        self._allowed[name] = self._allowed.get(name, 0.0) + allowed * (now - self._last_s)
        for number, flow in flows.items():
            throttling = flow.flows().get(name)
            total = 0 if throttling is None else throttling.bytes_in
            if self._flows.get(number) is not flow:  # another life of the process, whose bucket begins full
                self._produced[name, number] = 0
                self._allowed[name] += allowed * burst_s + CONNECTION_BYTES
            before = self._produced.get((name, number), 0)
            self._volume[name] = self._volume.get(name, 0.0) + max(total - before, 0)
            self._produced[name, number] = total

    # ---- storage

    def _look_at_storage(self, name: str, now: float) -> None:
        if self._cluster.tenancy.definitions[name].capacity is None:
            return
        held = self._held_lately.setdefault(name, deque())
        held.append((now, self.held(name)))
        while held[0][0] < now - COUNTED_INTERVALS * self._interval_s:
            held.popleft()
        found, is_quiet = self._stored(name), self._is_quiet(name, now)
        capacity = self._cluster.tenancy.definitions[name].capacity
        has_room = (
            found is not None and capacity is not None and found < capacity
        )  # a replica may delete a little later
        self._look_at_growth(name, held[-1][1] if is_quiet and not has_room else 0, now)
        if found is None or not is_quiet:
            return
        most = max(size for _, size in held) + UNSEEN_BYTES  # what is deleted is counted for a while
        self._cluster.history.stored.append(
            StoredSeen(name, self._cluster.scheduler.now_us, found, most, is_exact=False)
        )

    def _look_at_growth(self, name: str, held: int, now: float) -> None:
        """What is full must not grow, once every broker had the time to hear of it."""
        capacity = self._cluster.tenancy.definitions[name].capacity
        assert capacity is not None
        if held < capacity:
            self._full_since.pop(name, None)
            self._blocked_at.pop(name, None)
        elif now >= self._full_since.setdefault(name, now) + BLOCKED_INTERVALS * self._interval_s:
            blocked_at = self._blocked_at.setdefault(name, held)
            at_us = self._cluster.scheduler.now_us
            self._cluster.history.full.append(GrownFull(name, at_us, capacity, blocked_at, held))

    def _stored(self, name: str) -> int | None:
        """The bytes of an instance as the controller counts them."""
        broker = self._cluster.controller()
        flow = None if broker is None else _flow_of(broker)
        told = None if flow is None else flow.host.explain(name)
        stored = None if told is None else told["stored"]
        return stored if isinstance(stored, int) else None

    def held(self, name: str) -> int:
        """The bytes that the replicas of an instance have, or will have; a replica that moves counts once."""
        cluster, size = self._cluster, 0
        for key in cluster.all_leaderships():
            if not key.topic.startswith(f"{name}."):
                continue
            found = cluster.replicas(key)
            logs = [
                partition.log.size_bytes
                for broker in cluster.brokers.values()
                if broker.parts is not None and (partition := broker.parts.replicas.find(key)) is not None
            ]
            size += max(logs, default=0) * (len(found.replicas) - len(found.adding))
        return size

    def _is_quiet(self, name: str, now: float) -> bool:
        cluster, quiet_s = self._cluster, QUIET_INTERVALS * self._interval_s
        leaders = {
            key: state.leader if cluster.is_held(key) else -1
            for key, state in cluster.all_leaderships().items()
            if key.topic.startswith(f"{name}.")
        }
        before, since = self._leaders.get(name, ({}, now))
        if leaders != before:
            self._leaders[name] = leaders, now
            return False
        controller = cluster.controller()
        concerned = {*leaders.values(), *(() if controller is None else (controller.number,))}
        return now - since > quiet_s and all(
            now - self._disturbed_s.get(each, -1e9) > quiet_s and not self._is_remembered(each, now)
            for each in concerned
        )

    def is_exact(self, name: str) -> bool:
        """Whether the controller counts what there is, and every broker knows whether that is too much."""
        stored, held = self._stored(name), self.held(name)
        return stored == held

    def note_exact(self, name: str) -> None:
        """Notes what the controller counts in the end."""
        at_us = self._cluster.scheduler.now_us
        stored = self._stored(name)
        counted = -1 if stored is None else stored
        self._cluster.history.stored.append(StoredSeen(name, at_us, counted, self.held(name), is_exact=True))


def _limits(instance: Instance) -> tuple[int, int]:
    assert instance.bytes_in is not None
    assert instance.bytes_out is not None
    return instance.bytes_in, instance.bytes_out


def _flow_of(broker: "SimBroker") -> "InstanceFlow | None":
    """What a broker knows of the flow of instances; None if it does not serve."""
    if broker.parts is None or broker.process is None or broker.process.life is Life.DEAD:
        return None
    return broker.parts.instance_flow()
