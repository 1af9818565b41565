"""The nemesis of controllers: it strikes between a decision and its write, or between the write and its answer.

    begin         replicas of a partition are to be put into another order, so that the controller writes a state
    write begun   a follower in the ISR loses its power; the write stands still on its way; where the controller is to
                  die before the write, it dies now
    registered    the follower is back: the write goes on, decided before that registration and done after it
    written       the controller dies, before it hears of the answer and of the registration

The next controller finds a state that is newer than the registration of a broker that lacks what it had not synced.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.metastore.store import Op, Set
from headrace.types import TopicPartition
from tests.simulation.broker import SimBroker
from tests.simulation.clients import Administrator
from tests.simulation.network import ENSEMBLE

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.nemesis import Nemesis

_PATIENCE_MS = 1500


class ControllerWindows:
    """One strike at a time. It takes two failures."""

    def __init__(self, nemesis: "Nemesis", cluster: "Cluster") -> None:
        self._nemesis, self._cluster = nemesis, cluster
        self._controller: SimBroker | None = None
        self._victim: SimBroker | None = None
        self._path = ""
        self._strikes = 0
        self._is_under_way = False

    @property
    def is_busy(self) -> bool:
        """Whether other faults have to wait."""
        return self._controller is not None

    def begin(self) -> None:
        """Waits for the controller's next write of a state, and sees to it that there is one."""
        cluster, nemesis = self._cluster, self._nemesis
        controller = cluster.controller()
        if self.is_busy or controller is None or nemesis.down() or cluster.plan.failures_max < 2:
            return
        self._controller, self._victim, self._is_under_way = controller, None, False
        self._strikes += 1
        nemesis.later(_PATIENCE_MS, self._end, self._strikes)
        key = TopicPartition(cluster.topic, nemesis.chance.randrange(cluster.plan.partitions))
        replicas = list(cluster.replicas(key).replicas)
        nemesis.chance.shuffle(replicas)
        client = cluster.admin
        work = Administrator(client).reassign(key.partition, replicas)
        client.process.call(client.process.loop.create_task, work)

    def write_begun(self, host: str, ops: Sequence[Op]) -> None:
        """A broker sends a write to the ensemble."""
        if self._controller is None or self._controller.host != host or self._is_under_way:
            return
        states = {
            op.path: json.loads(op.data)["isr"] for op in ops if isinstance(op, Set) and op.path.endswith("/state")
        }
        for path, isr in states.items():
            members = [number for number in isr if number != self._controller.number]
            if members and not self._nemesis.down():
                self._path, self._is_under_way = path, True
                self._victim = self._cluster.brokers[self._nemesis.chance.choice(members)]
                self._cluster.network.cut(host, ENSEMBLE)
                self._cluster.network.process.call(self._strike, self._controller, self._victim)
                return

    def _strike(self, controller: SimBroker, victim: SimBroker) -> None:
        nemesis = self._nemesis
        nemesis.note(f"holds a write of {controller.host} up")
        victim.lose_power()
        nemesis.stopped_uncleanly(victim)
        nemesis.later(nemesis.chance.choice((20, 300)), nemesis.revive, victim)
        if nemesis.chance.random() < 0.3:
            self._kill(controller)

    def registered(self, broker: int) -> None:
        """A broker is registered anew."""
        if self._victim is not None and self._victim.number == broker:
            self._cluster.network.process.call(self._nemesis.heal_network)

    def written(self, ops: Sequence[Op]) -> None:
        """The ensemble has done a write."""
        controller = self._controller
        if controller is not None and self._is_under_way and any(getattr(op, "path", "") == self._path for op in ops):
            self._is_under_way = False
            if controller.is_ready:
                self._kill(controller)
            self._end(self._strikes)

    def _kill(self, controller: SimBroker) -> None:
        nemesis = self._nemesis
        controller.kill()
        nemesis.stopped_uncleanly(controller)
        nemesis.later(nemesis.chance.choice((500, 2000, 5000)), nemesis.revive, controller)

    def _end(self, strike: int) -> None:
        if strike == self._strikes and self._controller is not None:
            self._controller = self._victim = None
            self._nemesis.heal_network()
