"""StreamsGroupHeartbeat: one heartbeat of a member, from its request to the changes and the answer that follow.

    epoch 0     joins: with the topology, without tasks
    epoch > 0   names the tasks that it owns if they changed; the answer has new ones if they changed
    epoch -1    leaves

Each heartbeat does what is due: the member's own data, the topology, the configuration of its topics, a new epoch of
the group, a new target assignment, and one step of the member towards it. All changes are one batch of records; the
answer goes out when they are committed (`writes`). Source: Kafka's `GroupMetadataManager.streamsGroupHeartbeat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from headrace.coordinators.groups.group_event import Timer, TimerKind
from headrace.coordinators.groups.modern.metadata_hash import metadata_hash
from headrace.coordinators.groups.streams.assignment import target_for
from headrace.coordinators.groups.streams.configured_topology import (
    ConfiguredTopology,
    PartitionCount,
    Status,
    StatusDetail,
    configure,
)
from headrace.coordinators.groups.streams.endpoints import partitions_by_endpoint
from headrace.coordinators.groups.streams.group import NOT_VALIDATED
from headrace.coordinators.groups.streams.member import StreamsMember, StreamsMemberState, UserEndpoint
from headrace.coordinators.groups.streams.reconciliation import reconcile
from headrace.coordinators.groups.streams.records import (
    CurrentChange,
    GroupChange,
    MemberChange,
    StreamsChange,
    TopologyChange,
    removal_of,
)
from headrace.coordinators.groups.streams.tasks import Tasks, task_sets
from headrace.coordinators.groups.streams.topology import Topology, topology_of_request
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.streams.configured_topology import TopologyInternalTopic
    from headrace.coordinators.groups.streams.endpoints import EndpointPartitions
    from headrace.coordinators.groups.streams.group import StreamsGroup
    from headrace.coordinators.groups.streams.settings import StreamsSettings

Request = m.StreamsGroupHeartbeatRequest
Response = m.StreamsGroupHeartbeatResponse

LEAVE_EPOCH = -1


class MemberConnection(NamedTuple):
    """The connection of a member."""

    client_id: str
    host: str  # as Java prints an address: with a leading slash


class HeartbeatOutcome(NamedTuple):
    """What follows from a heartbeat: changes of the group, the answer, and topics to create."""

    changes: list[StreamsChange]
    response: Response
    to_create: tuple[TopologyInternalTopic, ...] = ()


_SHUTDOWN = "Streams group member {} encountered a fatal error and requested a shutdown for the entire application."


def heartbeat(
    group: StreamsGroup,
    request: Request,
    client: MemberConnection,
    topics: Topics,
    settings: StreamsSettings,
    group_event: GroupEvent,
    *,
    is_new_group: bool,
) -> HeartbeatOutcome:
    """Serves a heartbeat of a member that joins or stays. Raises `KafkaError`; nothing has changed then."""
    member = _member(group, request, settings.max_size)
    updated = _updated(member, request, client)
    changes: list[StreamsChange] = [] if updated == member else [MemberChange(member.member_id, updated)]
    seen = _see_topology(group, request, updated, topics)
    changes += seen.changes
    statuses, configured = seen.statuses, seen.configured
    epoch, configs = group.epoch, settings.assignment_configs
    if updated != member or seen.has_changed or configs != group.assignment_configs:
        epoch += 1
        changes.append(GroupChange(epoch, seen.topics_hash, seen.validated_epoch, configs))
    if group.is_empty and settings.initial_rebalance_delay_ms > 0:
        _start_initial_delay(group, settings.initial_rebalance_delay_ms, group_event)
    target = target_for(group, epoch, updated, configured, configs, settings.assignment_interval_ms, group_event)
    changes += target.changes
    if target.status is not None:
        statuses.append(target.status)
    reconciled = updated
    if not updated.is_reconciled_to(target.epoch):
        reconciled = reconcile(updated, target.epoch, target.tasks, _owned(request), group)

    # Nothing fails from here on.
    if reconciled != updated:
        changes.append(CurrentChange(member.member_id, reconciled))
        _time_revocation(group, reconciled, group_event)
    for change in changes:
        change.apply(group)
    group.configured, group.topics_version = configured, topics.version
    group_event.start(TimerKind.SESSION, group, settings.session_timeout_ms, member.member_id)
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = member.member_id
    if configured.fault is not None:
        statuses.append(configured.fault)
    if group.shutdown_requested_by is not None:
        detail = _SHUTDOWN.format(group.shutdown_requested_by)
        statuses.append(StatusDetail(Status.SHUTDOWN_APPLICATION, detail))
    response = Response(
        member_id=member.member_id,
        member_epoch=reconciled.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        status=[Response.Status(status_code=each.status, status_detail=each.detail) for each in statuses],
    )
    _give_tasks(response, group, request, member, reconciled, topics, is_new_group=is_new_group)
    return HeartbeatOutcome(changes, response, configured.to_create)


class _SeenTopology(NamedTuple):
    """The group's topology with the topics as they are, and what is wrong with the member's."""

    changes: list[StreamsChange]
    statuses: list[StatusDetail]
    configured: ConfiguredTopology
    topics_hash: int
    validated_epoch: int
    has_changed: bool
    """Whether the topics differ from those for which the group's tasks were made."""


