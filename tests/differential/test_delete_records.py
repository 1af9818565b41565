"""DeleteRecords, DescribeLogDirs, ElectLeaders and reassignments, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.requests import offset_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka


def _request(*wanted: tuple[str, int, int]) -> m.DeleteRecordsRequest:
    Topic, Partition = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest.DeleteRecordsPartition
    topics = [
        Topic(name=name, partitions=[Partition(partition_index=number, offset=to)]) for name, number, to in wanted
    ]
    return m.DeleteRecordsRequest(topics=topics, timeout_ms=5_000)


@scenario(ApiKey.DELETE_RECORDS)
def test_deletes_records(ask: Conversation) -> None:
    topic = ask.topic()
    for _ in range(4):
        ask.produce(topic)
    for offset in (2, 1, 5, -2, -1, 4):
        ask(_request((topic, 0, offset)))
        ask(offset_request(topic, -2), 7)


@scenario(ApiKey.DELETE_RECORDS)
def test_deletes_records_of_wrong_partitions(ask: Conversation) -> None:
    topic, compacted = ask.topic(), ask.topic("c", cleanup_policy="compact")
    ask(_request((topic, 7, 0)))
    ask(_request((topic, -1, 0)))
    ask(_request((ask.name("missing"), 0, 0), ("not legal", 0, 0), (topic, 0, 0)))
    ask(_request((compacted, 0, 0)))
    ask(_request(("__consumer_offsets", 0, 0)))
    ask(_request())


@scenario(ApiKey.DESCRIBE_LOG_DIRS)
def test_describes_the_log_of_a_topic(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    ask.produce(topic)
    One = m.DescribeLogDirsRequest.DescribableLogDirTopic
    for name, partitions in ((topic, [0, 1]), (topic, [7]), (ask.name("missing"), [0])):
        answer = ask.quietly(m.DescribeLogDirsRequest(topics=[One(topic=name, partitions=partitions)]))
        ask.note("codes", [result.error_code for result in answer.results])
        for each in (topic for result in answer.results for topic in result.topics):
            numbers = sorted((part.partition_index, part.partition_size, part.offset_lag) for part in each.partitions)
            ask.note(each.name, numbers)


@scenario(ApiKey.ELECT_LEADERS)
def test_elects_leaders(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    One = m.ElectLeadersRequest.TopicPartitions
    for kind in (0, 1) if ask.version >= 1 else (0,):
        for partitions in ([One(topic=topic, partitions=[0, 1])], [One(topic=topic, partitions=[7])],
                           [One(topic=ask.name("x"), partitions=[0])], []):  # fmt: skip
            request = m.ElectLeadersRequest(topic_partitions=partitions, timeout_ms=5_000)
            request.election_type = kind
            ask(request)


@scenario(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def test_refuses_wrong_reassignments(ask: Conversation) -> None:
    topic = ask.topic()
    Topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic
    Partition = m.AlterPartitionReassignmentsRequest.ReassignablePartition
    for name, number, replicas in (
        (topic, 0, [1]), (topic, 0, None), (topic, 0, []), (topic, 0, [7]), (topic, 0, [1, 1]), (topic, 0, [-1]),
        (topic, 7, [1]), (topic, 7, None), (ask.name("missing"), 0, [1]), ("", 0, [1]),
    ):  # fmt: skip
        wanted = Topic(name=name, partitions=[Partition(partition_index=number, replicas=replicas)])
        ask(m.AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=5_000))
    ask(m.AlterPartitionReassignmentsRequest(topics=[], timeout_ms=5_000))


@scenario(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def test_lists_reassignments(ask: Conversation) -> None:
    topic = ask.topic()
    One = m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for topics in ([One(name=topic, partition_indexes=[0])], [One(name=topic, partition_indexes=[7])],
                   [One(name=ask.name("missing"), partition_indexes=[0])], []):  # fmt: skip
        ask(m.ListPartitionReassignmentsRequest(topics=topics, timeout_ms=5_000))
