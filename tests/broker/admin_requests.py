"""Administrative requests in few words, and their answers as what one compares."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.eventually import eventually

TOPIC, BROKER = 2, 4
FROM_TOPIC = 1

T = TypeVar("T")


def settled(ask: Callable[[], T], is_enough: Callable[[T], bool]) -> T:
    """What is answered once it is enough: Apache Kafka's brokers hear of a change a little after it was made."""
    answers: list[T] = []

    def is_settled() -> bool:
        answers[:] = [ask()]
        return is_enough(answers[0])

    eventually(is_settled, "the change to be heard of", state=lambda: f"the last answer was {answers!r}")
    return answers[0]


def broker_id(asker: Asker) -> int:
    return int(asker.ask(m.MetadataRequest(topics=[]), 9).brokers[0].node_id)


def new_name(prefix: str = "admin") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def create_topic(
    asker: Asker, partitions: int = 1, name: str | None = None, settings: Mapping[str, str] | None = None
) -> str:
    """A topic that the broker knows and serves; its name."""
    name = name or new_name()
    wish = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in (settings or {}).items()],
    )
    answer = asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 5).topics[0]
    assert (answer.error_code, answer.error_message) == (0, None)
    settled(lambda: partition_count(asker, name), lambda count: count == partitions)
    settled(lambda: start_offsets(asker, name, range(partitions)), lambda found: -1 not in found.values())
    return name


def partition_count(asker: Asker, name: str) -> int:
    """As metadata has it; 0 while there is no such topic, or a partition has no leader."""
    asked = m.MetadataRequest.MetadataRequestTopic(name=name)
    topic = asker.ask(m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 9).topics[0]
    return 0 if any(each.error_code for each in topic.partitions) else len(topic.partitions)


def start_offsets(asker: Asker, name: str, numbers: Sequence[int], timestamp: int = -2) -> dict[int, int]:
    """Where each partition begins (ends, with -1); -1 for one that is not served."""
    part = m.ListOffsetsRequest.ListOffsetsPartition
    asked = m.ListOffsetsRequest.ListOffsetsTopic(
        name=name, partitions=[part(partition_index=number, timestamp=timestamp) for number in numbers]
    )
    answer = asker.ask(m.ListOffsetsRequest(replica_id=-1, topics=[asked]), 5)
    return {each.partition_index: each.offset for each in answer.topics[0].partitions}


def add_partitions(
    asker: Asker,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    version: int = 3,
    validate_only: bool = False,
) -> tuple[str, str | None]:
    """The code's name, and the message."""
    replicas = m.CreatePartitionsRequest.CreatePartitionsAssignment
    wish = m.CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None if assignments is None else [replicas(broker_ids=list(each)) for each in assignments],
    )
    request = m.CreatePartitionsRequest(topics=[wish], timeout_ms=10_000, validate_only=validate_only)
    (result,) = asker.ask(request, version).results
    assert result.name == name
    return ErrorCode(result.error_code).name, result.error_message


def own_settings(asker: Asker, topic: str) -> dict[str, str]:
    """What the topic sets itself."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    (result,) = asker.ask(m.DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0, result
    return {each.name: each.value for each in result.configs if each.config_source == FROM_TOPIC}


Changes = Sequence[tuple[str, int, str | None]]
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter_many(
    asker: Asker, wanted: Sequence[tuple[int, str, Changes]], *, version: int = 1, validate_only: bool = False
) -> list[tuple[str, str | None]]:
    """IncrementalAlterConfigs: (type, name, [(setting, operation, value)]) -> (code's name, message) of each."""
    setting = m.IncrementalAlterConfigsRequest.AlterableConfig
    resources = [
        m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[setting(name=each, config_operation=op, value=value) for each, op, value in changes],
        )
        for kind, name, changes in wanted
    ]
    request = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    responses = asker.ask(request, version).responses
    answers = {(each.resource_type, each.resource_name): each for each in responses}
    assert len(responses) == len(wanted)
    return [
        (ErrorCode(answer.error_code).name, answer.error_message)
        for answer in (answers[kind, name] for kind, name, _ in wanted)
    ]


def alter(
    asker: Asker, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, version: int = 1
) -> tuple[str, str | None]:
    """One resource's settings, incrementally."""
    (answer,) = alter_many(asker, [(kind, name, changes)], version=version)
    return answer


def replace(
    asker: Asker,
    name: str,
    values: Sequence[tuple[str, str | None]],
    *,
    kind: int = TOPIC,
    version: int = 2,
    validate_only: bool = False,
) -> tuple[str, str | None]:
    """AlterConfigs: one resource's settings, all of them."""
    setting = m.AlterConfigsRequest.AlterableConfig
    resource = m.AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[setting(name=each, value=value) for each, value in values]
    )
    request = m.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = asker.ask(request, version).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return ErrorCode(answer.error_code).name, answer.error_message


def delete_records(
    asker: Asker, topic: str, offsets: Mapping[int, int], *, version: int = 2
) -> dict[int, tuple[int, str]]:
    """For each partition, its low watermark and the code's name."""
    part = m.DeleteRecordsRequest.DeleteRecordsPartition
    asked = m.DeleteRecordsRequest.DeleteRecordsTopic(
        name=topic, partitions=[part(partition_index=number, offset=at) for number, at in offsets.items()]
    )
    answer = asker.ask(m.DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), version)
    return {
        each.partition_index: (each.low_watermark, ErrorCode(each.error_code).name)
        for each in answer.topics[0].partitions
    }