def _see_topology(group: StreamsGroup, request: Request, member: StreamsMember, topics: Topics) -> _SeenTopology:
    """Raises `KafkaError` for a topology that is not the group's, and for tasks that it does not have."""
    topology = _topology_of(group, request.topology)
    changes: list[StreamsChange] = []
    statuses: list[StatusDetail] = []
    if group.topology is None:
        changes.append(TopologyChange(topology))
    elif member.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}."
        )
        statuses.append(StatusDetail(Status.STALE_TOPOLOGY, detail))
    configured, topics_hash = _configured(group, topology, topics)
    validated_epoch = NOT_VALIDATED
    if configured.is_ready:
        validated_epoch = topology.epoch
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            _check_tasks(configured, tasks or ())
    has_changed = topics_hash != group.metadata_hash or validated_epoch != group.validated_topology_epoch
    return _SeenTopology(changes, statuses, configured, topics_hash, validated_epoch, has_changed)


def _member(group: StreamsGroup, request: Request, members_max: int) -> StreamsMember:
    """The member as it is known, or a new one. Raises `KafkaError` for one that may not join or stay."""
    is_joining = request.member_epoch == 0
    if is_joining and len(group.members) >= members_max:
        raise KafkaError(
            f"The streams group has reached its maximum capacity of {members_max} members.",
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        )
    known = group.members.get(request.member_id)
    if known is None and not is_joining:
        _unknown(group.group_id, request.member_id)
    member = known or StreamsMember(request.member_id)
    _check_epoch(member, request)
    return member


def _time_revocation(group: StreamsGroup, member: StreamsMember, group_event: GroupEvent) -> None:
    """Limits the time that a member may take to give up tasks."""
    if member.state is StreamsMemberState.UNREVOKED_TASKS:
        group_event.start(TimerKind.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)
    else:
        group_event.stop(TimerKind.REBALANCE, group, member.member_id)


def leave(group: StreamsGroup, request: Request, group_event: GroupEvent) -> HeartbeatOutcome:
    """Removes a member that leaves. Raises UNKNOWN_MEMBER_ID."""
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = request.member_id
    if request.member_id not in group.members:
        _unknown(group.group_id, request.member_id)
    changes = remove(group, request.member_id, group_event)
    return HeartbeatOutcome(
        changes, Response(member_id=request.member_id, member_epoch=request.member_epoch, status=[])
    )


def remove(group: StreamsGroup, member_id: str, group_event: GroupEvent) -> list[StreamsChange]:
    """Removes a member, and begins a new epoch: the next heartbeat of another member gives its tasks away."""
    changes = removal_of(member_id)
    changes.append(
        GroupChange(group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    )
    group_event.stop(TimerKind.SESSION, group, member_id)
    group_event.stop(TimerKind.REBALANCE, group, member_id)
    for change in changes:
        change.apply(group)
    return changes


def end_initial_delay(group: StreamsGroup, settings: StreamsSettings, group_event: GroupEvent) -> list[StreamsChange]:
    """Computes the first target assignment of a group, when members have had time to join."""
    if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
        return []
    target = target_for(
        group,
        group.epoch,
        None,
        group.configured,
        group.assignment_configs,
        settings.assignment_interval_ms,
        group_event,
    )
    for change in target.changes:
        change.apply(group)
    return target.changes


def _check_epoch(member: StreamsMember, request: Request) -> None:
    """A member must have the coordinator's epoch. The previous one is accepted if it owns nothing else than it was
    given: the answer with the new epoch may be lost."""
    received = request.member_epoch
    if received in (0, member.epoch):
        return
    is_greater = received > member.epoch
    if not is_greater and received == member.previous_epoch and _owns_only_assigned(member, request):
        return
    raise KafkaError(
        f"The streams group member has a {'greater' if is_greater else 'smaller'} member epoch ({received}) than the "
        f"one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        ErrorCode.FENCED_MEMBER_EPOCH,
    )


def _owns_only_assigned(member: StreamsMember, request: Request) -> bool:
    owned = _owned(request)
    return owned is not None and all(
        name in given and partitions <= set(given[name])
        for tasks, given in zip(owned, member.assigned, strict=True)
        for name, partitions in tasks.items()
    )


def _updated(member: StreamsMember, request: Request, client: MemberConnection) -> StreamsMember:
    """The member with what it says about itself; what it does not say remains."""
    endpoint, tags, topology = request.user_endpoint, request.client_tags, request.topology
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if topology is None else topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        client_tags=(
            member.client_tags if tags is None else tuple(sorted({each.key: each.value for each in tags}.items()))
        ),
    )


