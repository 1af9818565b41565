"""What goes wrong in a run, and when: faults at seeded moments, of the kinds that the plan names."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tests.simulation import plan as kinds
from tests.simulation.broker import SimBroker
from tests.simulation.clients import Administrator
from tests.simulation.network import CALM, ENSEMBLE
from tests.simulation.scheduler import Life

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

MS = 1000
_RETRY_MS = 500


class Nemesis:
    """Hurts a cluster until it is told to end; then everything heals."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._chance = Random(f"{cluster.seed}/nemesis")
        self.is_over = False
        self._lacking: dict[tuple[int, int], bool] = {}
        """Who lost power may lack what is committed, per broker and partition, until it has been seen out of the ISR
        (then True here) and in it again: the ISR in the tree knows nothing of it at first."""

    def isr_written(self, partition: int, isr: Sequence[int]) -> None:
        """The tree has a new ISR."""
        for key, has_left in list(self._lacking.items()):
            broker, number = key
            if number == partition and broker not in isr:
                self._lacking[key] = True
            elif number == partition and has_left:
                del self._lacking[key]

    def begin(self) -> None:
        """The first fault comes soon."""
        if self._cluster.plan.faults:
            self._later(self._chance.randrange(200, 200 + self._cluster.plan.gap_ms), self._strike)

    def end(self) -> None:
        """Heals everything, and starts whoever is dead."""
        self.is_over = True
        self._heal_network()
        self._cluster.network.weather = CALM
        for broker in self._cluster.brokers.values():
            if broker.process is not None and broker.process.life is Life.PAUSED:
                broker.resume()
            if broker.process is not None:
                broker.process.loop.slow_disk_us = 0
            self._revive(broker)

    def _later(self, delay_ms: int, call, *args) -> None:  # type: ignore[no-untyped-def]
        self._cluster.network.process.call_in(delay_ms * MS, call, *args)

    def _note(self, what: str) -> None:
        self._cluster.timeline.note("nemesis", what)

    def _strike(self) -> None:
        if self.is_over:
            return
        plan, chance = self._cluster.plan, self._chance
        kind = chance.choice(plan.faults)
        if kind in (kinds.ELECT, kinds.REASSIGN):
            self._administrate(kind)
        else:
            self._do(kind)
        self._later(chance.randrange(plan.gap_ms // 4, plan.gap_ms * 2), self._strike)

    def _down(self) -> list[SimBroker]:
        """Brokers that have failed. Where power may fail, one that is not in every ISR counts, and one that is back
        until it has caught up: before that it may lack what is committed."""
        cluster = self._cluster
        down = [
            broker
            for broker in cluster.brokers.values()
            if not broker.is_ready
            or any(broker.host in pair for pair in cluster.network.cuts)
            or any(broker.host == target for _, target in cluster.network.refusals)
        ]
        if kinds.POWER in cluster.plan.faults:
            isrs = {number: state.isr for number, state in cluster.leaderships().items()}
            down += [
                broker
                for broker in cluster.brokers.values()
                if broker not in down
                and any(
                    broker in cluster.holders(number)
                    and (broker.number not in isr or (broker.number, number) in self._lacking)
                    for number, isr in isrs.items()
                )
            ]
        return down

    def _victim(self) -> SimBroker | None:
        """A broker that may fail now."""
        ready = [broker for broker in self._cluster.brokers.values() if broker.is_ready]
        down = self._down()
        if not ready or len(down) >= self._cluster.plan.failures_max:
            return None
        victim = self._chance.choice(ready)
        return None if victim in down and kinds.POWER in self._cluster.plan.faults else victim

    def _do(self, kind: str) -> None:
        victim = self._victim()
        if victim is None:
            return
        chance, network = self._chance, self._cluster.network
        if kind == kinds.CRASH:
            victim.kill()
            self._later(chance.choice((50, 500, 2000, 5000)) + chance.randrange(500), self._revive, victim)
        elif kind == kinds.POWER:
            victim.lose_power()
            for number, state in self._cluster.leaderships().items():
                self._lacking[victim.number, number] = victim.number not in state.isr
            self._later(chance.choice((50, 500, 2000, 5000)) + chance.randrange(500), self._revive, victim)
        elif kind == kinds.PAUSE:
            victim.pause()
            self._later(chance.choice((100, 1000, 2500, 5000)) + chance.randrange(500), self._resume, victim)
        elif kind == kinds.STOP:
            victim.stop()
            self._later(chance.choice((200, 2000)) + chance.randrange(2000), self._revive, victim)
        elif kind == kinds.SESSION:
            self._cluster.ensemble.expire(victim.host)
        elif kind == kinds.SKEW:
            victim.clock_skew_ms = chance.randrange(-30_000, 30_000)
            assert victim.process is not None
            victim.process.clock_skew_ms = victim.clock_skew_ms
            victim.note(f"its clock is off by {victim.clock_skew_ms} ms")
        elif kind == kinds.SLOW_DISK:
            assert victim.process is not None
            victim.process.loop.slow_disk_us = chance.choice((5_000, 50_000, 300_000))
            victim.note(f"its disk takes {victim.process.loop.slow_disk_us / 1000:g} ms longer")
        elif kind == kinds.REFUSE:
            self._refuse(victim)
        elif kind in (kinds.CUT, kinds.CUT_ONE_WAY, kinds.ISOLATE):
            self._cut(kind, victim)
            if network.cuts:
                self._later(chance.choice((300, 1500, 4000)) + chance.randrange(500), self._heal_network)

    def _administrate(self, kind: str) -> None:
        """Moves leaders and replicas, which is no fault, at any moment."""
        cluster, chance = self._cluster, self._chance
        client = cluster.admin
        administrator = Administrator(client)
        if kind == kinds.ELECT:
            work = administrator.elect_preferred()
        else:
            replicas = chance.sample(sorted(cluster.brokers), cluster.plan.replicas)
            work = administrator.reassign(chance.randrange(cluster.plan.partitions), replicas)
        client.process.call(client.process.loop.create_task, work)

    def _cut(self, kind: str, victim: SimBroker) -> None:
        chance, network = self._chance, self._cluster.network
        others = [broker.host for broker in self._cluster.brokers.values() if broker is not victim] + [ENSEMBLE]
        if kind != kinds.ISOLATE:
            others = [chance.choice(others)]
        for other in others:
            network.cut(victim.host, other)
            if kind != kinds.CUT_ONE_WAY:
                network.cut(other, victim.host)
        arrow = "to" if kind == kinds.CUT_ONE_WAY else "from"
        self._note(f"cuts {victim.host} {'off ' if arrow == 'from' else ''}{arrow} {', '.join(others)}")

    def _refuse(self, victim: SimBroker) -> None:
        """Some brokers, or all, take a live one for dead."""
        others = [broker.host for broker in self._cluster.brokers.values() if broker is not victim]
        deceived = self._chance.sample(others, self._chance.randrange(1, len(others) + 1))
        self._note(f"has {victim.host} refuse {', '.join(deceived)}")
        for other in deceived:
            self._cluster.network.refuse(other, victim.host)
        self._later(self._chance.choice((100, 1500, 4000)) + self._chance.randrange(500), self._heal_network)

    def _heal_network(self) -> None:
        if self._cluster.network.cuts or self._cluster.network.refusals:
            self._note("heals the network")
            self._cluster.network.heal()

    def _revive(self, broker: SimBroker) -> None:
        if not broker.is_running:
            broker.start()

    def _resume(self, broker: SimBroker) -> None:
        if broker.process is not None and broker.process.life is Life.PAUSED:
            broker.resume()
