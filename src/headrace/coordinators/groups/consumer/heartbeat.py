"""ConsumerGroupHeartbeat: a member joins, subscribes, and comes to its target assignment step by step.

    1  the member is added or updated; if the topics that the group reads change, the group epoch grows
    2  the target assignment is computed anew if its epoch is below the group's
    3  the member makes one step towards it (`reconciliation`)

Source: Kafka's `GroupMetadataManager.consumerGroupHeartbeat`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.assignors.assignor import NO_PARTITIONS
from headrace.coordinators.groups.consumer.assigning import update_target
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.members import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from headrace.coordinators.groups.consumer.reconciliation import Reconciliation
from headrace.coordinators.groups.consumer.records import (
    ConsumerGroupPartitionMetadata,
    Current,
    Epoch,
    Metadata,
    Resolved,
    Target,
    gone,
)
from headrace.coordinators.groups.consumer.regular_expressions import check_regular_expression, is_refresh_due
from headrace.coordinators.groups.consumer.steady import interval_ms, steady_member
from headrace.coordinators.groups.group_event import TimerKind
from headrace.coordinators.groups.modern.modern_group import hash_of
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.modern.writes import EventChange
    from headrace.coordinators.groups.registry import Groups


class RequestClient(NamedTuple):
    """The client of a request."""

    client_id: str
    client_host: str  # as Java prints an address: with a leading slash
    may_describe: Callable[[str], bool]
    """Whether its principal may describe a topic: a regular expression matches only such topics."""


class Resolving(NamedTuple):
    """Regular expressions of a group that are to be resolved."""

    group: ConsumerGroup
    regexes: tuple[str, ...]
    topics_version: int
    may_describe: Callable[[str], bool]


Reported = Mapping[bytes, Collection[int]]


def heartbeat(
    groups: Groups,
    group: ConsumerGroup,
    request: m.ConsumerGroupHeartbeatRequest,
    client: RequestClient,
    change: EventChange[ConsumerGroup],
    group_event: GroupEvent,
) -> m.ConsumerGroupHeartbeatResponse:
    """Changes the group, and returns the answer for when this is durable. Raises `KafkaError`."""
    member_id = request.member_id or new_member_id(groups)
    check_size(group, member_id, group_event)
    reported = _reported(request.topic_partitions)
    member = _subscribe(group, request, member_id, reported, change)
    updated = member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=(member.topics if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=client.client_id,
        client_host=client.client_host,
        classic=None,
    )
    has_changed = subscribe(groups, group, member, updated, client.may_describe, change, group_event)
    update_target(groups, group, change, group_event)
    before = group.members[member_id]
    after = reconcile(groups, group, before, reported, has_changed, change, group_event)
    session_ms = groups.number(group.group_id, "consumer.session.timeout.ms")
    group_event.start(TimerKind.SESSION, group, session_ms, member_id)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    response = m.ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=interval_ms(groups, group, after, group_event.now_ms),
    )
    if request.member_epoch == JOINING_EPOCH or is_full or member.assigned != after.assigned:
        response.assignment = m.ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                m.ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in after.assigned.items()
            ]
        )
    return response


def steady_heartbeat(
    groups: Groups,
    group: ConsumerGroup,
    request: m.ConsumerGroupHeartbeatRequest,
    client: RequestClient,
    group_event: GroupEvent,
) -> m.ConsumerGroupHeartbeatResponse | None:
    """What `heartbeat` does about a member that tells nothing new and has nothing to learn, as most heartbeats are.

    None, with nothing done, for any other heartbeat, also if something is due that the next heartbeat begins."""
    if (
        request.rack_id is not None
        or request.rebalance_timeout_ms != -1
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
        or request.topic_partitions is not None
    ):
        return None
    now_ms = group_event.now_ms
    told = request.member_id, request.member_epoch, request.instance_id, client.client_id, client.client_host
    member = steady_member(group, *told, now_ms)
    if member is None:
        return None
    session_ms = groups.number(group.group_id, "consumer.session.timeout.ms")
    group_event.start(TimerKind.SESSION, group, session_ms, member.member_id)
    return m.ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms(groups, group, member, now_ms),
    )


def new_member_id(groups: Groups) -> str:
    """A member id in Kafka's form of a UUID: base64 for URLs."""
    text = groups.new_id().replace("-", "")
    return urlsafe_b64encode(bytes.fromhex(text)).rstrip(b"=").decode()


