"""A broker that says it is ready can be asked about the cluster."""

import pytest

from headrace.client.operations.admin import Admin
from tests.cluster.local_cluster import LocalCluster

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
