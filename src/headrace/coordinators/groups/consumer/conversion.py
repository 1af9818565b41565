"""Conversion of a group with members between the classic and the consumer protocol, while the members run.

    upgrade     a member of the consumer protocol joins a classic group. Its members keep their partitions and ids; the
                generation becomes the group epoch
    downgrade   the last member of the consumer protocol leaves, or a classic static member takes its place

`group.consumer.migration.policy` permits each. Source: Kafka's `GroupMetadataManager.convertToConsumerGroup`,
`convertToClassicGroup`, `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.coordinators.groups.classic.group import CONSUMER_PROTOCOL, ClassicGroup
from headrace.coordinators.groups.classic.members import Member
from headrace.coordinators.groups.consumer.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.members import ClassicMember, ConsumerMember
from headrace.coordinators.groups.consumer.records import Current, Epoch, Metadata, Target, TargetEpoch
from headrace.coordinators.groups.modern.modern_group import NO_TIMESTAMP, hash_of
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.modern.writes import EventChange

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")


def check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    """Raises GROUP_ID_NOT_FOUND if the group must stay a classic one."""
    reason = ""
    if config.consumer_group_migration_policy not in UPGRADES:
        reason = "online upgrade is disabled."
    elif group.protocol_type != CONSUMER_PROTOCOL:
        reason = "the group does not use the consumer embedded protocol."
    elif len(group.members) > config.consumer_group_max_size:
        reason = "the group size exceeds the consumer group maximum size."
    if reason:
        raise _not_upgraded(group, reason)


def upgrade(classic: ClassicGroup, group: ConsumerGroup, topics: Topics, change: EventChange[ConsumerGroup]) -> None:
    """Fills a consumer group with the members of a classic one, each with what it owns. Raises GROUP_ID_NOT_FOUND."""
    malformed = _not_upgraded(classic, "the embedded consumer protocol is malformed.")
    protocol = classic.protocol_name or classic.select_protocol()
    if protocol is None:
        raise malformed
    try:
        members = [_consumer_member(each, protocol, classic.generation, topics) for each in classic.members.values()]
    except _UnknownAssignor:
        raise _not_upgraded(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        ) from None
    except (KafkaError, KeyError):  # KeyError: a member that joined again no longer supports the last protocol
        raise malformed from None
    change.add(*(Metadata(each) for each in members))
    change.add(Epoch(classic.generation, hash_of(group.subscriptions, topics)))
    for each in members:
        target = {topic_id: frozenset(partitions) for topic_id, partitions in each.assigned.items()}
        change.add(Target(each.member_id, target))
    change.add(TargetEpoch(classic.generation, NO_TIMESTAMP))
    change.add(*(Current(each) for each in members))


class _UnknownAssignor(Exception):
    """The assignor put data of its own into an assignment."""


def _consumer_member(member: Member, protocol: str, generation: int, topics: Topics) -> ConsumerMember:
    partitions, user_data = read_assignment(member.assignment, topics)
    if user_data:
        raise _UnknownAssignor
    subscription = read_subscription(member.metadata(protocol), topics)
    return ConsumerMember(
        member.member_id,
        generation,
        generation,
        assigned={topic_id: dict.fromkeys(sorted(numbers), generation) for topic_id, numbers in partitions.items()},
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


def is_downgraded(group: ConsumerGroup, without: Collection[ConsumerMember], stays: int, config: BrokerConfig) -> bool:
    """Whether a group becomes a classic one when these members leave it, or are replaced by a classic member. `stays`
    is how many members it has then."""
    classic = group.classic_members - sum(each.classic is not None for each in without)
    return (
        classic == len(group.members) - len(without)
        and 0 < stays <= config.group_max_size
        and config.consumer_group_migration_policy in DOWNGRADES
    )


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None, f"{member.member_id} speaks the consumer protocol"
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
    )


def downgrade(group: ConsumerGroup, without: Collection[ConsumerMember], topics: Topics, now_ms: int) -> ClassicGroup:
    """The classic group of all members but these, which all speak the classic protocol, with their target assignments.
    Raises GROUP_ID_NOT_FOUND."""
    gone = {each.member_id for each in without}
    members = [_classic_member(each) for each in group.members.values() if each.member_id not in gone]
    classic = ClassicGroup.loaded(
        group.group_id,
        group.partition,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=None,
        leader_id=members[0].member_id,
        state_since_ms=now_ms,
        members=members,
    )
    classic.offsets = group.offsets
    protocol = classic.select_protocol()
    if protocol is None:
        raise _not_downgraded(group, "its members have no protocol in common")
    classic.choose_protocol(protocol)
    for each in members:
        try:
            assignment = write_assignment(group.target.get(each.member_id, {}), each.metadata(protocol), topics)
        except KafkaError as error:
            raise _not_downgraded(group, error.message) from None
        classic.members[each.member_id] = each._replace(assignment=assignment)
    return classic


def _not_downgraded(group: ConsumerGroup, reason: str) -> KafkaError:
    return KafkaError(f"Cannot downgrade the classic group {group.group_id}: {reason}.", ErrorCode.GROUP_ID_NOT_FOUND)
