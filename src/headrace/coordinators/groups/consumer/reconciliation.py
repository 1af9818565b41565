"""Reconciliation: the next step of a member from what it owns to what it is to own.

    owned   is in the target                 kept
            is not                           to be given up: UNREVOKED_PARTITIONS in the old epoch until the member no
                                             longer reports it
    target  owned by nobody                  assigned: the member comes to the target's epoch
            another member has not given up  UNRELEASED_PARTITIONS: it comes when it is free, with a later heartbeat

Source: Kafka's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from headrace.coordinators.assignors.assignor import Partitions, TopicId
from headrace.coordinators.groups.consumer.members import NOTHING, ConsumerMember, MemberState, Owned
from headrace.errors import ErrorCode, KafkaError

NO_NUMBERS: frozenset[int] = frozenset()
NO_OWNED: Mapping[int, int] = {}


class Reconciliation(NamedTuple):
    """What a step of a member depends on."""

    target_epoch: int
    target: Partitions
    subscribed: Collection[TopicId]
    """The topics that the member reads; others it must give up, whatever the target says."""
    has_subscription_changed: bool
    reported: Mapping[TopicId, Collection[int]] | None
    """The partitions that the member says it owns; None if it says nothing."""
    owners: Callable[[TopicId], Collection[int]]
    """The partitions of a topic that any member owns, or has not given up."""

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after this step; the same if it has to wait. Raises FENCED_MEMBER_EPOCH."""
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._still_has(member.revoking):
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next(member, member.epoch)
            case _:
                if self.reported is None or self.reported:
                    raise KafkaError(
                        "The consumer group member is in a unknown state. The member must abandon all its partitions "
                        "and rejoin.",
                        ErrorCode.FENCED_MEMBER_EPOCH,
                    )
                return self._next(member, self.target_epoch)

    def _still_has(self, revoking: Owned) -> bool:
        """Whether the member owns one of these partitions, as far as it says."""
        if self.reported is None:
            return True
        return any(
            not revoking[topic_id].keys().isdisjoint(partitions)
            for topic_id, partitions in self.reported.items()
            if topic_id in revoking
        )

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """The member without the topics to which it does not subscribe any more."""
        dropped = {topic: owned for topic, owned in member.assigned.items() if topic not in self.subscribed}
        if not dropped:
            return member
        kept = {topic: owned for topic, owned in member.assigned.items() if topic in self.subscribed}
        revoking = {
            topic: {**member.revoking.get(topic, {}), **dropped.get(topic, {})}
            for topic in (*member.revoking, *(each for each in dropped if each not in member.revoking))
        }
        if self._still_has(revoking):
            return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
        return member.moved_to(member.epoch, member.state, kept, member.revoking)

    def _next(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        assigned: dict[TopicId, Mapping[int, int]] = {}
        revoking: dict[TopicId, Mapping[int, int]] = {}
        free: dict[TopicId, Mapping[int, int]] = {}
        has_unreleased = False
        target, subscribed = self.target, self.subscribed
        for topic, owned in member.assigned.items():
            wanted = target.get(topic, NO_NUMBERS) if topic in subscribed else NO_NUMBERS
            if owned.keys() == wanted:
                assigned[topic] = owned
            elif owned.keys().isdisjoint(wanted):
                revoking[topic] = owned
            else:
                assigned[topic] = {partition: since for partition, since in owned.items() if partition in wanted}
                if len(assigned[topic]) < len(owned):
                    revoking[topic] = {each: since for each, since in owned.items() if each not in wanted}
        for topic, wanted in target.items():
            known = member.assigned.get(topic, NO_OWNED)
            if topic not in subscribed:
                continue
            if not known and not self.owners(topic):
                free[topic] = dict.fromkeys(sorted(wanted), self.target_epoch)
            elif known.keys() != wanted:
                missing = wanted - known.keys()
                available = self._available(topic, missing, member.revoking.get(topic, NO_OWNED))
                has_unreleased |= len(available) < len(missing)
                if available:
                    free[topic] = dict.fromkeys(available, self.target_epoch)
        if revoking and self._still_has(revoking):
            return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
        for topic, partitions in free.items():
            assigned[topic] = {**assigned[topic], **partitions} if topic in assigned else partitions
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.moved_to(self.target_epoch, state, assigned, NOTHING)

    def _available(self, topic: TopicId, missing: Collection[int], own: Collection[int]) -> list[int]:
        """The missing partitions that no other member owns, in order."""
        owned = self.owners(topic)
        return sorted(each for each in missing if each not in owned or each in own) if owned else sorted(missing)
