"""Producers and consumer groups of four clients work on while one broker after the other goes and comes back, and their
group's coordinator is killed: nothing acknowledged is lost, and no committed offset goes back.

Each day has a third of them, `make soak` has all.
"""

import time

import pytest

from tests import rotation
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.working_clients import KINDS, Kind, Work, coordinator

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 3
COUNT = 100


@pytest.mark.parametrize("kind", rotation.in_turn(*KINDS, a_day=-(-len(KINDS) // 3)), ids=lambda kind: kind.name)
def test_a_client_works_on_while_brokers_go_and_come_back(cluster: LocalCluster, kind: Kind) -> None:
    if reason := kind.missing():
        pytest.skip(reason)
    topic = f"work-{kind.name}-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    with Work(kind, cluster.bootstrap, topic, partitions=PARTITIONS) as work:
        work.wait_for(COUNT)
        for server in cluster.brokers.values():
            assert server.stop() == 0
            server.restart()
            work.wait_for(COUNT)
            cluster.wait_until_ready()
        killed, _ = coordinator(cluster.bootstrap, work.group)
        cluster.brokers[killed].kill()
        work.until(lambda: coordinator(cluster.bootstrap, work.group)[0] not in (-1, killed), "another coordinator")
        work.wait_for(COUNT)  # with two brokers
        cluster.brokers[killed].restart()
        cluster.wait_until_ready()
        work.wait_for(COUNT)
    work.check()
    print(work.state())