def _topology_of(group: StreamsGroup, requested: Request.Topology | None) -> Topology:
    """The topology of the group: the first member's. It cannot change while the group exists, as in Kafka 4.3."""
    known = group.topology
    if requested is None:
        if known is None:
            raise KafkaError("The group has no topology: the member must rejoin.", ErrorCode.UNKNOWN_MEMBER_ID)
        return known
    topology = topology_of_request(requested)
    if known is None:
        return topology
    if known.epoch <= topology.epoch and known != topology:
        raise KafkaError("Topology updates are not supported yet.", ErrorCode.INVALID_REQUEST)
    return known


def _configured(group: StreamsGroup, topology: Topology, topics: Topics) -> tuple[ConfiguredTopology, int]:
    """The topology against the topics that exist now, and the hash of their metadata."""
    if group.configured is not None and group.topics_version == topics.version:
        return group.configured, group.metadata_hash
    found = map(topics.by_name, topology.required_topics())
    topics_hash = metadata_hash(each for each in found if each is not None)
    if group.configured is not None and topics_hash == group.metadata_hash:
        return group.configured, topics_hash
    return configure(topology, _partition_count(topics)), topics_hash


def _partition_count(topics: Topics) -> PartitionCount:
    def count(name: str) -> int | None:
        topic = topics.by_name(name)
        return None if topic is None else topic.partition_count

    return count


def _check_tasks(configured: ConfiguredTopology, owned: list[Request.TaskIds] | tuple[()]) -> None:
    for each in owned:
        subtopology = configured.subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise KafkaError(
                f"Subtopology {each.subtopology_id} does not exist in the topology.", ErrorCode.INVALID_REQUEST
            )
        for partition in each.partitions:
            if not 0 <= partition < subtopology.task_count:
                raise KafkaError(
                    f"Task {partition} for subtopology {each.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.task_count}",
                    ErrorCode.INVALID_REQUEST,
                )


def _owned(request: Request) -> Tasks | None:
    """The tasks that the member owns; None if it does not name them, since they have not changed."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(task_sets(request.active_tasks), task_sets(request.standby_tasks), task_sets(request.warmup_tasks))


def _start_initial_delay(group: StreamsGroup, delay_ms: int, group_event: GroupEvent) -> None:
    if Timer(TimerKind.INITIAL_DELAY, group.group_id) not in group_event.deadlines:
        group_event.start(TimerKind.INITIAL_DELAY, group, delay_ms)


def _give_tasks(
    response: Response,
    group: StreamsGroup,
    request: Request,
    before: StreamsMember,
    member: StreamsMember,
    topics: Topics,
    *,
    is_new_group: bool,
) -> None:
    """Adds the member's tasks if it does not know them, and the endpoints of the group likewise."""
    is_new = request.member_epoch == 0 or before.assigned != member.assigned
    if is_new or _has_missed(request, member):
        response.active_tasks, response.standby_tasks, response.warmup_tasks = (
            [Response.TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]
            for tasks in member.assigned
        )
        if is_new and member.user_endpoint is not None and not is_new_group:
            group.endpoint_epoch += 1
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = [
            _endpoint(each)
            for each in partitions_by_endpoint(
                group.members.values(), group.endpoints, group.configured, _partition_count(topics)
            )
        ]
    response.endpoint_information_epoch = group.endpoint_epoch


def _has_missed(request: Request, member: StreamsMember) -> bool:
    """Whether the member names other tasks than it was given: it is on its way to them, or the answer was lost.

    Apache Kafka tells the tasks once. A member that did not hear it is fenced after its rebalance time-out, or runs
    without its new tasks until the next change.
    """
    owned = _owned(request)
    if owned is None:
        return False
    return any(
        {name: frozenset(tasks) for name, tasks in owns.items() if tasks}
        != {name: frozenset(tasks) for name, tasks in given.items() if tasks}
        for owns, given in zip(owned, member.assigned, strict=True)
    )


def _endpoint(each: EndpointPartitions) -> Response.EndpointToPartitions:
    active, standby = (
        [Response.TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in tasks]
        for tasks in (each.active, each.standby)
    )
    return Response.EndpointToPartitions(
        user_endpoint=Response.Endpoint(host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=active,
        standby_partitions=standby,
    )


def _unknown(group_id: str, member_id: str) -> NoReturn:
    raise KafkaError(f"Member {member_id} is not a member of group {group_id}.", ErrorCode.UNKNOWN_MEMBER_ID)
