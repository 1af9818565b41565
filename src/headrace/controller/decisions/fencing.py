"""Fencing: decides from suspicions when a registered broker counts as dead before its session ends. Pure.

    suspicion   broker M's connection to broker N broke, and N's port refused the next one: N's host answers, its
                process does not. An ephemeral node of M, named by both registrations; M deletes it when N answers
    fenced      broker N in that registration no longer counts as live, as if its session had ended. A mark in the
                metadata store; if N is alive after all, it finds the mark and registers anew

A live broker that the controller suspects is elected only where no other may lead (`elections`). The controller fences
N if it suspects N itself, another live broker does too, another broker can lead in N's place, and not too many brokers
were fenced lately. If two brokers suspect the controller, one of them replaces it first.

A record acknowledged under acks=all is safe even if N is alive and was fenced wrongly: leadership moves, with a new
leader epoch, to a member of the ISR. Records that such an N acknowledges with acks=1 until it learns of its successor
are lost, as with any failed leader. That takes two brokers that are wrong about the same registration at the same time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.metadata.model import Broker
from headrace.types import BrokerId, TopicPartition

WITNESSES = 2
NEIGHBOURS = 3
"""The number of brokers that monitor each broker, beside the controller, in a cluster of any size."""

FENCINGS_MAX = 12
FENCINGS_PERIOD_S = 60.0
"""More fencings than this within the period point to a problem of the network, not of brokers; then only the end of
sessions counts."""


class Suspicion(NamedTuple):
    """Broker `observer` suspects that `broker` is dead, each in the registration of that epoch (its node's czxid)."""

    broker: BrokerId
    epoch: int
    observer: BrokerId
    observer_epoch: int

    @property
    def name(self) -> str:
        """The name of the suspicion's node."""
        return "-".join(map(str, self))


def parse_suspicion(name: str) -> Suspicion | None:
    """The inverse of `Suspicion.name`; None if `name` is not the name of a suspicion."""
    parts = name.split("-")
    if len(parts) != len(Suspicion._fields) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    broker, epoch, observer, observer_epoch = map(int, parts)
    return Suspicion(BrokerId(broker), epoch, BrokerId(observer), observer_epoch)


def neighbours(own: BrokerId, live: Iterable[BrokerId]) -> list[BrokerId]:
    """The brokers that a broker monitors: the next ones in the ring of live brokers."""
    ring = sorted({*live, own})
    at = ring.index(own)
    return (ring[at + 1 :] + ring[:at])[:NEIGHBOURS]


def witnesses(broker: Broker, seen: Iterable[Suspicion], live: Mapping[BrokerId, Broker]) -> list[Suspicion]:
    """The suspicions of a broker's current registration, by the current registrations of live brokers."""
    return [
        each
        for each in seen
        if each.broker == broker.id != each.observer
        and each.epoch == broker.epoch
        and each.observer in live
        and live[each.observer].epoch == each.observer_epoch
    ]


def is_confirmed(seen: Sequence[Suspicion], own: BrokerId) -> bool:
    """Whether this broker and at least one other suspect it."""
    observers = {each.observer for each in seen}
    return own in observers and len(observers) >= WITNESSES


def suspects(own: BrokerId, seen: Iterable[Suspicion]) -> bool:
    """Whether this broker suspects it."""
    return any(each.observer == own for each in seen)


def all_know_marks(live: Mapping[BrokerId, Broker]) -> bool:
    """Whether every live broker knows fencing marks. Apache Kafka's brokers and older versions do not, and would ignore
    the marks as controller."""
    return all(broker.directory is not None for broker in live.values())


def without_successor(state: ClusterState, broker: BrokerId) -> tuple[int, list[TopicPartition]]:
    """(the number of partitions that the broker leads, those of them whose ISR has no other live member)."""
    led = [each for each, leadership in state.leadership.items() if leadership.leader == broker]
    alone = []
    for partition in led:
        online = state.online(partition)
        if not any(other != broker and other in online for other in state.leadership[partition].isr):
            alone.append(partition)
    return len(led), alone


class Budget:
    """Limits how many brokers are fenced within a period."""

    def __init__(self, count_max: int = FENCINGS_MAX, period_s: float = FENCINGS_PERIOD_S) -> None:
        self._count_max, self._period_s = count_max, period_s
        self._spent: deque[float] = deque()

    def take(self, now_s: float) -> bool:
        """Whether one more broker may be fenced; counts it if so."""
        while self._spent and self._spent[0] <= now_s - self._period_s:
            self._spent.popleft()
        if len(self._spent) >= self._count_max:
            return False
        self._spent.append(now_s)
        return True
