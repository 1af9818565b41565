"""Every version of every API that is advertised is answered, in its own form."""

from collections.abc import Iterator

import pytest

from headrace.broker.handlers import all_modules
from headrace.broker.request.dispatch import message_name
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.security.acls.model import PatternType
from tests.broker.acl_requests import create_request, delete_request, describe_request, exactly, rule
from tests.conftest import StartHeadrace
from tests.harness import receive_frame
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

TOPIC = "asked-for"


def produced(version: int) -> bytearray:
    """What a producer of this version sends: messages, a wrapper, or a batch."""
    rows = [Record(0, 1, b"k", b"v", ())] * 2
    if version < 3:
        return encode_message_set(rows, magic=version // 2, codec=(Codec.NONE, Codec.GZIP, Codec.SNAPPY)[version])
    return encode_batch(rows)


def requests(key: ApiKey, version: int, topic_ids: dict[str, bytes]) -> Iterator[Message]:
    """What a client could ask at this version: one request that works, and one that asks for what is not there."""
    for name in (TOPIC, "missing"):
        topic_id = topic_ids.get(name, b"nobody has this.")
        match key:
            case ApiKey.PRODUCE:
                records = bytes(produced(version))
                each = m.ProduceRequest.PartitionProduceData(index=0, records=records)
                data = m.ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=[each])
                yield m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
            case ApiKey.FETCH:
                part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                fetched = m.FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[part])
                yield m.FetchRequest(
                    replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[fetched], isolation_level=1
                )
            case ApiKey.LIST_OFFSETS:
                for time in (-1, -2, 0):
                    at = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=time)
                    listed = m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[at])
                    yield m.ListOffsetsRequest(replica_id=-1, topics=[listed])
            case ApiKey.METADATA:
                yield m.MetadataRequest(
                    topics=[m.MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=version < 4
                )
            case ApiKey.OFFSET_COMMIT:
                commit = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                committed = m.OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name, topic_id=topic_id, partitions=[commit]
                )
                yield m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[committed])
            case ApiKey.OFFSET_FETCH if version < 8:
                asked = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0])
                yield m.OffsetFetchRequest(group_id="g", topics=[asked])
            case ApiKey.OFFSET_FETCH:
                wanted = m.OffsetFetchRequest.OffsetFetchRequestTopics(
                    name=name, topic_id=topic_id, partition_indexes=[0]
                )
                group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
                yield m.OffsetFetchRequest(groups=[group])
            case ApiKey.DESCRIBE_ACLS:
                yield describe_request(BindingFilter(PatternFilter(kind=PatternType.LITERAL)))
            case ApiKey.CREATE_ACLS:
                yield create_request(rule(f"Topic:{name}", "Read"))
            case ApiKey.DELETE_ACLS:
                yield delete_request(exactly(rule(f"Topic:{name}", "Read")))
            case ApiKey.FIND_COORDINATOR if version < 4:
                yield m.FindCoordinatorRequest(key="g")
            case ApiKey.FIND_COORDINATOR:
                yield m.FindCoordinatorRequest(coordinator_keys=["g"])
            case ApiKey.JOIN_GROUP:
                protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
                yield m.JoinGroupRequest(
                    group_id=f"{name}-{version}",
                    session_timeout_ms=6000,
                    rebalance_timeout_ms=6000,
                    protocol_type="consumer",
                    protocols=[protocol],
                )
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                added = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0])
                if version < 4:
                    yield m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[added])
                else:
                    adding = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                        transactional_id="x", topics=[added]
                    )
                    yield m.AddPartitionsToTxnRequest(transactions=[adding])
            case ApiKey.ADD_OFFSETS_TO_TXN:
                yield m.AddOffsetsToTxnRequest(transactional_id="x", group_id="g")
            case ApiKey.END_TXN:
                yield m.EndTxnRequest(transactional_id="x")
            case ApiKey.DESCRIBE_TRANSACTIONS:
                yield m.DescribeTransactionsRequest(transactional_ids=["x"])
            case ApiKey.LIST_TRANSACTIONS:
                yield m.ListTransactionsRequest(state_filters=["Ongoing", "Unknown"])
            case ApiKey.WRITE_TXN_MARKERS:
                ends = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[0])
                marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=1, topics=[ends])
                yield m.WriteTxnMarkersRequest(markers=[marker])
            case ApiKey.LIST_GROUPS:
                yield m.ListGroupsRequest(states_filter=["Stable"] if version >= 4 else [])
            case ApiKey.STREAMS_GROUP_HEARTBEAT:
                subtopology = m.StreamsGroupHeartbeatRequest.Subtopology(subtopology_id="0", source_topics=[name])
                yield m.StreamsGroupHeartbeatRequest(
                    group_id="streams",
                    member_id=name,
                    endpoint_information_epoch=-1,
                    rebalance_timeout_ms=1000,
                    process_id="p",
                    topology=m.StreamsGroupHeartbeatRequest.Topology(subtopologies=[subtopology]),
                )
            case ApiKey.CONSUMER_GROUP_DESCRIBE:
                yield m.ConsumerGroupDescribeRequest(group_ids=["g"])
            case ApiKey.SHARE_GROUP_HEARTBEAT:
                yield m.ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=[name])
            case ApiKey.SHARE_FETCH:
                acquired = m.ShareFetchRequest.FetchTopic(
                    topic_id=topic_id, partitions=[m.ShareFetchRequest.FetchPartition(partition_index=0)]
                )
                yield m.ShareFetchRequest(group_id="s", member_id="A" * 22, max_bytes=1 << 20, topics=[acquired])
            case ApiKey.SHARE_ACKNOWLEDGE:
                done = m.ShareAcknowledgeRequest.AcknowledgeTopic(
                    topic_id=topic_id, partitions=[m.ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0)]
                )
                yield m.ShareAcknowledgeRequest(group_id="s", member_id="A" * 22, share_session_epoch=1, topics=[done])
            case ApiKey.SHARE_GROUP_DESCRIBE:
                yield m.ShareGroupDescribeRequest(group_ids=["s"])
            case ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
                described = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(
                    topic_name=name, partitions=[0]
                )
                of_group = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
                    group_id="s", topics=[described]
                )
                yield m.DescribeShareGroupOffsetsRequest(groups=[of_group])
            case ApiKey.ALTER_SHARE_GROUP_OFFSETS:
                start = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(start_offset=0)
                altered = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name, partitions=[start]
                )
                yield m.AlterShareGroupOffsetsRequest(group_id="a", topics=[altered])
            case ApiKey.DELETE_SHARE_GROUP_OFFSETS:
                unshared = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                yield m.DeleteShareGroupOffsetsRequest(group_id="a", topics=[unshared])
            case ApiKey.INITIALIZE_SHARE_GROUP_STATE:
                begun = m.InitializeShareGroupStateRequest.InitializeStateData(
                    topic_id=topic_id, partitions=[m.InitializeShareGroupStateRequest.PartitionData()]
                )
                yield m.InitializeShareGroupStateRequest(group_id="s", topics=[begun])
            case ApiKey.READ_SHARE_GROUP_STATE:
                read = m.ReadShareGroupStateRequest.ReadStateData(
                    topic_id=topic_id, partitions=[m.ReadShareGroupStateRequest.PartitionData()]
                )
                yield m.ReadShareGroupStateRequest(group_id="s", topics=[read])
            case ApiKey.WRITE_SHARE_GROUP_STATE:
                written = m.WriteShareGroupStateRequest.WriteStateData(
                    topic_id=topic_id, partitions=[m.WriteShareGroupStateRequest.PartitionData()]
                )
                yield m.WriteShareGroupStateRequest(group_id="s", topics=[written])
            case ApiKey.DELETE_SHARE_GROUP_STATE:
                removed = m.DeleteShareGroupStateRequest.DeleteStateData(
                    topic_id=topic_id, partitions=[m.DeleteShareGroupStateRequest.PartitionData()]
                )
                yield m.DeleteShareGroupStateRequest(group_id="s", topics=[removed])
            case ApiKey.READ_SHARE_GROUP_STATE_SUMMARY:
                summed = m.ReadShareGroupStateSummaryRequest.ReadStateSummaryData(
                    topic_id=topic_id, partitions=[m.ReadShareGroupStateSummaryRequest.PartitionData()]
                )
                yield m.ReadShareGroupStateSummaryRequest(group_id="s", topics=[summed])
            case ApiKey.STREAMS_GROUP_DESCRIBE:
                yield m.StreamsGroupDescribeRequest(group_ids=["streams", name])
            case ApiKey.DESCRIBE_GROUPS:
                yield m.DescribeGroupsRequest(groups=["g", name], include_authorized_operations=version >= 3)
            case ApiKey.DELETE_GROUPS:
                yield m.DeleteGroupsRequest(groups_names=["g", name])
            case ApiKey.OFFSET_DELETE:
                unread = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
                forgotten = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[unread])
                yield m.OffsetDeleteRequest(group_id="g", topics=[forgotten])
            case ApiKey.API_VERSIONS:
                yield m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
            case ApiKey.CREATE_TOPICS:
                wish = m.CreateTopicsRequest.CreatableTopic(
                    name=f"{name}-{version}", num_partitions=1, replication_factor=1
                )
                yield m.CreateTopicsRequest(topics=[wish], timeout_ms=1000)
            case ApiKey.DELETE_TOPICS if version < 6:
                yield m.DeleteTopicsRequest(topic_names=[f"{name}-{version}"])
            case ApiKey.DELETE_TOPICS:
                state = m.DeleteTopicsRequest.DeleteTopicState(name=f"{name}-{version}")
                yield m.DeleteTopicsRequest(topics=[state])
            case ApiKey.DESCRIBE_CONFIGS:
                for kind, of in ((2, name), (4, "0"), (4, "7")):
                    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=of, configuration_keys=None
                    )
                    yield m.DescribeConfigsRequest(resources=[resource], include_synonyms=version > 0)
            case ApiKey.CREATE_PARTITIONS:
                more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2 + version, assignments=None)
                yield m.CreatePartitionsRequest(topics=[more], timeout_ms=1000)
            case ApiKey.ALTER_CONFIGS:
                for kind, of in ((2, name), (4, "0"), (9, "")):
                    setting = m.AlterConfigsRequest.AlterableConfig(name="flush.ms", value=f"{version + 1}")
                    whose = m.AlterConfigsRequest.AlterConfigsResource(
                        resource_type=kind, resource_name=of, configs=[setting]
                    )
                    yield m.AlterConfigsRequest(resources=[whose])
            case ApiKey.INCREMENTAL_ALTER_CONFIGS:
                for operation in range(5):
                    change = m.IncrementalAlterConfigsRequest.AlterableConfig(
                        name="flush.ms", config_operation=operation, value=f"{version + 1}"
                    )
                    target = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=2, resource_name=name, configs=[change]
                    )
                    yield m.IncrementalAlterConfigsRequest(resources=[target])
            case ApiKey.DELETE_RECORDS:
                for offset in (0, -1, 1 << 40):
                    until = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
                    trimmed = m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[until])
                    yield m.DeleteRecordsRequest(topics=[trimmed], timeout_ms=1000)
            case ApiKey.DESCRIBE_CLUSTER:
                yield m.DescribeClusterRequest(include_cluster_authorized_operations=True)
            case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
                yield m.DescribeTopicPartitionsRequest(
                    topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=name)], response_partition_limit=1
                )
            case ApiKey.DESCRIBE_LOG_DIRS:
                located = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0])
                yield m.DescribeLogDirsRequest(topics=[located])
                yield m.DescribeLogDirsRequest(topics=None)
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                epoch = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                ended = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[epoch])
                yield m.OffsetForLeaderEpochRequest(topics=[ended])
            case ApiKey.ALTER_INSTANCES:
                for action, document in ((0, '{"port": null}'), (1, '{"bytes_in": 5}'), (2, "{}")):
                    changed_one = m.AlterInstancesRequest.Alteration(name="tenant", action=action, document=document)
                    yield m.AlterInstancesRequest(alterations=[changed_one], validate_only=name == TOPIC)
            case ApiKey.DESCRIBE_INSTANCES:
                yield m.DescribeInstancesRequest(names=None, include_contents=True)
                yield m.DescribeInstancesRequest(names=["tenant", "nobody"])
            case _:
                yield getattr(m, message_name(key, "Request"))()


