"""The five requests about share state, on the wire: from messages to values and back, for handlers and the persister.

All have one form: a group, its topics by id, and their partitions; the answer has a result for each. `StateApi` says
what is special about each. Thousands of partitions are converted in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionState,
    StateBatch,
    StateUpdate,
    Summary,
    TopicIdPartition,
)
from headrace.errors import ErrorCode, known_code
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message

Fields = dict[str, Any]


class StateApi(NamedTuple):
    """One of the requests. An item is what is asked of one share partition."""

    name: str
    request: type[Any]
    topic: type[Any]
    partition: type[Any]
    read_item: Callable[[Any], Any]
    item_fields: Callable[[Any], Fields]
    response: type[Any]
    topic_result: type[Any]
    partition_result: type[Any]
    read_result: Callable[[Any], Any]
    """Of a partition without an error."""
    result_fields: Callable[[Any], Fields]
    result: Callable[[ErrorCode, str | None], Any]
    """The result of a partition that failed, or succeeded with nothing more to say."""


def _nothing(_value: object) -> Fields:
    return {}


def _done(_partition: object) -> PersisterOutcome:
    return PersisterOutcome()


def _read_update(partition: m.WriteShareGroupStateRequest.PartitionData) -> StateUpdate:
    return StateUpdate(
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        partition.delivery_complete_count,
        tuple(_batches(partition.state_batches)),
    )


def _update_fields(update: StateUpdate) -> Fields:
    fields = update._asdict()
    fields["state_batches"] = [
        m.WriteShareGroupStateRequest.StateBatch(**each._asdict()) for each in update.state_batches
    ]
    return fields


def _read_state(partition: m.ReadShareGroupStateResponse.PartitionResult) -> SharePartitionState:
    batches = tuple(_batches(partition.state_batches))
    return SharePartitionState(ErrorCode.NONE, None, partition.state_epoch, partition.start_offset, batches)


def _state_fields(state: SharePartitionState) -> Fields:
    batches = [m.ReadShareGroupStateResponse.StateBatch(**each._asdict()) for each in state.state_batches]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


def _read_summary(partition: m.ReadShareGroupStateSummaryResponse.PartitionResult) -> Summary:
    return Summary(
        ErrorCode.NONE,
        None,
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        partition.delivery_complete_count,
    )


def _summary_fields(summary: Summary) -> Fields:
    fields = summary._asdict()
    del fields["error"], fields["message"]
    return fields


def _batches(found: Iterable[Any]) -> Iterable[StateBatch]:
    return (StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found)


INITIALIZE = StateApi(
    "initialize",
    m.InitializeShareGroupStateRequest,
    m.InitializeShareGroupStateRequest.InitializeStateData,
    m.InitializeShareGroupStateRequest.PartitionData,
    lambda each: InitialState(each.state_epoch, each.start_offset),
    lambda initial: initial._asdict(),
    m.InitializeShareGroupStateResponse,
    m.InitializeShareGroupStateResponse.InitializeStateResult,
    m.InitializeShareGroupStateResponse.PartitionResult,
    _done,
    _nothing,
    PersisterOutcome,
)
READ = StateApi(
    "read",
    m.ReadShareGroupStateRequest,
    m.ReadShareGroupStateRequest.ReadStateData,
    m.ReadShareGroupStateRequest.PartitionData,
    lambda each: each.leader_epoch,
    lambda leader_epoch: {"leader_epoch": leader_epoch},
    m.ReadShareGroupStateResponse,
    m.ReadShareGroupStateResponse.ReadStateResult,
    m.ReadShareGroupStateResponse.PartitionResult,
    _read_state,
    _state_fields,
    SharePartitionState,
)
WRITE = StateApi(
    "write",
    m.WriteShareGroupStateRequest,
    m.WriteShareGroupStateRequest.WriteStateData,
    m.WriteShareGroupStateRequest.PartitionData,
    _read_update,
    _update_fields,
    m.WriteShareGroupStateResponse,
    m.WriteShareGroupStateResponse.WriteStateResult,
    m.WriteShareGroupStateResponse.PartitionResult,
    _done,
    _nothing,
    PersisterOutcome,
)
DELETE = StateApi(
    "delete",
    m.DeleteShareGroupStateRequest,
    m.DeleteShareGroupStateRequest.DeleteStateData,
    m.DeleteShareGroupStateRequest.PartitionData,
    lambda each: None,
    _nothing,
    m.DeleteShareGroupStateResponse,
    m.DeleteShareGroupStateResponse.DeleteStateResult,
    m.DeleteShareGroupStateResponse.PartitionResult,
    _done,
    _nothing,
    PersisterOutcome,
)
SUMMARY = StateApi(
    "read summary",
    m.ReadShareGroupStateSummaryRequest,
    m.ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
    m.ReadShareGroupStateSummaryRequest.PartitionData,
    lambda each: each.leader_epoch,
    lambda leader_epoch: {"leader_epoch": leader_epoch},
    m.ReadShareGroupStateSummaryResponse,
    m.ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
    m.ReadShareGroupStateSummaryResponse.PartitionResult,
    _read_summary,
    _summary_fields,
    Summary,
)


def weight(item: object) -> int:
    """The number of elements that an item has on the wire, at least."""
    return 1 + (len(item.state_batches) if isinstance(item, StateUpdate | SharePartitionState) else 0)


async def read_request(api: StateApi, request: Any) -> dict[TopicIdPartition, Any]:
    """The items of a request; of a partition that is named twice, the last one."""
    items: dict[TopicIdPartition, Any] = {}
    turns = Turns()
    for topic in request.topics:
        for partition in topic.partitions:
            item = items[TopicIdPartition(topic.topic_id, partition.partition)] = api.read_item(partition)
            await turns.count(weight(item))
    return items


async def write_request(api: StateApi, group_id: str, items: Mapping[TopicIdPartition, Any]) -> Message:
    """The request for these items."""
    topics: dict[bytes, Any] = {}
    turns = Turns()
    for key, item in items.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = api.topic(topic_id=key.topic_id)
        topic.partitions.append(api.partition(partition=key.partition, **api.item_fields(item)))
        await turns.count(weight(item))
    request: Message = api.request(group_id=group_id, topics=list(topics.values()))
    return request


async def read_response(api: StateApi, response: Any) -> dict[TopicIdPartition, Any]:
    """The results of a response."""
    results: dict[TopicIdPartition, Any] = {}
    turns = Turns()
    for topic in response.results:
        for partition in topic.partitions:
            error = known_code(partition.error_code)
            if error is ErrorCode.NONE:
                result = api.read_result(partition)
            else:
                result = api.result(error, partition.error_message)
            results[TopicIdPartition(topic.topic_id, partition.partition)] = result
            await turns.count(weight(result))
    return results


async def write_response(api: StateApi, results: Mapping[TopicIdPartition, Any]) -> Message:
    """The response with these results."""
    topics: dict[bytes, Any] = {}
    turns = Turns()
    for key, result in results.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = api.topic_result(topic_id=key.topic_id)
        topic.partitions.append(
            api.partition_result(
                partition=key.partition,
                error_code=result.error,
                error_message=result.message,
                **(api.result_fields(result) if result.error is ErrorCode.NONE else {}),
            )
        )
        await turns.count(weight(result))
    response: Message = api.response(results=list(topics.values()))
    return response
