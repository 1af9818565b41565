"""The thread that sends heartbeats: how often it asks a coordinator that fails."""

import time
from typing import Any

import pytest

from headrace.client.consumer.group_link import GroupTimes
from headrace.client.consumer.heartbeat_membership import HeartbeatMembership
from headrace.client.consumer.heartbeat_session import HeartbeatSession, new_member_id
from headrace.client.consumer.subscription import SubscriptionState
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import JITTER, Deadline
from headrace.client.operations.admin import Admin
from headrace.errors import ErrorCode, KafkaError

BACKOFF_MS = 50
WAIT_MS = 600


class Failing(HeartbeatSession):
    """Its coordinator loads the group for ever."""

    calls = 0

    def _call(self, *_: Any) -> Any:
        self.calls += 1
        raise KafkaError("the group is being loaded", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.slow
def test_a_coordinator_that_fails_is_asked_after_a_pause() -> None:
    """poll wakes the thread every few milliseconds while the member has nothing to read."""
    client = ClientSettings(retry_backoff_ms=BACKOFF_MS, retry_backoff_max_ms=BACKOFF_MS)
    with Cluster("127.0.0.1:1", client) as cluster:
        membership = HeartbeatMembership("g", new_member_id(), GroupTimes().max_poll_interval_ms)
        session = Failing(cluster, membership, GroupTimes())
        subscription = SubscriptionState(Admin(cluster), ["t"], None, None, None)
        began = time.monotonic()
        assert session.advance(subscription, Deadline.after_ms(WAIT_MS)) is None
        session.close()
        passed_ms = (time.monotonic() - began) * 1000
    assert 2 <= session.calls <= 1 + passed_ms / (BACKOFF_MS * (1 - JITTER))
