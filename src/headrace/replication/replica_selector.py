"""The replica selector: chooses the replica that a consumer fetches from, one in its own rack if possible. Pure.

    leader in the rack              the leader
    ISR members in the rack         the one with the largest log end offset; in a tie, the one that was caught up last
    none, or client.rack not set    the leader

Source: Kafka's RackAwareReplicaSelector (KIP-392).
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.types import BrokerId


class Candidate(NamedTuple):
    """A live follower that has the requested offset."""

    id: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: int
    is_in_sync: bool
    """Whether it is in the ISR. Apache Kafka also selects other followers, which may be far behind (KAFKA-14372)."""


def select_replica(rack: str, leader_rack: str | None, candidates: Iterable[Candidate]) -> BrokerId | None:
    """The follower to fetch from; None for the leader."""
    if not rack or rack == leader_rack:
        return None
    same_rack = [each for each in candidates if each.rack == rack and each.is_in_sync]
    if not same_rack:
        return None
    return max(same_rack, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, -each.id)).id
