"""When a registered broker counts as gone before its session ends: decisions from who saw what. Pure.

    sighting    broker M had a connection to broker N that broke, and N's port refused the next: N's host answers, its
                process does not. A node of M's session, named by both registrations; M takes it back when N answers
    fenced      N in that registration is no live broker any more, as if its session had ended: by a mark in the tree,
                which N, if it lives all the same, finds and answers with a new registration

The controller fences N when it has a sighting of its own, another live broker has one, somebody can lead in N's place,
and not too many were fenced of late. Two brokers that have sightings of the controller take its office first.

Acknowledged under acks=all, a record is safe also when N lives and was fenced wrongly: leadership moves by epoch to a
member of the ISR. What such an N acknowledges with acks=1 until it hears of its successor is lost, as with any leader
that fails. Two brokers must be wrong at one time for that, about the same registration.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import Broker
from headrace.types import BrokerId, TopicPartition

WITNESSES = 2
NEIGHBOURS = 3
"""So many brokers look after each broker, beside the controller, however many there are."""

FENCINGS_MAX = 12
FENCINGS_PERIOD_S = 60.0
"""Beyond so many in so long something else is wrong than brokers, and sessions decide again."""


class Sighting(NamedTuple):
    """Broker `observer` saw that `broker` is gone; each in that registration (the czxid of its node)."""

    broker: BrokerId
    epoch: int
    observer: BrokerId
    observer_epoch: int

    @property
    def name(self) -> str:
        """The name of its node."""
        return "-".join(map(str, self))


def parse_sighting(name: str) -> Sighting | None:
    """The inverse of `Sighting.name`; None for what is none."""
    parts = name.split("-")
    if len(parts) != len(Sighting._fields) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    broker, epoch, observer, observer_epoch = map(int, parts)
    return Sighting(BrokerId(broker), epoch, BrokerId(observer), observer_epoch)


def neighbours(own: BrokerId, live: Iterable[BrokerId]) -> list[BrokerId]:
    """Whom a broker looks after: the next ones in the ring of live brokers."""
    ring = sorted({*live, own})
    at = ring.index(own)
    return (ring[at + 1 :] + ring[:at])[:NEIGHBOURS]


def witnesses(broker: Broker, seen: Iterable[Sighting], live: Mapping[BrokerId, Broker]) -> list[Sighting]:
    """The sightings of a broker in its present registration, by brokers that are alive in theirs."""
    return [
        each
        for each in seen
        if each.broker == broker.id != each.observer
        and each.epoch == broker.epoch
        and each.observer in live
        and live[each.observer].epoch == each.observer_epoch
    ]


def is_confirmed(seen: Sequence[Sighting], own: BrokerId) -> bool:
    """Whether this broker and another one have seen it."""
    observers = {each.observer for each in seen}
    return own in observers and len(observers) >= WITNESSES


def all_know_marks(live: Mapping[BrokerId, Broker]) -> bool:
    """Whether no live broker is Apache Kafka's or of an older version: as controller, that one would not know marks."""
    return all(broker.directory is not None for broker in live.values())


def without_successor(state: ClusterState, broker: BrokerId) -> tuple[int, list[TopicPartition]]:
    """(how many partitions the broker leads, those of them where nobody else that is alive is in the ISR)."""
    led = [each for each, leadership in state.leadership.items() if leadership.leader == broker]
    alone = []
    for partition in led:
        online = state.online(partition)
        if not any(other != broker and other in online for other in state.leadership[partition].isr):
            alone.append(partition)
    return len(led), alone


class Budget:
    """How many brokers may still be fenced now."""

    def __init__(self, count_max: int = FENCINGS_MAX, period_s: float = FENCINGS_PERIOD_S) -> None:
        self._count_max, self._period_s = count_max, period_s
        self._spent: deque[float] = deque()

    def take(self, now_s: float) -> bool:
        """Whether one more may be; it counts then."""
        while self._spent and self._spent[0] <= now_s - self._period_s:
            self._spent.popleft()
        if len(self._spent) >= self._count_max:
            return False
        self._spent.append(now_s)
        return True
