"""The mistakes that Kafka, Pulsar and Redpanda have published as CVEs, about what clients may do.

Each test names the CVE whose class of mistake it holds off. Mistakes of parts that headrace does not have (Connect's
REST API, ZooKeeper's own quorum, Log4j) are left out. `conftest.broker` tells what the broker is like.
"""

import struct

import crc32c

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.eventually import eventually
from tests.security.clients import (
    ALLOW,
    DESCRIBE,
    LITERAL,
    READ,
    TOPIC_RESOURCE,
    WRITE,
    allow,
    as_user,
    fetch,
    new_topic,
    produce,
)
from tests.wire import batch


def test_a_client_is_no_follower(broker: Broker) -> None:
    """CVE-2018-1288: a crafted Fetch of a client with a replica id interfered with replication."""
    topic = new_topic(broker)
    allow(broker, "mallory", READ, TOPIC_RESOURCE, topic)
    with as_user(broker, "mallory") as client:
        assert fetch(client, topic).responses[0].partitions[0].error_code == 0
        pretended = fetch(client, topic, replica_id=0)
        codes = {pretended.error_code, *(p.error_code for each in pretended.responses for p in each.partitions)}
        assert codes - {0}, "the fetch of a follower was served to a client"
        assert not any(p.records for each in pretended.responses for p in each.partitions)


def test_a_transaction_needs_its_rights_whatever_the_request_says(broker: Broker) -> None:
    """CVE-2018-17196: a crafted Produce wrote transactional batches without the right to the transactional id."""
    topic = new_topic(broker)
    allow(broker, "mallory", WRITE, TOPIC_RESOURCE, topic)
    records = bytearray(batch([b"v"], producer=(1, 0, 0)))
    attributes = struct.unpack_from(">h", records, 21)[0] | 16
    struct.pack_into(">h", records, 21, attributes)
    struct.pack_into(">I", records, 17, crc32c.crc32c(bytes(records[21:])))
    with as_user(broker, "mallory") as client:
        assert produce(client, topic).error_code == 0
        assert produce(client, topic, bytes(records), "not-mine").error_code != 0
        assert produce(client, topic, bytes(records), None).error_code != 0
        ids = m.InitProducerIdRequest(transactional_id="not-mine", transaction_timeout_ms=60_000)
        assert client.ask(ids, 1).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_the_right_to_produce_is_none_to_administer(broker: Broker) -> None:
    """CVE-2024-28098: a producer could change the policies of its topic."""
    topic = new_topic(broker)
    for operation in (READ, WRITE, DESCRIBE):
        allow(broker, "mallory", operation, TOPIC_RESOURCE, topic)
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[config]
    )
    with as_user(broker, "mallory") as client:
        [answer] = client.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 0).responses
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        [deleted] = client.ask(m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 3).responses
        assert deleted.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_fetch_session_is_its_principals_alone(broker: Broker) -> None:
    """CVE-2021-41571: an id that can be guessed told the topics of another's session, and ended it."""
    topic = new_topic(broker)
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    opened = m.FetchRequest(
        max_bytes=1 << 20, session_epoch=0, topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    )
    with as_user(broker, "admin") as admin, as_user(broker, "mallory") as mallory:
        session_id = admin.ask(opened, 12).session_id
        assert session_id
        for epoch in (1, 7):
            answer = mallory.ask(m.FetchRequest(max_bytes=1, session_id=session_id, session_epoch=epoch, topics=[]), 12)
            assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        for epoch in (0, -1):
            mallory.ask(m.FetchRequest(max_bytes=1, session_id=session_id, session_epoch=epoch, topics=[]), 12)
        following = m.FetchRequest(max_bytes=1 << 20, session_id=session_id, session_epoch=1, topics=[])
        assert admin.ask(following, 12).error_code == 0


def test_an_id_is_no_right(broker: Broker) -> None:
    """CVE-2021-41571: who gave an internal id instead of a name read what was not his."""
    topic = new_topic(broker)
    with as_user(broker, "admin") as admin:
        by_name = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
        [found] = admin.ask(by_name, 12).topics
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [m.FetchRequest.FetchTopic(topic_id=found.topic_id, partitions=[partition])]
    request = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    by_id = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(topic_id=found.topic_id, name=None)])
    with as_user(broker, "mallory") as client:
        answer = client.ask(request, 13)
        assert not any(p.records for each in answer.responses for p in each.partitions)
        assert all(p.error_code for each in answer.responses for p in each.partitions)
        [described] = client.ask(by_id, 12).topics
        assert described.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # ids are no secret, as in Apache Kafka
        assert not described.name
        assert not described.partitions


def test_the_other_rules_of_a_resource_stay(broker: Broker) -> None:
    """CVE-2024-27309: when one rule of a resource was removed, the others were not enforced any more."""
    topic = new_topic(broker)
    for user in ("alice", "mallory"):
        allow(broker, user, WRITE, TOPIC_RESOURCE, topic)
    one = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=TOPIC_RESOURCE, resource_name_filter=topic, pattern_type_filter=LITERAL,
        principal_filter="User:mallory", host_filter="*", operation=WRITE, permission_type=ALLOW,
    )  # fmt: skip
    with as_user(broker, "alice") as alice, as_user(broker, "mallory") as mallory, as_user(broker, "admin") as admin:
        assert produce(mallory, topic).error_code == 0
        [answer] = admin.ask(m.DeleteAclsRequest(filters=[one]), 2).filter_results
        assert len(answer.matching_acls) == 1
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        eventually(lambda: produce(mallory, topic).error_code == refused, "the rule's end on a live connection")
        assert produce(alice, topic).error_code == 0