def ask(wire: Wire, key: ApiKey, version: int, request: Message) -> Message:
    """One answer, decoded to its last byte."""
    body = request.encode(version)
    head = write_request_header(key, version, 7, "test")
    wire.socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    answer = receive_frame(wire.socket)
    correlation_id, pos = read_response_header(answer, key, version)
    assert correlation_id == 7
    message, end = getattr(m, message_name(key, "Response")).decode(version, answer, pos)
    assert end == len(answer)
    return message  # type: ignore[no-any-return]


@pytest.fixture
def wire(headrace_server: StartHeadrace) -> Iterator[Wire]:
    server = headrace_server(settings={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"})
    with Wire(server.bootstrap) as connection:
        assert connection.create_topic(TOPIC) == ErrorCode.NONE
        ask(connection, ApiKey.FIND_COORDINATOR, 0, m.FindCoordinatorRequest(key="g"))
        yield connection


def test_every_advertised_version_is_answered(wire: Wire) -> None:
    asked = 0
    described = ask(wire, ApiKey.METADATA, 12, next(requests(ApiKey.METADATA, 12, {})))
    topic_ids = {each.name: each.topic_id for each in described.topics}  # type: ignore[attr-defined]
    for module in all_modules():
        for version in module.VERSIONS:
            for request in requests(module.API_KEY, version, topic_ids):
                ask(wire, module.API_KEY, version, request)
                asked += 1
    assert asked > 150
