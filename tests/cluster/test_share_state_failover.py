"""The share coordinator's broker is killed: the next one knows the offsets of share groups, and changes them."""

import time

import pytest

from headrace.coordinators.share_state.keys import key_text
from headrace.coordinators.share_state.persister import SharePartitionKey
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.share_members import PARTITIONS, SHARE_TYPE, Group
from tests.cluster.transactional_clients import WAIT_S
from tests.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


def test_the_next_share_coordinator_knows_the_state(cluster: LocalCluster) -> None:
    topic = f"shared-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    wanted_topic = m.MetadataRequest.MetadataRequestTopic(name=topic)
    with Asker(cluster.bootstrap.split(",")[0]) as asker:
        metadata = asker.ask(m.MetadataRequest(topics=[wanted_topic], allow_auto_topic_creation=False), 12)
    topic_id = metadata.topics[0].topic_id
    group = Group(cluster, topic)
    eventually(lambda: group.alter(5), "the first offsets", within_s=WAIT_S, state=cluster.logs)
    wanted = dict.fromkeys(range(PARTITIONS), 5)
    eventually(lambda: group.offsets() == wanted, "the offsets", within_s=WAIT_S, state=cluster.logs)
    found = group.coordinator(SHARE_TYPE, key_text(SharePartitionKey(group.name, topic_id, 0)))
    assert found is not None
    killed = cluster.brokers[found.node_id]
    killed.kill()
    eventually(lambda: group.offsets() == wanted, "the offsets", within_s=WAIT_S, state=cluster.logs)
    eventually(lambda: group.alter(7), "other offsets", within_s=WAIT_S, state=cluster.logs)
    killed.restart()
    cluster.wait_until_ready()
    wanted = dict.fromkeys(range(PARTITIONS), 7)
    eventually(lambda: group.offsets() == wanted, "the other offsets", within_s=WAIT_S, state=cluster.logs)
