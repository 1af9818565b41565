"""A coordinator of one group of KIP-848 as a few dictionaries: one topic, every partition to one member."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import ErrorCode
from headrace.protocol import messages as m

TOPIC_ID = b"t" * 16


@dataclass
class _Member:
    epoch: int = 0
    previous_epoch: int = -1
    assigned: set[int] = field(default_factory=set)
    """What it may hold, as it was told."""
    held: set[int] = field(default_factory=set)
    """What it may hold, or has not said that it gave up."""
    is_wanting: bool = True
    """It gave up what it must, and waits for what others hold."""


class ModelConsumerGroup:
    """Heartbeats in, answers out."""

    def __init__(self, partitions: int) -> None:
        self.members: dict[str, _Member] = {}
        self._partitions = partitions
        self._epoch = 1

    def heartbeat(self, request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
        """The answer; an assignment where it is another than the member has, or the member says everything."""
        member = self.members.get(request.member_id)
        if request.member_epoch == 0:
            assert request.subscribed_topic_names is not None
            assert request.topic_partitions == []
            if member is None:
                self._epoch += 1
            member = self.members[request.member_id] = _Member()
        elif member is None:
            return m.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        held = None if request.topic_partitions is None else {p for e in request.topic_partitions for p in e.partitions}
        if request.member_epoch != member.epoch:
            is_repeated = request.member_epoch == member.previous_epoch and held is not None and held <= member.assigned
            if not is_repeated:
                return m.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        before = set(member.assigned)
        self._reconcile(request.member_id, member, held)
        is_told = before != member.assigned or (held is not None and request.subscribed_topic_names is not None)
        return m.ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=1,
            assignment=_assignment(member.assigned) if is_told else None,
        )

    def expire(self, member_id: str) -> None:
        """The member's session is over."""
        if self.members.pop(member_id, None) is not None:
            self._epoch += 1

    def _reconcile(self, member_id: str, member: _Member, held: set[int] | None) -> None:
        target = self._target(member_id)
        if not member.assigned <= target:  # it must give something up, and say so
            member.assigned &= target
            member.is_wanting = False
        if held is not None and held <= target:
            member.is_wanting = True
        if member.is_wanting:
            others = (other.held for name, other in self.members.items() if name != member_id)
            member.assigned = target.difference(*others)
            if member.epoch != self._epoch:
                member.previous_epoch, member.epoch = member.epoch, self._epoch
        if held is not None:
            member.held &= held
        member.held |= member.assigned

    def _target(self, member_id: str) -> set[int]:
        names = sorted(self.members)
        return set(range(names.index(member_id), self._partitions, len(names)))


def _assignment(partitions: set[int]) -> m.ConsumerGroupHeartbeatResponse.Assignment:
    each = m.ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=TOPIC_ID, partitions=sorted(partitions))
    return m.ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=[each] if partitions else [])
