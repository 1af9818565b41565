"""A cluster of brokers and masters in virtual time: the real state machines, a network that loses and delays, and
clients.

Reports and answers are events. Between them, in ticks, clients use what their demand and the buckets let through.
`watch` is called after every event and tick, so that nothing that exceeds a limit for a moment is missed.
"""

import random
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from headrace.instances.flow.allotment import Allocator
from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.leases import UNLIMITED, LeaseAnswer, Report
from headrace.instances.flow.master import FlowMaster
from headrace.instances.flow.max_min import allot_max_min
from headrace.instances.flow.meter import BucketMeter, Metered
from headrace.quotas.token_bucket import TokenBucket

Load = Callable[[str, int, float], float]
"""The demand in bytes/s of an instance on a broker at a time: in, and out if clients read what they write."""

NOTHING = Metered(0.0, 0.0)
REPEATED_WITHIN_S = 6.0
"""Longer than a lease: what comes again may be of the time before."""


class Clients:
    """The clients of one instance on one broker, one direction: each sends what it wants, until it is muted."""

    def __init__(self, rate: float, burst_s: float, connections: int, reported_at: float, now: float) -> None:
        self.bucket = TokenBucket(rate, rate * burst_s, now)
        self.meter = BucketMeter(reported_at)
        self.total = 0.0
        self._burst_s = burst_s
        self._muted_until = [now] * connections

    def use(self, demand: float, tick_s: float, now: float) -> None:
        """One tick: each connection that is not muted sends its part of the demand, in a request."""
        part = demand * tick_s / len(self._muted_until)
        if part <= 0:
            return
        for index, muted_until in enumerate(self._muted_until):
            if muted_until <= now:
                wait = self.bucket.spend(part, now)
                self.meter.count(part, wait, now)
                self.total += part
                self._muted_until[index] = now + wait

    def set_rate(self, rate: float, now: float) -> None:
        """The rate in force changed: the bucket, and with it the waits that are under way."""
        if rate == self.bucket.rate:
            return
        self.bucket.retune(rate, rate * self._burst_s, now)
        until = now + self.bucket.wait_s(now)
        self.meter.hold_until(until, now)
        self._muted_until = [min(each, until) for each in self._muted_until]


class SimulatedBroker:
    """One broker, its leases and its clients."""

    def __init__(self, broker_id: int, phase_s: float) -> None:
        self.broker_id, self.phase_s = broker_id, phase_s
        self.epoch = 1
        self.leases = BrokerLeases(broker_id, self.epoch)
        self.clients: dict[str, Clients] = {}
        self.cut_until = 0.0
        self.is_up = True
        self.generation = 0
        self.reported_at = phase_s - 1


