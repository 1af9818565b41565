"""Share groups and their share state together: what the group coordinator notes, and what the persister does.

    heartbeat          group: which share partitions to initialize ─▶ persister ─▶ group: initialized, or not
    alter offsets      group: initializing ─▶ persister: initialize at the offset ─▶ group: initialized
    delete offsets     group: deleting ─▶ persister: delete ─▶ group: deleted
    delete group       group: everything deleting ─▶ persister: delete ─▶ the group's tombstones
    describe offsets   group: which are initialized ─▶ persister: start offsets ─▶ ends of partitions: the lag

A broker that fails in between leaves the first note in the group: heartbeats initialize again after
`group.share.initialize.retry.interval.ms`, and a deletion is repeated by its client. Source: Kafka's
`GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.coordinators.groups.share.results import Altered, Beat, ToDelete, ToInitialize
from headrace.coordinators.share_state.persister import (
    NO_START_OFFSET,
    InitialState,
    PersisterOutcome,
    Summary,
    TopicIdPartition,
)
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.services import Services
    from headrace.coordinators.groups.coordinator import GroupCoordinator
    from headrace.coordinators.groups.group_event import Actions
    from headrace.coordinators.groups.replies import Reply
    from headrace.protocol import messages as m

log = logging.getLogger(__name__)


def heartbeat(
    services: Services,
    request: m.ShareGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    reply: Callable[[m.ShareGroupHeartbeatResponse], None],
) -> None:
    """ShareGroupHeartbeat; `reply` is called when what it leads to is stored. New share partitions are initialized
    afterwards."""

    def answer(beat: Beat) -> None:
        if beat.to_initialize is not None:
            services.spawn(_initialize(services, request.group_id, beat.to_initialize))
        reply(beat.response)

    services.groups.request(
        lambda coordinator, now_ms: coordinator.share.heartbeat(request, client_id, client_host, answer, now_ms)
    )


async def _initialize(services: Services, group_id: str, wanted: ToInitialize) -> None:
    """Has the persister begin share partitions, and tells the group."""
    initial = InitialState(wanted.state_epoch, NO_START_OFFSET)
    # The persister may try for longer than the group waits. A second one in a newer state epoch, which comes when the
    # first has succeeded, would begin share partitions anew that are in use.
    initializing = services.share_state.initializing
    asked = {
        key: initial
        for topic_id, numbers in wanted.partitions.items()
        for number in sorted(numbers)
        if (group_id, key := TopicIdPartition(topic_id, number)) not in initializing
    }
    if not asked:
        return
    initializing.update((group_id, each) for each in asked)
    try:
        outcomes = await services.share_state.persister.initialize(group_id, asked)
    finally:
        initializing.difference_update((group_id, each) for each in asked)
    failed = _first_failure(outcomes)
    if failed is not None:
        key, outcome = failed
        log.warning(
            "share group %s: %d share partitions could not be initialized, such as partition %d: %s %s",
            group_id,
            len(asked),
            key.partition,
            outcome.error.name,
            outcome.message,
        )
    _note_initialized(services, group_id, _by_topic(asked), is_done=failed is None)


def _note_initialized(
    services: Services, group_id: str, partitions: Mapping[bytes, frozenset[int]], *, is_done: bool
) -> None:
    def note(coordinator: GroupCoordinator, now_ms: int) -> Actions:
        share = coordinator.share
        return (share.initialized if is_done else share.not_initialized)(group_id, partitions, now_ms)

    services.groups.request(note)


def _first_failure(
    outcomes: Mapping[TopicIdPartition, PersisterOutcome],
) -> tuple[TopicIdPartition, PersisterOutcome] | None:
    return next((each for each in outcomes.items() if each[1].error is not ErrorCode.NONE), None)


async def _asked(services: Services, decide: Callable[[GroupCoordinator, Reply, int], Actions]) -> Any:
    """What the group coordinator answers."""
    answered: asyncio.Future[Any] = services.loop.create_future()

    def reply(answer: Any) -> None:
        if not answered.done():
            answered.set_result(answer)

    services.groups.request(lambda coordinator, now_ms: decide(coordinator, reply, now_ms))
    return await answered


async def alter_offsets(
    services: Services, group_id: str, offsets: Mapping[TopicIdPartition, int]
) -> tuple[ErrorCode, Mapping[TopicIdPartition, PersisterOutcome]]:
    """AlterShareGroupOffsets: an error for the whole request, or a result for each partition."""
    partitions = _by_topic(offsets)
    altered: Altered = await _asked(
        services,
        lambda coordinator, reply, now_ms: coordinator.share.alter_offsets(group_id, partitions, reply, now_ms),
    )
    if altered.error is not ErrorCode.NONE:
        return altered.error, {}
    wanted = {key: InitialState(altered.state_epoch, offset) for key, offset in offsets.items()}
    outcomes = await services.share_state.persister.initialize(group_id, wanted) if wanted else {}
    if wanted and _first_failure(outcomes) is None:
        _note_initialized(services, group_id, partitions, is_done=True)
    return ErrorCode.NONE, outcomes


async def delete_offsets(
    services: Services, group_id: str, names: Iterable[str]
) -> tuple[ErrorCode, Mapping[str, PersisterOutcome]]:
    """DeleteShareGroupOffsets: an error for the whole request, or a result for each topic."""
    wanted = list(names)
    to_delete: ToDelete = await _asked(
        services, lambda coordinator, reply, now_ms: coordinator.share.delete_offsets(group_id, wanted, reply, now_ms)
    )
    if to_delete.error is not ErrorCode.NONE:
        return to_delete.error, {}
    missing = PersisterOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    results = dict.fromkeys(to_delete.unknown, missing)
    by_topic = await _delete_states(services, group_id, to_delete.partitions)
    deleted = [topic_id for topic_id, outcome in by_topic.items() if outcome.error is ErrorCode.NONE]
    if deleted:
        error: ErrorCode = await _asked(
            services,
            lambda coordinator, reply, now_ms: coordinator.share.offsets_deleted(group_id, deleted, reply, now_ms),
        )
        if error is not ErrorCode.NONE:
            return error, {}
    for topic_id, outcome in by_topic.items():
        topic = services.metadata.topic_by_id(topic_id)
        if topic is not None:
            results[topic.name] = outcome
    return ErrorCode.NONE, results


async def delete_group(services: Services, group_id: str) -> ErrorCode:
    """DeleteGroups of a share group: its state first, then the group."""
    to_delete: ToDelete = await _asked(
        services, lambda coordinator, reply, now_ms: coordinator.share.begin_deletion(group_id, reply, now_ms)
    )
    if to_delete.error is not ErrorCode.NONE:
        return to_delete.error
    for outcome in (await _delete_states(services, group_id, to_delete.partitions)).values():
        if outcome.error is not ErrorCode.NONE:
            return outcome.error
    return services.groups.delete_group(group_id)


async def _delete_states(
    services: Services, group_id: str, partitions: Mapping[bytes, frozenset[int]]
) -> dict[bytes, PersisterOutcome]:
    """Has the persister remove share partitions. A result for each topic: that of a partition that failed, if any."""
    keys = frozenset(
        TopicIdPartition(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers
    )
    if not keys:
        return {}
    results = dict.fromkeys(partitions, PersisterOutcome())
    for key, outcome in (await services.share_state.persister.delete(group_id, keys)).items():
        if outcome.error is not ErrorCode.NONE:
            results[key.topic_id] = outcome
    return results


async def summaries(
    services: Services, group_id: str, partitions: Iterable[TopicIdPartition]
) -> Mapping[TopicIdPartition, Summary]:
    """The start offsets of share partitions."""
    asked = dict.fromkeys(partitions, 0)
    return await services.share_state.persister.read_summary(group_id, asked) if asked else {}


def _by_topic(keys: Iterable[TopicIdPartition]) -> dict[bytes, frozenset[int]]:
    by_topic: dict[bytes, set[int]] = {}
    for topic_id, number in keys:
        by_topic.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}
