"""A deleted instance is removed although brokers and controllers are killed meanwhile."""

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.errors import KafkaError
from headrace.instances.definition import InstanceState
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import eventually
from tests.zookeeper_server import missing_tools

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "-")]

SETTINGS = ClientSettings(request_timeout_ms=5_000, connect_timeout_ms=1_000, api_timeout_ms=60_000)
GROUPS = 8
"""Enough that each of the three partitions of the offsets topic has one."""


def states(cluster: LocalCluster) -> dict[str, InstanceState]:
    """The state of each instance, as whoever answers knows it."""
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        return {each.instance.name: each.instance.state for each in InstanceAdmin(opened).describe_instances()}


def test_the_next_controller_goes_on_with_a_removal(cluster: LocalCluster) -> None:
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        admin, topics, groups = InstanceAdmin(opened), Admin(opened), GroupAdmin(opened)
        for name in ("gone", "stays"):
            admin.create_instance(name, {"port": None})
            topics.create_topic(f"{name}.orders", 3, 3)
            for number in range(GROUPS):
                groups.commit(f"{name}.app-{number}", {TopicPartition(f"{name}.orders", 0): 0})
        controller = cluster.controller()
        cluster.brokers[next(each for each in cluster.brokers if each != controller)].kill()
        admin.delete_instance("gone", with_data=True, grace_ms=0)
        # The replicas of the killed broker are still there, so the removal cannot end.
        eventually(
            lambda: states(cluster).get("gone") is InstanceState.REMOVING, "the removal to begin", state=cluster.logs
        )
        cluster.brokers[controller].kill()
    cluster.make_whole()
    eventually(lambda: states(cluster) == {"stays": InstanceState.ACTIVE}, "the end of the removal", state=cluster.logs)
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        left = [each.name for each in Admin(opened).list_topics() if each.name.partition(".")[0] in ("gone", "stays")]
        assert left == ["stays.orders"]
        listed = {each.group_id for each in GroupAdmin(opened).list_groups()}
        assert {each for each in listed if each.startswith("gone.")} == set()
        assert {f"stays.app-{number}" for number in range(GROUPS)} <= listed
        InstanceAdmin(opened).delete_instance("stays", with_data=True, grace_ms=0)
    eventually(lambda: states(cluster) == {}, "the end of the other", state=cluster.logs)


def test_every_broker_answers_alike_and_the_controller_decides(cluster: LocalCluster) -> None:
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        InstanceAdmin(opened).create_instance("acme", {"brokers": [1, 2]})
        found = InstanceAdmin(opened).await_listeners("acme")
        assert set(found.endpoints) == {1, 2, 3}
        assert len(found.bootstrap.split(",")) == 3
        with pytest.raises(KafkaError, match="the live brokers are 1, 2, 3"):
            InstanceAdmin(opened).create_instance("more", {"brokers": [4]})
    for server in cluster.brokers.values():

        def knows(bootstrap: str = server.bootstrap) -> bool:
            with Cluster(bootstrap, SETTINGS) as opened:
                return [each.instance.name for each in InstanceAdmin(opened).describe_instances()] == ["acme"]

        eventually(knows, f"{server.bootstrap} to know the instance")
        with Cluster(server.bootstrap, SETTINGS) as opened:  # whichever broker is asked first
            InstanceAdmin(opened).alter_instance("acme", {"bytes_in": 1000 + server.port})
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        InstanceAdmin(opened).delete_instance("acme")
    eventually(lambda: states(cluster) == {}, "the end of the instance", state=cluster.logs)


def test_every_broker_serves_an_instance_whose_partitions_are_on_some(cluster: LocalCluster) -> None:
    """Whichever broker a client asks: topics are made by the controller, on the instance's brokers, and each group and
    transactional id has a coordinator that the client can reach."""
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        InstanceAdmin(opened).create_instance("acme", {"brokers": [1, 2]})
        found = InstanceAdmin(opened).await_listeners("acme")
    wish = m.CreateTopicsRequest.CreatableTopic
    for number, address in sorted(found.endpoints.items()):
        with Asker(address) as asker:
            wanted = [wish(name=f"orders-{number}", num_partitions=4, replication_factor=2)]
            [made] = asker.ask(m.CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7).topics
            assert (made.name, made.error_code, made.error_message) == (f"orders-{number}", 0, None)
            more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=made.name, count=6, assignments=None)
            [grown] = asker.ask(m.CreatePartitionsRequest(topics=[more], timeout_ms=30_000), 3).results
            assert (grown.name, grown.error_code) == (f"orders-{number}", 0)
    for address in found.endpoints.values():
        with Asker(address) as asker:

            def told(asker: Asker = asker) -> m.MetadataResponse | None:
                answer: m.MetadataResponse = asker.ask(m.MetadataRequest(topics=None), 9)
                return answer if [len(each.partitions) for each in answer.topics] == [6, 6, 6] else None

            metadata = eventually(told, "the topics", state=cluster.logs)
            assert metadata is not None
            assert {each.name for each in metadata.topics} == {"orders-1", "orders-2", "orders-3"}
            held = {broker for topic in metadata.topics for each in topic.partitions for broker in each.replica_nodes}
            assert held == {1, 2}
            assert {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers} == dict(found.endpoints)
            for kind in (0, 1):
                find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[f"key-{each}" for each in range(20)])

                def are_found(asker: Asker = asker, find: m.FindCoordinatorRequest = find) -> bool:
                    coordinators = asker.ask(find, 4).coordinators
                    return {each.error_code for each in coordinators} == {0} and all(
                        f"{each.host}:{each.port}" == found.endpoints[each.node_id] for each in coordinators
                    )

                eventually(are_found, "coordinators", state=cluster.logs)
    with Asker(found.endpoints[BrokerId(3)]) as asker:
        deletion = m.DeleteTopicsRequest(topic_names=["orders-1"], timeout_ms=30_000)
        [deleted] = asker.ask(deletion, 5).responses
        assert (deleted.name, deleted.error_code) == ("orders-1", 0)
    with Cluster(cluster.bootstrap, SETTINGS) as opened:
        InstanceAdmin(opened).delete_instance("acme", with_data=True, grace_ms=0)
    eventually(lambda: states(cluster) == {}, "the end of the instance", state=cluster.logs)