def check_size(group: ConsumerGroup, member_id: str, group_event: GroupEvent) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    size_max = group_event.config.consumer_group_max_size
    if len(group.members) >= size_max and member_id not in group.members:
        raise KafkaError(
            f"The consumer group has reached its maximum capacity of {size_max} members.",
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        )


def subscribe(
    groups: Groups,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    may_describe: Callable[[str], bool],
    change: EventChange[ConsumerGroup],
    group_event: GroupEvent,
    *,
    bumps_with_regex: bool = False,
) -> bool:
    """Stores a member's subscription. The group epoch grows if the topics of the group change; with `bumps_with_regex`
    also with a regular expression that is not resolved yet. Whether the member's subscription has changed.

    Raises INVALID_REGULAR_EXPRESSION.
    """
    old, new, is_new_regex, is_last = member.regex, updated.regex, False, False
    has_new_regex = old != new
    if has_new_regex:
        is_new_regex = bool(new) and not group.regex_count(new)
        is_last = bool(old) and group.regex_count(old) == 1
        if is_new_regex:
            check_regular_expression(new)
    is_known = member.member_id in group.members
    if updated.metadata != member.metadata or not is_known:
        change.add(Metadata(updated))
    if is_last:
        change.add(Resolved(old, None))
        group.tried_to_resolve_at_ms = None
    has_new_topics = updated.topics != member.topics
    # A regular expression that is not resolved yet leads to a new epoch once it is.
    is_resolved = has_new_regex and (new in group.resolved if new else bool(old))
    refresh_regexes(groups, group, may_describe, group_event)
    bumps = has_new_topics or is_resolved or (bumps_with_regex and has_new_regex)
    if bumps or group.is_refresh_due(group_event.now_ms):
        refresh(groups, group, change, group_event, bumps=bumps)
    return has_new_topics or has_new_regex


def refresh(
    groups: Groups, group: ConsumerGroup, change: EventChange[ConsumerGroup], group_event: GroupEvent, *, bumps: bool
) -> None:
    """Compares the metadata of the group's topics with the stored hash. The epoch grows if it differs, or with
    `bumps`."""
    found = hash_of(group.subscriptions, groups.topics)
    if bumps or found != group.metadata_hash:
        change.add(Epoch(group.epoch + 1, found))
    group.refreshed(group.epoch, group_event.now_ms)
    if group.has_partition_metadata:
        change.add(ConsumerGroupPartitionMetadata())


def refresh_regexes(
    groups: Groups, group: ConsumerGroup, may_describe: Callable[[str], bool], group_event: GroupEvent
) -> None:
    """Has the regular expressions of the group resolved if that is due."""
    if group.is_resolving or not is_refresh_due(
        group.regexes,
        group.resolved,
        newest_topics_version=groups.topics.newest_version,
        refresh_interval_ms=group_event.config.consumer_group_regex_refresh_interval_ms,
        now_ms=group_event.now_ms,
        tried_at_ms=group.tried_to_resolve_at_ms,
    ):
        return
    group.is_resolving, group.tried_to_resolve_at_ms = True, group_event.now_ms
    group_event.effect(Resolving(group, tuple(group.regexes), groups.topics.version, may_describe))


