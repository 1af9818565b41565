"""Ordinary clients work in two instances that have a topic `orders` and a group `app` each, side by side."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from headrace.client.consumer.consumer import Consumer as OwnConsumer
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin as OwnAdmin
from headrace.client.producer.producer import Producer as OwnProducer
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.instances.houses import Houses
from tests.broker.share_requests import values
from tests.eventually import WITHIN_SECONDS, eventually

IDS = {"acme": "AAAAAAAAQACAAAAAAAAAAA", "beta": "BBBBBBBBQBCBBBBBBBBBBA"}
BOTH = tuple(IDS)
FIRST_RANDOM_ID = 1 << 62


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = tuple(Instance(name, id) for name, id in IDS.items())
    with Houses(tmp_path_factory.mktemp("houses") / "data", instances) as found:
        yield found


def confluent_consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings})


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
        return len(found) >= count

    eventually(has_all, f"{count} records", state=lambda: found)
    return found


@pytest.mark.slow
def test_confluent_kafka_in_both_instances(houses: Houses) -> None:
    """Topics, records, a group, a transaction and the administrative calls, under the same names in both."""
    consumers = {}
    for name in BOTH:
        bootstrap = houses.addresses[name]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1), NewTopic("other", 1, 1)])["orders"].result(WITHIN_SECONDS)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "shop", "linger.ms": 0})
        producer.init_transactions(WITHIN_SECONDS)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", f"{name}-{partition}".encode(), partition=partition)
        producer.commit_transaction(WITHIN_SECONDS)
        producer.begin_transaction()
        producer.produce("orders", b"aborted", partition=0)
        producer.flush(WITHIN_SECONDS)
        producer.abort_transaction(WITHIN_SECONDS)
        consumers[name] = confluent_consumer(bootstrap, "app", **{"isolation.level": "read_committed"})
        consumers[name].subscribe(["orders"])
    for name, consumer in consumers.items():
        assert sorted(read(consumer, 2)) == [f"{name}-0".encode(), f"{name}-1".encode()]
        assert {each.topic for each in consumer.assignment()} == {"orders"}
        consumer.commit(asynchronous=False)
    for name in BOTH:
        _administers(houses.addresses[name], name)
    for consumer in consumers.values():
        consumer.close()
    seen = AdminClient({"bootstrap.servers": houses.bootstrap})
    topics = seen.list_topics(timeout=WITHIN_SECONDS).topics
    assert {"acme.orders", "beta.orders"} <= topics.keys()
    groups = {each.group_id for each in seen.list_consumer_groups().result(WITHIN_SECONDS).valid}
    assert {"acme.app", "beta.app"} <= groups


def _administers(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_topics(timeout=WITHIN_SECONDS)
    assert str(listed.cluster_id) == IDS[name]
    topics = {str(each) for each in listed.topics}
    assert {"orders", "other"} <= topics
    assert not [each for each in topics if "." in each or each.startswith("__")]
    assert [(str(each.host), each.port) for each in listed.brokers.values()] == [
        ("127.0.0.1", int(bootstrap.rpartition(":")[2]))
    ]
    groups = {each.group_id for each in admin.list_consumer_groups().result(WITHIN_SECONDS).valid}
    assert "app" in groups
    assert not any("." in each for each in groups)
    described = admin.describe_consumer_groups(["app"])["app"].result(WITHIN_SECONDS)
    [member] = described.members
    assert {each.topic for each in member.assignment.topic_partitions} == {"orders"}
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("app")])["app"].result(WITHIN_SECONDS)
    assert {each.topic for each in offsets.topic_partitions} == {"orders"}
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    [configs] = admin.describe_configs([resource]).values()
    assert configs.result(WITHIN_SECONDS)["retention.ms"].value == "604800000"
    [refused] = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(min(listed.brokers)))]).values()
    with pytest.raises(KafkaException) as error:
        refused.result(WITHIN_SECONDS)
    assert error.value.args[0].code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_consumer_groups_of_the_new_protocol_and_regular_expressions(houses: Houses) -> None:
    for name in BOTH:
        with houses.ask(name) as wire:
            create(wire, "events-1")
            create(wire, "sideline")
        producer = Producer({"bootstrap.servers": houses.addresses[name], "linger.ms": 0})
        producer.produce("events-1", name.encode())
        producer.produce("sideline", b"not subscribed")
        assert not producer.flush(WITHIN_SECONDS)
    for name in BOTH:
        consumer = confluent_consumer(houses.addresses[name], "new", **{"group.protocol": "consumer"})
        consumer.subscribe(["^events-.*"])
        assert read(consumer, 1) == [name.encode()]
        consumer.commit(asynchronous=False)
        with houses.ask(name) as wire:
            [group] = wire.ask(m.ConsumerGroupDescribeRequest(group_ids=["new"]), 1).groups
        [member] = group.members
        assert member.subscribed_topic_regex.strip("()") == "^events-.*"  # librdkafka puts it into parentheses
        assert [each.topic_name for each in member.assignment.topic_partitions] == ["events-1"]
        consumer.close()


def has_coordinator(wire: Asker, find: m.FindCoordinatorRequest) -> bool:
    return not wire.ask(find, 4).coordinators[0].error_code


def create(wire: Asker, *topics: str) -> None:
    wanted = [
        m.CreateTopicsRequest.CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in topics
    ]
    for each in wire.ask(m.CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7).topics:
        assert each.error_code == 0, each


def test_aiokafka_in_both_instances(houses: Houses) -> None:
    async def run(name: str) -> None:
        bootstrap = houses.addresses[name]
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio")
        async with producer, producer.transaction():
            await producer.send_and_wait("made-by-aiokafka", name.encode(), partition=0)
        consumer = AIOKafkaConsumer(
            "made-by-aiokafka", bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        async with consumer:
            assert (await asyncio.wait_for(consumer.getone(), WITHIN_SECONDS)).value == name.encode()
            await consumer.commit()
            assert await consumer.committed(TopicPartition("made-by-aiokafka", 0)) == 1

    for name in BOTH:
        asyncio.run(run(name))


@pytest.mark.slow
def test_kafka_python_in_both_instances(houses: Houses) -> None:
    for name in BOTH:
        bootstrap = houses.addresses[name]
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        producer.send("made-by-kafka-python", name.encode()).get(WITHIN_SECONDS)
        producer.close()
        consumer = KafkaConsumer(
            "made-by-kafka-python",
            bootstrap_servers=bootstrap,
            group_id="kp",
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(WITHIN_SECONDS * 1000),
        )
        assert next(consumer).value == name.encode()
        consumer.commit()
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        assert "made-by-kafka-python" in admin.list_topics()
        assert not [each for each in admin.list_topics() if "." in each]
        admin.close()
        consumer.close()


def test_our_own_client_in_both_instances(houses: Houses) -> None:
    for name in BOTH:
        bootstrap = houses.addresses[name]
        with Cluster(bootstrap) as opened:
            OwnAdmin(opened).create_topic("ours", 1, 1)
            assert "ours" in {each.name for each in OwnAdmin(opened).list_topics()}
        with OwnProducer(bootstrap, transactional_id="ours") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("ours", name.encode())
        with OwnConsumer(bootstrap, group_id="ours", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["ours"])
            found: list[bytes | None] = []

            def has_one(consumer: OwnConsumer = consumer, found: list[bytes | None] = found) -> bool:
                found += [each.value for each in consumer.poll(200)]
                return bool(found)

            eventually(has_one, "the record")
            assert found == [name.encode()]


@pytest.mark.slow
def test_share_groups_read_the_records_of_their_instance(houses: Houses) -> None:
    """A group `app-share` in each, that reads `shared` from its beginning."""
    earliest = m.IncrementalAlterConfigsRequest.AlterableConfig(name="share.auto.offset.reset", value="earliest")
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32, resource_name="app-share", configs=[earliest]
    )
    for name in BOTH:
        with houses.ask(name) as wire:
            create(wire, "shared")
            [altered] = wire.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert (altered.resource_name, altered.error_code) == ("app-share", 0), altered
        producer = Producer({"bootstrap.servers": houses.addresses[name], "linger.ms": 0})
        producer.produce("shared", name.encode())
        assert not producer.flush(WITHIN_SECONDS)
    for name in BOTH:
        with houses.ask(name) as wire:
            find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["app-share"])
            eventually(partial(has_coordinator, wire, find), "a coordinator")
            member = str(uuid4())
            topic_id = eventually(partial(_assigned, wire, member), f"an assignment in {name}")
            assert topic_id == houses.broker.metadata.topics[f"{name}.shared"].id
            assert eventually(partial(_shared, wire, member, topic_id), "a record", every_s=0.2)[0].endswith(name)
            [told] = wire.ask(m.ShareGroupDescribeRequest(group_ids=["app-share"]), 1).groups
            assert told.group_id == "app-share"
            assert [each.topic_name for each in told.members[0].assignment.topic_partitions] == ["shared"]


def _assigned(wire: Asker, member: str) -> bytes | None:
    """The id of the one topic that the member of a share group is to read."""
    beat = m.ShareGroupHeartbeatRequest(
        group_id="app-share", member_id=member, member_epoch=0, subscribed_topic_names=["shared"]
    )
    answer = wire.ask(beat, 1)
    assert not answer.error_code, answer
    topics = answer.assignment.topic_partitions if answer.assignment is not None else []
    return topics[0].topic_id if topics else None


def _shared(wire: Asker, member: str, topic_id: bytes) -> list[str]:
    """The values that a new share session gets."""
    partition = m.ShareFetchRequest.FetchPartition(partition_index=0)
    fetch = m.ShareFetchRequest(
        group_id="app-share",
        member_id=member,
        share_session_epoch=0,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=[m.ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    answer = wire.ask(fetch, 1)
    return values(answer) if not answer.error_code else []


def test_producer_ids_are_the_instances_own_and_tell_no_number(houses: Houses) -> None:
    begin = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    with houses.ask("acme") as wire:
        ids = [wire.ask(begin, 4).producer_id for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(FIRST_RANDOM_ID <= each < 1 << 63 for each in ids)
    assert ids != sorted(ids)


def test_old_and_new_versions_of_sync_group_carry_the_names_of_topics(houses: Houses) -> None:
    """Before version 5 SyncGroup does not say which protocol the bytes are of."""
    told = m.ConsumerProtocolAssignment
    assigned = b"\0\0" + told(assigned_partitions=[told.TopicPartition(topic="orders", partitions=[0])]).encode(0)
    subscribed = b"\0\0" + m.ConsumerProtocolSubscription(topics=["orders"]).encode(0)
    for version in (3, 5):
        group = f"synced-{uuid4()}"
        with houses.ask("acme") as wire:
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscribed)
            join = m.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
            find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            eventually(partial(has_coordinator, wire, find), "a coordinator")
            joined = wire.ask(join, 3)
            assert joined.error_code == 0
            assert joined.members[0].metadata == subscribed
            sync = m.SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer" if version >= 5 else None,
                protocol_name="range" if version >= 5 else None,
                assignments=[
                    m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assigned)
                ],
            )
            synced = wire.ask(sync, version)
            assert (synced.error_code, synced.assignment) == (0, assigned)
        with Asker(houses.bootstrap) as operator:
            [seen] = operator.ask(m.DescribeGroupsRequest(groups=[f"acme.{group}"]), 5).groups
        assert b"acme.orders" in seen.members[0].member_metadata
        assert b"acme.orders" in seen.members[0].member_assignment


def test_topics_made_by_a_metadata_request_are_the_instances(houses: Houses) -> None:
    with houses.ask("acme") as wire:
        wanted = [m.MetadataRequest.MetadataRequestTopic(name="by-metadata")]

        def made() -> bool:
            return not wire.ask(m.MetadataRequest(topics=wanted), 12).topics[0].error_code

        eventually(made, "the topic")
    assert "acme.by-metadata" in houses.broker.metadata.topics
    assert "by-metadata" not in houses.broker.metadata.topics


def test_topics_are_deleted_by_name_and_by_id_and_their_ids_are_gone(houses: Houses) -> None:
    deletion = m.DeleteTopicsRequest.DeleteTopicState
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        for each in (wire, other):
            create(each, "to-delete")
        other_id = houses.broker.metadata.topics["beta.to-delete"].id
        own_id = houses.broker.metadata.topics["acme.to-delete"].id
        request = m.DeleteTopicsRequest(topics=[deletion(name=None, topic_id=other_id)], timeout_ms=30_000)
        [refused] = wire.ask(request, 6).responses
        assert (refused.error_code, refused.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, other_id)
        request = m.DeleteTopicsRequest(topics=[deletion(name=None, topic_id=own_id)], timeout_ms=30_000)
        [deleted] = wire.ask(request, 6).responses
        assert (deleted.error_code, deleted.name) == (0, "to-delete")
        [gone] = wire.ask(request, 6).responses
        assert (gone.error_code, gone.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, own_id)
    assert "beta.to-delete" in houses.broker.metadata.topics


def test_the_operators_bounds_hold(houses: Houses) -> None:
    """Numbers of topics and partitions, retention at the creation and afterwards, and brokers."""
    bounds: dict[str, object] = {
        "topics_max": 2,
        "partitions_max": 4,
        "retention_ms_max": 1_000_000,
        "retention_ms_min": 1000,
        "retention_bytes_max": 1 << 30,
        "brokers": (houses.broker.config.broker_id,),
    }
    bounded = Instance("small", "DDDDDDDDQDDDDDDDDDDDDA").altered(bounds)
    bootstrap = houses.add(bounded)

    def creation(name: str, partitions: int = 1, **configs: str) -> m.CreateTopicsRequest:
        wish = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        return m.CreateTopicsRequest(topics=[wish], timeout_ms=30_000)

    with Asker(bootstrap) as wire:

        def made(request: m.CreateTopicsRequest) -> tuple[int, str | None]:
            [found] = wire.ask(request, 7).topics
            return found.error_code, found.error_message

        policy = ErrorCode.POLICY_VIOLATION
        assert made(creation("a", retention_ms="-1"))[0] == policy
        assert made(creation("a", retention_ms="10"))[0] == policy
        assert made(creation("a", retention_bytes=str(1 << 31)))[0] == policy
        assert made(creation("a", partitions=5))[0] == policy
        assert made(creation("a", partitions=2)) == (0, None)
        overrides = houses.broker.replicas.topic_overrides("small.a")
        assert overrides == {"retention.ms": "1000000", "retention.bytes": str(1 << 30)}
        assert made(creation("b", partitions=3))[0] == policy
        assert made(creation("b", partitions=2)) == (0, None)
        code, text = made(creation("c"))
        assert code == policy
        assert text is not None
        assert "2 topics" in text
        assert made(creation("a"))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        more = m.CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=3, assignments=None)
        [grown] = wire.ask(m.CreatePartitionsRequest(topics=[more], timeout_ms=30_000), 3).results
        assert (grown.name, grown.error_code) == ("a", policy)
        alter = m.IncrementalAlterConfigsRequest
        for value, expected in (("5000", 0), ("-1", policy), ("999", policy)):
            config = alter.AlterableConfig(name="retention.ms", config_operation=0, value=value)
            resources = [alter.AlterConfigsResource(resource_type=2, resource_name="a", configs=[config])]
            [altered] = wire.ask(alter(resources=resources), 1).responses
            assert (altered.error_code, altered.resource_name) == (expected, "a"), altered
        config = alter.AlterableConfig(name="retention.ms", config_operation=1, value=None)
        resources = [alter.AlterConfigsResource(resource_type=2, resource_name="a", configs=[config])]
        [altered] = wire.ask(alter(resources=resources), 1).responses
        assert altered.error_code == policy
        assert "set retention.ms" in altered.error_message


def test_no_more_groups_are_made_than_the_operator_allows(houses: Houses) -> None:
    few = Instance("few", "FFFFFFFFQFFFFFFFFFFFFA").altered({"groups_max": 2})
    commit = m.OffsetCommitRequest
    partition = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [commit.OffsetCommitRequestTopic(name="orders", partitions=[partition])]
    with Asker(houses.add(few)) as wire:
        create(wire, "orders")
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["one"])
        eventually(partial(has_coordinator, wire, find), "a coordinator")

        def committed(group: str) -> int:
            [topic] = wire.ask(commit(group_id=group, topics=topics), 8).topics
            return int(topic.partitions[0].error_code)

        assert [committed(each) for each in ("one", "two", "one")] == [0, 0, 0]
        assert committed("three") == ErrorCode.POLICY_VIOLATION
        join = m.JoinGroupRequest(
            group_id="three", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer"
        )
        assert wire.ask(join, 5).error_code == ErrorCode.POLICY_VIOLATION
        [deleted] = wire.ask(m.DeleteGroupsRequest(groups_names=["one"]), 2).results
        assert (deleted.group_id, deleted.error_code) == ("one", 0)
        assert committed("three") == 0


def test_an_instance_that_is_gone_is_served_no_more(houses: Houses) -> None:
    with Asker(houses.add(Instance("brief", "EEEEEEEEQEEEEEEEEEEEEA"))) as wire:
        wire.ask(m.ListGroupsRequest(), 4)
        houses.run(lambda: houses.broker.instances.change("brief", lambda _: None))
        wire.send(m.ListGroupsRequest(), 4)
        assert wire.socket.recv(1) == b""
    assert "brief" not in {each.name for each in houses.broker.instances.all()}
