"""Which replica a consumer should fetch from: one in its own rack, if there is one that has what it wants. Pure.

    leader in the rack          the leader
    some in the rack            the one with the most records; among equals, who was caught up last
    none, or no rack told       the leader

Source: Kafka's RackAwareReplicaSelector (KIP-392).
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.types import BrokerId


class Candidate(NamedTuple):
    """A follower that is alive and has the offset."""

    id: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: int


def nearby_replica(rack: str, leader_rack: str | None, candidates: Iterable[Candidate]) -> BrokerId | None:
    """The follower to be preferred; None for the leader."""
    if not rack or rack == leader_rack:
        return None
    near = [each for each in candidates if each.rack == rack]
    if not near:
        return None
    return max(near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, -each.id)).id
