"""A broker that says it is ready can be asked about the cluster."""

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import eventually
from tests.harness import unused

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


def test_a_broker_that_is_ready_knows_the_others_and_the_controller(cluster: LocalCluster) -> None:
    for server in cluster.brokers.values():
        cluster.wait_until_ready()
        server.stop()
        server.restart()
        with Admin(server.bootstrap) as admin:
            view = admin.describe_cluster()
        assert view.controller in view.brokers
        assert len(view.brokers) == len(cluster.brokers)


def test_a_broker_that_is_ready_knows_the_topics(cluster: LocalCluster) -> None:
    """Also one that was killed: the controller first tells it of the brokers alone."""
    topic = unused("known")
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(topic, 3, 3)])
    for number, server in cluster.brokers.items():
        cluster.wait_until_ready()
        server.kill()
        eventually(lambda number=number: _leads_nothing(cluster, number, topic), f"{number} to lead nothing")  # type: ignore[misc]
        server.restart()
        with Asker(server.bootstrap) as asker:
            answer = asker.ask(m.MetadataRequest(topics=None), 4)
        assert topic in {each.name for each in answer.topics}


def _leads_nothing(cluster: LocalCluster, broker: int, topic: str) -> bool:
    return all(each.leader not in (broker, -1) for each in cluster.view().topics[topic].partitions)
