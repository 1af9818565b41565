"""`headrace.reliable`: one switch of a topic, as ordinary clients meet it."""

from functools import partial

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import unused
from tests.wire import batch

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PATIENCE_MS = int(WITHIN_SECONDS * 1000)
RELIABLE = {"headrace.reliable": "true"}


def new_topic(cluster: LocalCluster, replicas: list[int], configs: dict[str, str]) -> str:
    name = unused("reliable")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wish = NewTopic(name, 1, replica_assignment=[replicas], config=configs)
    admin.create_topics([wish])[name].result(WITHIN_SECONDS)
    return name


def sent(bootstrap: str, topic: str, **settings: object) -> KafkaError | None:
    """The error of one record; None for an acknowledged one."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": PATIENCE_MS, **settings})
    producer.produce(topic, "value", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WITHIN_SECONDS) == 0
    return outcomes[0]


def effective(cluster: LocalCluster, broker: int, topic: str) -> list[str]:
    """What the switch decides, as the broker has it."""
    names = ["min.insync.replicas", "headrace.flush.acks", "unclean.leader.election.enable"]
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC.value, resource_name=topic, configuration_keys=names
    )
    with Asker(cluster.brokers[broker].bootstrap) as asker:
        (answer,) = asker.ask(m.DescribeConfigsRequest(resources=[wanted]), 4).results
    values = {each.name: each.value for each in answer.configs}
    return [str(values.get(name)) for name in names]


def code_of(cluster: LocalCluster, topic: str, producer: tuple[int, int, int]) -> ErrorCode:
    """What the leader answers to a batch with acks=1 of a producer (id, epoch, sequence)."""
    records = batch([b"v"], producer=producer)
    data = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    with Asker(cluster.brokers[cluster.leader(topic)].bootstrap) as asker:
        answer = asker.ask(m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_only_idempotent_producers_write_and_each_of_them_waits_for_two_replicas(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, [1, 2], RELIABLE)
    for broker in (1, 2):  # each hears of the topic's settings in its own time
        eventually_equal(partial(effective, cluster, broker, topic), ["2", "true", "false"])
    assert sent(cluster.bootstrap, topic, **{"enable.idempotence": True}) is None
    refused = sent(cluster.bootstrap, topic, **{"enable.idempotence": False, "acks": 1})
    assert refused is not None and refused.name() == "INVALID_RECORD"
    cluster.brokers[2].stop()
    eventually(lambda: set(cluster.topic(topic)[0].isr) == {1}, "broker 2 left the ISR")
    assert code_of(cluster, topic, (4000, 0, 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.brokers[2].restart()
    eventually(lambda: set(cluster.topic(topic)[0].isr) == {1, 2}, "both in sync")
    assert code_of(cluster, topic, (4000, 0, 0)) is ErrorCode.NONE


def test_it_needs_two_replicas(cluster: LocalCluster) -> None:
    with pytest.raises(KafkaException) as caught:
        new_topic(cluster, [1], RELIABLE)
    error = caught.value.args[0]
    assert error.name() == "INVALID_REPLICATION_FACTOR" and "takes 2 at least" in error.str()
    topic = new_topic(cluster, [1], {})
    switch = ConfigEntry("headrace.reliable", "true", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[switch])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(KafkaException) as caught:
        admin.incremental_alter_configs([wanted])[wanted].result(WITHIN_SECONDS)
    assert "takes 2 at least" in caught.value.args[0].str()


def test_there_is_no_unclean_election_even_on_request(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, [2, 3], RELIABLE | {"unclean.leader.election.enable": "true"})
    assert sent(cluster.bootstrap, topic, **{"enable.idempotence": True}) is None
    for broker in (2, 3):
        cluster.brokers[broker].stop()
    eventually(lambda: cluster.topic(topic)[0].leader < 0, "the partition is offline")
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})
    partition = TopicPartition(topic, 0)
    error = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(WITHIN_SECONDS)[partition]
    assert error is not None and error.name() == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    assert "headrace.reliable=false" in error.str()


def test_the_topics_of_a_reliable_instance_are_reliable_whatever_they_set(cluster: LocalCluster) -> None:
    name = unused("instance").lower()[:32]
    with Cluster(cluster.bootstrap) as connected:
        instances = InstanceAdmin(connected)
        instances.create_instance(name, {"reliable": True})
        bootstrap = instances.await_listeners(name).bootstrap
        tenant = AdminClient({"bootstrap.servers": bootstrap})
        with pytest.raises(KafkaException) as caught:
            tenant.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WITHIN_SECONDS)
        assert "takes 2 at least" in caught.value.args[0].str()
        wish = NewTopic("orders", 1, 3, config={"headrace.reliable": "false"})
        tenant.create_topics([wish])["orders"].result(WITHIN_SECONDS)
        refused = sent(bootstrap, "orders", **{"enable.idempotence": False})
        assert refused is not None and refused.name() == "INVALID_RECORD"
        assert sent(bootstrap, "orders", **{"enable.idempotence": True}) is None
        instances.delete_instance(name, with_data=True, grace_ms=0)
