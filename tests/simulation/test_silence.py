"""A broker that stands still keeps its connections and answers nothing. Nobody waits for it after its session."""

import pytest

from headrace.network.peers.peers import PeerAddress, PeerUnreachable
from headrace.protocol import messages as m
from headrace.types import BrokerId
from tests.simulation.broker import PORT
from tests.simulation.cluster import SECOND_US, Cluster, finish, started
from tests.simulation.plan import Plan

SESSION_S = 3


@pytest.mark.parametrize("is_controller", (False, True), ids=("another broker", "the controller"))
def test_requests_to_a_broker_end_with_its_session(is_controller: bool) -> None:
    cluster = Cluster(1, Plan(replicas=3, min_insync_replicas=1, partitions=1, session_timeout_ms=SESSION_S * 1000))
    started(cluster)
    assert cluster.scheduler.run(cluster.led_and_in_sync, 10 * SECOND_US)
    brokers = list(cluster.brokers.values())
    (controller,) = (each for each in brokers if each.parts is not None and each.parts.controller.is_active)
    silent = controller if is_controller else next(each for each in brokers if each is not controller)
    asking = next(each for each in brokers if each is not silent)
    assert asking.parts is not None and asking.process is not None
    peers, ended = asking.parts.replication.peers, []

    async def ask() -> None:
        with pytest.raises(PeerUnreachable):
            await peers.send(
                PeerAddress(BrokerId(silent.number), silent.host, PORT),
                m.ListGroupsRequest(),
                m.ListGroupsResponse,
                timeout_ms=600_000,
            )
        ended.append(True)

    silent.pause()
    asking.process.call(asking.process.loop.create_task, ask())
    cluster.scheduler.run_for(SECOND_US)
    assert not ended, "it may still answer"
    assert cluster.scheduler.run(lambda: bool(ended), 2 * SESSION_S * SECOND_US), str(cluster.timeline)
    silent.resume()
    assert cluster.scheduler.run(cluster.led_and_in_sync, 30 * SECOND_US)
    assert not finish(cluster)