class FlowCluster:
    """Brokers, one master at a time, and what lies between them."""

    def __init__(
        self,
        brokers: int,
        *,
        seed: int = 1,
        allocate: Allocator = allot_max_min,
        delay_s: tuple[float, float] = (0.0005, 0.01),
        lost: float = 0.0,
        repeated: float = 0.0,
        metadata_delay_s: float = 0.05,
        tick_s: float = 0.05,
        burst_s: float = 1.0,
        connections: int = 4,
        are_read: bool = True,
    ) -> None:
        """`repeated`: the share of messages that come once more, up to `REPEATED_WITHIN_S` later. `are_read`: whether
        as much flows out as in; nothing does if not."""
        self.now = 0.0
        self.repeated = repeated
        self.random = random.Random(seed)
        self.allocate, self.delay_s, self.lost = allocate, delay_s, lost
        self.metadata_delay_s, self.tick_s = metadata_delay_s, tick_s
        self.burst_s, self.connections = burst_s, connections
        self.are_read = are_read
        self.load: Load = lambda instance, broker, now: 0.0
        self.watch: Callable[[], None] = lambda: None
        self.messages = self.rows = self.leases_sent = 0
        self.master: FlowMaster | None = None
        self.epoch = 0
        self.limits: dict[str, float] = {}
        self.partitions: dict[str, dict[int, int]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._next_tick = 0.0
        self.brokers = {each: SimulatedBroker(each, self.random.random()) for each in range(1, brokers + 1)}
        for broker in self.brokers.values():
            self._at(broker.phase_s, self._reporting(broker))

    # ---- what happens to it

    def start_master(self) -> None:
        """A controller is elected. It knows the metadata, and no lease."""
        self.epoch += 1
        self.master = FlowMaster(self.epoch, self.now, self.allocate)
        for name in self.limits:
            self._tell_master(name)

    def stop_master(self) -> None:
        """The controller is gone, and so is everything that it knew. Answers on the way still come."""
        self.master = None

    def add_instance(self, name: str, limit: float, partitions: Mapping[int, int]) -> None:
        """Every broker and the master know of it at once."""
        self.limits[name], self.partitions[name] = limit, dict(partitions)
        for broker in self.brokers.values():
            self._tell_broker(broker, name)
        self._tell_master(name)

    def move(self, name: str, partitions: Mapping[int, int]) -> None:
        """Partitions move: the master knows at once, each broker after its own delay."""
        self.partitions[name] = dict(partitions)
        self._tell_master(name)
        for broker in self.brokers.values():
            delay = self.random.uniform(0, self.metadata_delay_s)
            self._at(self.now + delay, lambda broker=broker: self._tell_broker(broker, name))  # type: ignore[misc]

    def cut(self, broker_id: int, seconds: float) -> None:
        """Nothing passes between the broker and any master."""
        broker = self.brokers[broker_id]
        broker.cut_until = max(broker.cut_until, self.now + seconds)

    def restart(self, broker_id: int) -> None:
        """The broker forgets its leases and counts; its first report goes out at once."""
        broker = self.brokers[broker_id]
        broker.epoch += 1
        broker.generation += 1
        broker.leases = BrokerLeases(broker_id, broker.epoch)
        broker.clients.clear()
        for name in self.limits:
            self._tell_broker(broker, name)
        self._at(self.now, self._reporting(broker))

    def run(self, until: float) -> None:
        """Lets time pass."""
        while True:
            event_at = self._events[0][0] if self._events else UNLIMITED
            if min(event_at, self._next_tick) > until:
                break
            if event_at <= self._next_tick:
                self.now, _, happens = heappop(self._events)
                happens()
            else:
                self.now = self._next_tick
                self._next_tick += self.tick_s
                self._tick()
            self.watch()
        self.now = until

    # ---- what can be asked

    def rate(self, name: str, broker_id: int) -> float:
        """The rate in force on a broker, in; out it is the same if messages are read."""
        return self.brokers[broker_id].leases.rates(name, self.now).rate_in

    def rates(self, name: str) -> float:
        """The sum of the rates in force, of the direction in which it is larger."""
        in_force = [each.leases.rates(name, self.now) for each in self.brokers.values()]
        return max(sum(each.rate_in for each in in_force), sum(each.rate_out for each in in_force))

    def is_idle(self, name: str) -> bool:
        """Whether the master leaves an instance alone, as no broker uses much of its F."""
        return self.master is not None and self.master._instances[name].is_idle()

    def share(self, name: str, broker_id: int) -> float:
        """The share of the partitions that a broker leads."""
        partitions = self.partitions[name]
        return partitions.get(broker_id, 0) / max(sum(partitions.values()), 1)

    def total(self, name: str, broker_id: int | None = None) -> float:
        """Bytes that flowed in, on one broker or all."""
        brokers = self.brokers.values() if broker_id is None else [self.brokers[broker_id]]
        return sum(each.clients[name].total for each in brokers if name in each.clients)

    # ---- inside

    def _at(self, when: float, happens: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (when, self._order, happens))

    def _tell_master(self, name: str) -> None:
        if self.master is not None:
            limit = self.limits[name]
            self.master.set_instance(name, limit, limit, self.partitions[name], self.now)

    def _tell_broker(self, broker: SimulatedBroker, name: str) -> None:
        limit, partitions = self.limits[name], self.partitions[name]
        own, of_all = partitions.get(broker.broker_id, 0), sum(partitions.values())
        broker.leases.set_share(name, limit, limit, own, of_all, self.now)

    def _reporting(self, broker: SimulatedBroker) -> Callable[[], None]:
        generation = broker.generation

        def report() -> None:
            if broker.generation == generation:
                self._at(self.now + 1, report)
                self._report(broker)

        return report

    def _report(self, broker: SimulatedBroker) -> None:
        used = []
        for name, clients in broker.clients.items():
            metered = clients.meter.take(self.now)
            if metered != NOTHING:
                used.append((name, metered, metered if self.are_read else NOTHING))
        broker.reported_at = self.now
        self._send(broker, broker.leases.report(used, self.now))

    def _send(self, broker: SimulatedBroker, report: Report) -> None:
        if self._passes(broker):
            self._deliver(lambda: self._receive(broker, report))

    def _receive(self, broker: SimulatedBroker, report: Report) -> None:
        if self.master is None:
            return
        self.messages += 1
        self.rows += len(report.usages)
        answer = self.master.answer(report, self.now)
        if answer is not None and self._passes(broker):
            self.leases_sent += len(answer.leases)
            generation = broker.generation
            self._deliver(lambda: self._accept(broker, answer) if broker.generation == generation else None)

    def _accept(self, broker: SimulatedBroker, answer: LeaseAnswer) -> None:
        if self.now >= broker.cut_until:
            broker.leases.accept(answer, self.now)
            if broker.leases.is_to_acknowledge:
                self._send(broker, broker.leases.acknowledgement(self.now))

    def _deliver(self, happens: Callable[[], None]) -> None:
        self._at(self._arrival(), happens)
        if self.repeated and self.random.random() < self.repeated:
            self._at(self.now + self.random.uniform(0, REPEATED_WITHIN_S), happens)

    def _passes(self, broker: SimulatedBroker) -> bool:
        return self.now >= broker.cut_until and self.random.random() >= self.lost

    def _arrival(self) -> float:
        return self.now + self.random.uniform(*self.delay_s)

    def _tick(self) -> None:
        for name in self.limits:
            for broker in self.brokers.values():
                demand = self.load(name, broker.broker_id, self.now)
                clients = broker.clients.get(name)
                if clients is None:
                    if demand <= 0:
                        continue
                    rate = broker.leases.rates(name, self.now).rate_in
                    clients = broker.clients[name] = Clients(
                        rate, self.burst_s, self.connections, broker.reported_at, self.now
                    )
                clients.set_rate(broker.leases.rates(name, self.now).rate_in, self.now)
                clients.use(demand, self.tick_s, self.now)
