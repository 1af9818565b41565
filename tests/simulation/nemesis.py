"""What goes wrong in a run, and when: faults at seeded moments, of the kinds that the plan names."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from headrace.types import TopicPartition
from tests.simulation import plan as kinds
from tests.simulation.broker import SimBroker
from tests.simulation.clients import Administrator
from tests.simulation.controller_windows import ControllerWindows
from tests.simulation.network import CALM, ENSEMBLE
from tests.simulation.scheduler import Life

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

MS = 1000
_RETRY_MS = 500


@dataclass
class _Unclean:
    """A replica of a broker that stopped uncleanly. The ISR in the metadata store knows nothing of it at first: the
    replica has
    to be seen out of it, and in it again after the broker registered."""

    has_left: bool
    is_back: bool = False


class Nemesis:
    """Hurts a cluster until it is told to end; then everything heals."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.chance = Random(f"{cluster.seed}/nemesis")
        self.is_over = False
        self.windows = ControllerWindows(self, cluster)
        self._is_rolling = False
        self._skews_ms = {0}
        self._deletions = Random(f"{cluster.seed}/nemesis/deletions")
        self._unclean: dict[tuple[int, TopicPartition], _Unclean] = {}
        """Replicas of brokers that stopped uncleanly where power may fail, until the ISR tells that they are whole."""

    def registered(self, broker: int) -> None:
        """A broker is back."""
        self.windows.registered(broker)
        for (number, _), each in self._unclean.items():
            if number == broker:
                each.is_back = True

    def isr_written(self, partition: TopicPartition, isr: Sequence[int]) -> None:
        """The metadata store has a new ISR."""
        for (broker, key), each in list(self._unclean.items()):
            if key != partition:
                continue
            if broker not in isr:
                each.has_left = True
            elif each.has_left and each.is_back:
                del self._unclean[broker, key]

    def begin(self) -> None:
        """The first fault comes soon."""
        if self._cluster.plan.faults:
            self.later(self.chance.randrange(200, 200 + self._cluster.plan.gap_ms), self._strike)
        if self._cluster.plan.deletes_records:
            self.later(500, self._delete_records)

    def end(self) -> None:
        """Heals everything, and starts whoever is dead."""
        self.is_over = True
        self.heal_network()
        self._cluster.network.weather = CALM
        for broker in self._cluster.brokers.values():
            if broker.process is not None and broker.process.life is Life.PAUSED:
                broker.resume()
            broker.slow_down(0)
            broker.disk.is_full = False
            self.revive(broker)

    def later(self, delay_ms: int, call, *args) -> None:  # type: ignore[no-untyped-def]
        self._cluster.network.process.call_in(delay_ms * MS, call, *args)

    def note(self, what: str) -> None:
        self._cluster.timeline.note("nemesis", what)

    def _strike(self) -> None:
        if self.is_over:
            return
        plan, chance = self._cluster.plan, self.chance
        kind = chance.choice(plan.faults)
        if kind in (kinds.ELECT, kinds.REASSIGN):
            self._administrate(kind)
        elif kind == kinds.ROLL:
            self._roll()
        elif kind == kinds.CONTROLLER:
            self.windows.begin()
        elif kind == kinds.BLACKOUT:
            self._black_out()
        else:
            self._do(kind)
        self.later(chance.randrange(plan.gap_ms // 4, plan.gap_ms * 2), self._strike)

    def down(self) -> list[SimBroker]:
        """Brokers that have failed. Where power may fail, one that is neither in every ISR nor eligible counts, and one
        that is back until it has caught up: before that it may lack what is committed, or be taken for one that does,
        so that of a broker that dies after it the ISR is all that is left."""
        cluster = self._cluster
        down = [
            broker
            for broker in cluster.brokers.values()
            if not broker.is_ready
            or any(broker.host in pair for pair in cluster.network.cuts)
            or any(broker.host == target for _, target in cluster.network.refusals)
        ]
        if kinds.POWER in cluster.plan.faults:
            states = cluster.all_leaderships()
            down += [
                broker
                for broker in cluster.brokers.values()
                if broker not in down
                and any(
                    broker in cluster.holders(key)
                    and (broker.number not in (*state.isr, *state.eligible) or (broker.number, key) in self._unclean)
                    for key, state in states.items()
                )
            ]
        return down

    def _victim(self) -> SimBroker | None:
        """A broker that may fail now."""
        ready = [broker for broker in self._cluster.brokers.values() if broker.is_ready]
        down = self.down()
        if not ready or len(down) >= self._cluster.plan.failures_max or self.windows.is_busy:
            return None
        victim = self.chance.choice(ready)
        return None if victim in down and kinds.POWER in self._cluster.plan.faults else victim

    def _do(self, kind: str) -> None:
        victim = self._victim()
        if victim is None:
            return
        chance, network = self.chance, self._cluster.network
        if kind == kinds.CRASH:
            victim.kill()
            self.stopped_uncleanly(victim)
            self.later(chance.choice((50, 500, 2000, 5000)) + chance.randrange(500), self.revive, victim)
        elif kind == kinds.POWER:
            victim.lose_power()
            self.stopped_uncleanly(victim)
            self.later(chance.choice((50, 500, 2000, 5000)) + chance.randrange(500), self.revive, victim)
        elif kind == kinds.PAUSE:
            victim.pause()
            self.later(chance.choice((100, 1000, 2500, 5000)) + chance.randrange(500), self._resume, victim)
        elif kind == kinds.STOP:
            victim.stop()
            if not victim.is_running:  # it was still starting
                self.stopped_uncleanly(victim)
            self.later(chance.choice((200, 2000)) + chance.randrange(2000), self.revive, victim)
        elif kind == kinds.SESSION:
            self._cluster.ensemble.expire(victim.host)
        elif kind == kinds.SKEW:
            self.skew(victim, chance.randrange(-30_000, 30_000))
        elif kind == kinds.SLOW_DISK:
            victim.slow_down(chance.choice((5_000, 50_000, 300_000)))
        elif kind == kinds.REFUSE:
            self._refuse(victim)
        elif kind == kinds.FULL_DISK:
            self._fill(victim)
        elif kind in (kinds.CUT, kinds.CUT_ONE_WAY, kinds.ISOLATE):
            self._cut(kind, victim)
            if network.cuts:
                self.later(chance.choice((300, 1500, 4000)) + chance.randrange(500), self.heal_network)

    def skew(self, broker: SimBroker, by_ms: int) -> None:
        """Sets a broker's clock, for the rest of the run."""
        assert broker.process is not None
        broker.clock_skew_ms = broker.process.clock_skew_ms = by_ms
        self._skews_ms.add(by_ms)
        broker.note(f"its clock is off by {by_ms} ms")

    @property
    def clocks_apart_ms(self) -> int:
        """How far the clocks of two brokers, or one before and after it was set, can be apart."""
        return max(self._skews_ms) - min(self._skews_ms)

    def _black_out(self) -> None:
        """Takes the power of all brokers, whatever state they are in; they come back one by one."""
        self.note("has all brokers lose their power")
        for broker in self._cluster.brokers.values():
            if broker.is_running:
                broker.lose_power()
                self.stopped_uncleanly(broker)
            self.later(self.chance.choice((50, 500, 2000)) + self.chance.randrange(500), self.revive, broker)

    def stopped_uncleanly(self, victim: SimBroker) -> None:
        for key, state in self._cluster.all_leaderships().items():
            self._unclean[victim.number, key] = _Unclean(has_left=victim.number not in state.isr)

    def _administrate(self, kind: str) -> None:
        """Moves leaders and replicas, which is no fault, at any moment."""
        cluster, chance = self._cluster, self.chance
        client = cluster.admin
        administrator = Administrator(client)
        if kind == kinds.ELECT:
            work = administrator.elect_preferred()
        else:
            replicas = chance.sample(sorted(cluster.brokers), cluster.plan.replicas)
            number, topic = chance.randrange(cluster.plan.partitions), ""
            if cluster.plan.instances:
                topic = chance.choice(sorted({each.topic for each in cluster.tenancy.partitions()} | {cluster.topic}))
            work = administrator.reassign(number, replicas, topic)
        client.process.call(client.process.loop.create_task, work)

    def _delete_records(self) -> None:
        """Has the oldest records of a partition deleted: some that a reader may know, or all of these."""
        if self.is_over:
            return
        cluster, chance = self._cluster, self._deletions
        number = chance.randrange(cluster.plan.partitions)
        committed = max(
            (each.high_watermark for each in cluster.history.readings if each.partition == number), default=0
        )
        offset = chance.choice((committed, chance.randint(0, max(0, committed))))
        process = cluster.admin.process
        process.call(process.loop.create_task, Administrator(cluster.admin).delete_records(number, offset))
        self.later(chance.randrange(100, 1200), self._delete_records)

    def _fill(self, broker: SimBroker) -> None:
        broker.disk.is_full = True
        broker.note("its disk is full")
        self.later(self.chance.choice((20, 300, 1500, 4000)) + self.chance.randrange(300), self._make_room, broker)

    @staticmethod
    def _make_room(broker: SimBroker) -> None:
        if broker.disk.is_full:
            broker.disk.is_full = False
            broker.note("its disk has room")

    # A rolling restart

    def _roll(self) -> None:
        """Stops and starts one broker after the other, each when the one before is in every ISR again."""
        if not self._is_rolling:
            self._is_rolling = True
            self.note("begins a rolling restart")
            self._roll_on(sorted(self._cluster.brokers))

    def _roll_on(self, left: list[int]) -> None:
        if self.is_over or not left:
            self._is_rolling = False
            return
        broker = self._cluster.brokers[left[0]]
        if self.down() or self.windows.is_busy or not self._cluster.led_and_in_sync():
            self.later(100, self._roll_on, left)
            return
        broker.stop()
        self._wait_for_stop(broker, left[1:])

    def _wait_for_stop(self, broker: SimBroker, left: list[int]) -> None:
        if broker.is_running:
            self.later(20, self._wait_for_stop, broker, left)
            return
        self.later(self.chance.choice((50, 300, 1500)), self.revive, broker)
        self.later(1600, self._roll_on, left)

    def _cut(self, kind: str, victim: SimBroker) -> None:
        chance, network = self.chance, self._cluster.network
        others = [broker.host for broker in self._cluster.brokers.values() if broker is not victim] + [ENSEMBLE]
        if kind != kinds.ISOLATE:
            others = [chance.choice(others)]
        for other in others:
            network.cut(victim.host, other)
            if kind != kinds.CUT_ONE_WAY:
                network.cut(other, victim.host)
        arrow = "to" if kind == kinds.CUT_ONE_WAY else "from"
        self.note(f"cuts {victim.host} {'off ' if arrow == 'from' else ''}{arrow} {', '.join(others)}")

    def _refuse(self, victim: SimBroker) -> None:
        """Some brokers, or all, take a live one for dead."""
        others = [broker.host for broker in self._cluster.brokers.values() if broker is not victim]
        deceived = self.chance.sample(others, self.chance.randrange(1, len(others) + 1))
        self.note(f"has {victim.host} refuse {', '.join(deceived)}")
        for other in deceived:
            self._cluster.network.refuse(other, victim.host)
        self.later(self.chance.choice((100, 1500, 4000)) + self.chance.randrange(500), self.heal_network)

    def heal_network(self) -> None:
        if self._cluster.network.cuts or self._cluster.network.refusals:
            self.note("heals the network")
            self._cluster.network.heal()

    def revive(self, broker: SimBroker) -> None:
        if not broker.is_running:
            broker.start()

    def _resume(self, broker: SimBroker) -> None:
        if broker.process is not None and broker.process.life is Life.PAUSED:
            broker.resume()