def reconcile(
    groups: Groups,
    group: ConsumerGroup,
    member: ConsumerMember,
    reported: Reported | None,
    has_subscription_changed: bool,
    change: EventChange[ConsumerGroup],
    group_event: GroupEvent,
) -> ConsumerMember:
    """Makes the member's next step towards its target assignment. Raises FENCED_MEMBER_EPOCH."""
    if not has_subscription_changed and member.is_reconciled(group.target_epoch):
        return member
    target = group.target.get(member.member_id, NO_PARTITIONS)
    has_any = target or member.assigned
    after = Reconciliation(
        group.target_epoch,
        target,
        group.existing(group.topics_of(member), groups.topics) if has_any else NO_PARTITIONS,
        has_subscription_changed,
        reported,
        group.owners,
    ).step(member)
    if after == member:
        return member
    change.add(Current(after))
    if after.classic is None:
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            group_event.start(TimerKind.REBALANCE, group, after.rebalance_timeout_ms, after.member_id)
        else:
            group_event.stop(TimerKind.REBALANCE, group, after.member_id)
    return after


# Who the member is


def _subscribe(
    group: ConsumerGroup,
    request: m.ConsumerGroupHeartbeatRequest,
    member_id: str,
    reported: Reported | None,
    change: EventChange[ConsumerGroup],
) -> ConsumerMember:
    """The member of the request, a new one if it joins. Raises what the client must do: rejoin, or give up."""
    joins = request.member_epoch == JOINING_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None and not joins:
            raise unknown_member(group, member_id)
        if member is None:
            return ConsumerMember(member_id)
    else:
        static = group.static_member(request.instance_id)
        if joins:
            return join_static(group, static, request.instance_id, member_id, change, is_classic=False)
        member = check_static(static, request.instance_id, member_id)
    _check_epoch(member, request.member_epoch, reported)
    return member


def join_static(
    group: ConsumerGroup,
    static: ConsumerMember | None,
    instance_id: str,
    member_id: str,
    change: EventChange[ConsumerGroup],
    *,
    is_classic: bool,
) -> ConsumerMember:
    """A static member that joins: a new one, or one that takes the place and the partitions of its earlier self. Raises
    UNRELEASED_INSTANCE_ID while the earlier one has not left, unless one of both speaks the classic protocol."""
    if static is None:
        known = group.members.get(member_id)
        return ConsumerMember(member_id) if known is None else known
    if not is_classic and static.classic is None and static.epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {static.member_id} member.",
            ErrorCode.UNRELEASED_INSTANCE_ID,
        )
    member = static._replace(member_id=member_id, epoch=0, previous_epoch=0)
    target = group.target.get(static.member_id, {})
    change.add(*gone(static.member_id), Metadata(member), Target(member_id, target), Current(member))
    return member


def check_static(static: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """The static member of an instance id. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if static is None:
        raise KafkaError(f"Instance id {instance_id} is unknown.", ErrorCode.UNKNOWN_MEMBER_ID)
    if static.member_id != member_id:
        raise KafkaError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
            ErrorCode.FENCED_INSTANCE_ID,
        )
    return static


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(f"Member {member_id} is not a member of group {group.group_id}.", ErrorCode.UNKNOWN_MEMBER_ID)


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    """Raises FENCED_MEMBER_EPOCH unless the epoch is the member's. The previous one is accepted of a member that owns
    no more than it is assigned: the response with the new one may be lost."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch == member.previous_epoch and _is_within(reported, member):
        return
    else:
        relation = "smaller"
    raise KafkaError(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        ErrorCode.FENCED_MEMBER_EPOCH,
    )


def _is_within(reported: Reported | None, member: ConsumerMember) -> bool:
    return reported is not None and all(
        topic_id in member.assigned and member.assigned[topic_id].keys() >= set(partitions)
        for topic_id, partitions in reported.items()
    )


def _reported(topics: list[m.ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Reported | None:
    """The partitions that a member says it owns; a topic may be there several times."""
    if topics is None:
        return None
    reported: dict[bytes, list[int]] = {}
    for each in topics:
        known = reported.get(each.topic_id)
        if known is None:
            reported[each.topic_id] = list(each.partitions)
        else:
            known += each.partitions
    return reported
