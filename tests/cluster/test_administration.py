"""Three brokers are administered: stopped, given back their leaders, their partitions moved; by confluent-kafka and by
Apache Kafka's own tools."""

import json
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.client.core.metadata import PartitionInfo
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import unused
from tests.peers import kafka

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


def assign(cluster: LocalCluster, name: str, *replicas: list[int]) -> None:
    """Makes a topic with these replicas."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # ends when nobody refers to it
    admin.create_topics([NewTopic(name, len(replicas), replica_assignment=list(replicas))])[name].result(WITHIN_SECONDS)


def partitions(cluster: LocalCluster, topic: str) -> tuple[PartitionInfo, ...]:
    """As some broker sees them."""
    return cluster.topic(topic)


def test_a_broker_that_is_told_to_stop_has_others_lead_before_it_goes(cluster: LocalCluster) -> None:
    name = unused("stopped")
    assign(cluster, name, [2, 3, 1], [3, 2, 1])
    with VerifyingProducer(cluster.bootstrap, name, partitions=2) as producer:
        producer.wait_for(200)
        cluster.brokers[2].stop()
        producer.wait_for(200)
    assert "still leads" not in cluster.brokers[2].stderr_file.read_text()
    view = cluster.wait_until_present({1, 3})
    found = view.topics[name].partitions
    assert [(each.leader, each.leader_epoch) for each in found] == [(3, 1), (3, 1)]
    assert all(set(each.isr) == {1, 3} for each in found)
    assert not verify(cluster.bootstrap, name, producer).faults()


def test_a_whole_cluster_stops_without_waiting_for_each_other(cluster: LocalCluster) -> None:
    name = unused("all-stop")
    assign(cluster, name, [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for server in cluster.brokers.values():
        assert server.process is not None
        server.process.terminate()
    for server in cluster.brokers.values():
        server.stop()
    cluster.make_whole()
    assert all(set(each.isr) == {1, 2, 3} for each in partitions(cluster, name))


def test_preferred_leaders_are_elected_when_asked_for(cluster: LocalCluster) -> None:
    name = unused("preferred")
    assign(cluster, name, [2, 3, 1], [3, 2, 1])
    cluster.brokers[2].stop()
    cluster.brokers[2].restart()
    eventually(lambda: set(partitions(cluster, name)[0].isr) == {1, 2, 3}, "2 is in sync again")
    assert partitions(cluster, name)[0].leader == 3
    wanted = [TopicPartition(name, 0), TopicPartition(name, 1)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    outcomes = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(WITHIN_SECONDS)
    assert outcomes[wanted[0]] is None
    not_needed = outcomes[wanted[1]]
    assert isinstance(not_needed, KafkaError) and not_needed.name() == "ELECTION_NOT_NEEDED"
    eventually(lambda: partitions(cluster, name)[0].leader == 2, "2 leads")


@pytest.mark.peer
@pytest.mark.skipif(bool(kafka.missing_tools()), reason="needs Apache Kafka's tools")
def test_apache_kafkas_tools_move_partitions_and_elect_leaders(cluster: LocalCluster, tmp_path: Path) -> None:
    name = unused("moved")
    assign(cluster, name, [1, 2])
    with VerifyingProducer(cluster.bootstrap, name, partitions=1) as producer:
        producer.wait_for(500)
        plan = tmp_path / "plan.json"
        entry = {"topic": name, "partition": 0, "replicas": [3, 2]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        arguments = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan)]
        told = kafka.run_tool(REASSIGN, *arguments, "--execute", "--throttle", "50000000", logs=tmp_path)
        assert f"Successfully started partition reassignment for {name}-0" in told
        eventually(lambda: partitions(cluster, name)[0].replicas == (3, 2), "the move")
        told = kafka.run_tool(REASSIGN, *arguments, "--verify", logs=tmp_path)
        assert f"Reassignment of partition {name}-0 is completed." in told
        eventually(lambda: partitions(cluster, name)[0].leader == 3, "3 leads")
        producer.wait_for(200)
        cluster.brokers[3].stop()
        cluster.brokers[3].restart()
        eventually(lambda: set(partitions(cluster, name)[0].isr) == {2, 3}, "3 is in sync again")
        told = kafka.run_tool(
            ELECT, "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--topic", name,
            "--partition", "0", logs=tmp_path,
        )  # fmt: skip
        assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in told
        eventually(lambda: partitions(cluster, name)[0].leader == 3, "3 leads")
    assert not verify(cluster.bootstrap, name, producer).faults()
    eventually(
        lambda: not (cluster.directory / "broker-1" / f"{name}-0").exists(), "the replica that was moved away is gone"
    )


def test_only_the_controller_decides_and_the_others_say_so(cluster: LocalCluster) -> None:
    other = next(number for number in cluster.brokers if number != cluster.controller())
    wish = m.CreateTopicsRequest.CreatableTopic(name="here", num_partitions=1, replication_factor=1)
    grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name="here", count=2, assignments=None)
    moved = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name="here", partitions=[])
    elected = m.ElectLeadersRequest.TopicPartitions(topic="here", partitions=[0])
    with Asker(cluster.brokers[other].bootstrap) as asker:
        codes = {
            "create": asker.ask(m.CreateTopicsRequest(topics=[wish]), 5).topics[0].error_code,
            "delete": asker.ask(m.DeleteTopicsRequest(topic_names=["here"]), 5).responses[0].error_code,
            "grow": asker.ask(m.CreatePartitionsRequest(topics=[grown]), 2).results[0].error_code,
            "move": asker.ask(m.AlterPartitionReassignmentsRequest(topics=[moved]), 0).error_code,
            "list": asker.ask(m.ListPartitionReassignmentsRequest(topics=None), 0).error_code,
            "all": asker.ask(m.ElectLeadersRequest(topic_partitions=None), 2).error_code,
            "elect": asker.ask(m.ElectLeadersRequest(topic_partitions=[elected]), 2)
            .replica_election_results[0].partition_result[0].error_code,
            "isr": asker.ask(m.AlterPartitionRequest(broker_id=other, broker_epoch=1), 3).error_code,
            "stop": asker.ask(m.ControlledShutdownRequest(broker_id=other, broker_epoch=1), 3).error_code,
        }  # fmt: skip
    assert set(codes.values()) == {ErrorCode.NOT_CONTROLLER}, codes


def test_a_topic_that_a_client_asks_for_is_made_whichever_broker_it_asks(cluster: LocalCluster) -> None:
    for number, server in cluster.brokers.items():
        with Asker(server.bootstrap) as asker:
            topic = m.MetadataRequest.MetadataRequestTopic(name=f"wanted-of-{number}")
            answer = asker.ask(m.MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 9)
        assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (ErrorCode.NONE, 3)


def test_a_topic_is_made_grown_and_deleted_whichever_broker_is_asked_first(cluster: LocalCluster) -> None:
    for number, server in cluster.brokers.items():
        make_grow_and_delete(cluster, AdminClient({"bootstrap.servers": server.bootstrap}), f"by-{number}")


def make_grow_and_delete(cluster: LocalCluster, admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 2, 3)])[name].result(WITHIN_SECONDS)
    eventually(lambda: name in cluster.view().topics, f"{name} is there")
    assert len(partitions(cluster, name)) == 2
    admin.create_partitions([NewPartitions(name, 3)])[name].result(WITHIN_SECONDS)
    eventually(lambda: len(partitions(cluster, name)) == 3, f"{name} has grown")
    admin.delete_topics([name])[name].result(WITHIN_SECONDS)
    eventually(lambda: name not in cluster.view().topics, f"{name} is gone")
