"""Plans the brokers that partitions move to. Pure.

A plan moves as few replicas as possible: a replica on an allowed broker stays. A missing replica goes to a rack that
has none of the partition yet, then to the broker with the fewest replicas, then to the lowest id. The preferred leader
(the first replica) stays if its broker stays; otherwise it is the chosen broker that is preferred leader least often.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from headrace.types import BrokerId, TopicPartition

Assignment = Mapping[TopicPartition, Sequence[BrokerId]]

T = TypeVar("T")


class NoRoom(ValueError):
    """A partition has more replicas than there are brokers to place them on."""


def plan_move(
    current: Assignment,
    allowed: Collection[BrokerId],
    racks: Mapping[BrokerId, str | None],
    *,
    moving: Collection[TopicPartition] | None = None,
    replication_factor: int | None = None,
) -> dict[TopicPartition, list[BrokerId]]:
    """New replicas of `moving` (all if None), only on brokers of `allowed`; returns the partitions that change.

    `current` is the whole cluster's assignment, which gives the load of each broker. Partitions keep their number of
    replicas if `replication_factor` is None. Raises NoRoom.
    """
    load = Counter(broker for replicas in current.values() for broker in replicas)
    first = Counter(replicas[0] for replicas in current.values() if replicas)
    plan: dict[TopicPartition, list[BrokerId]] = {}
    for partition in sorted(current if moving is None else moving):
        old = list(current[partition])
        wanted = len(old) if replication_factor is None else replication_factor
        if wanted > len(allowed):
            room = f"{partition} is to have {wanted} replicas, and {len(allowed)} brokers may have them"
            raise NoRoom(f"{room}: add brokers first, or ask for fewer replicas")
        new = [broker for broker in old if broker in allowed][:wanted]
        while len(new) < wanted:
            used = {racks.get(broker) for broker in new} - {None}
            candidates = [broker for broker in allowed if broker not in new]
            new.append(min(candidates, key=lambda each: (racks.get(each) in used, load[each], each)))
            load[new[-1]] += 1
        for broker in old:
            load[broker] -= broker not in new
        if old[0] not in new:
            leader = min(new, key=lambda each: (first[each], new.index(each)))
            new.remove(leader)
            new.insert(0, leader)
            first[leader] += 1
        if new != old:
            plan[partition] = new
    return plan
