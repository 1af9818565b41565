"""The controller is killed, or paused past its session: another is elected, and the old one writes nothing more."""

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from headrace.protocol import messages as m
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.local_cluster import LocalCluster
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import receive_frame, unused
from tests.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, missing_tools

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "-")]


class Eyes:
    """The cluster's tree, seen by somebody else's client."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address)
        self.client.start()

    def json(self, path: str) -> Any:
        return json.loads(self.client.get(path)[0])

    def epoch(self) -> tuple[int, int]:
        """The controller epoch, and how often it was written."""
        data, stat = self.client.get("/controller_epoch")
        return int(data), stat.version

    def registration(self, broker: int) -> int:
        """The czxid of a broker's registration, -1 when there is none."""
        found = self.client.exists(f"/brokers/ids/{broker}")
        return found.czxid if found else -1


@pytest.fixture
def eyes(cluster: LocalCluster) -> Iterator[Eyes]:
    seen = Eyes(cluster.zookeeper)
    yield seen
    seen.client.stop()
    seen.client.close()


def test_a_killed_controller_is_replaced_in_a_higher_epoch(cluster: LocalCluster, eyes: Eyes) -> None:
    old = cluster.controller()
    epoch, version = eyes.epoch()
    cluster.brokers[old].kill()
    eventually(lambda: eyes.registration(old) == -1, "the end of its session")
    eventually(lambda: eyes.epoch() > (epoch, version), "another controller")
    eventually(lambda: cluster.controller() != old, "the brokers to know it")
    cluster.brokers[old].restart()
    cluster.wait_until_ready()
    higher, writes = eyes.epoch()  # on a busy machine a session may end, and there are more elections
    assert higher - epoch == writes - version, "each election is in an epoch of its own"
    if writes == version + 1:
        assert cluster.controller() == eyes.json("/controller")["brokerid"] != old, "who returns takes nothing over"


def test_a_broker_that_is_killed_and_back_at_once_takes_over_what_it_left(cluster: LocalCluster, eyes: Eyes) -> None:
    old, epoch = cluster.controller(), eyes.epoch()
    registration = eyes.client.exists(f"/brokers/ids/{old}")
    cluster.brokers[old].kill()
    cluster.brokers[old].restart()
    again = eyes.client.exists(f"/brokers/ids/{old}")
    assert again.czxid > registration.czxid
    assert again.ephemeralOwner != registration.ephemeralOwner
    assert eyes.json(f"/brokers/ids/{old}")["headrace"]["clean"] is False
    cluster.wait_until_ready()
    assert eyes.epoch()[0] > epoch[0]  # by one, or two where another took over before it was back


def test_a_controller_that_was_paused_past_its_session_writes_nothing_in_its_old_epoch(
    cluster: LocalCluster, eyes: Eyes
) -> None:
    before, late = unused("before-the-pause"), unused("by-the-zombie")
    cluster.create_topic(before)
    zombie = cluster.controller()
    epoch, version = eyes.epoch()
    left = eyes.registration(zombie)
    with socket.create_connection(("127.0.0.1", cluster.brokers[zombie].port), 5) as connection:
        cluster.pause(zombie)
        # It finds this, and that its session is over, when it goes on.
        connection.sendall(create_topic(late))
        eventually(lambda: eyes.registration(zombie) == -1, "the end of its session")
        eventually(lambda: eyes.epoch()[0] == epoch + 1, "another controller")
        os.kill(cluster.pid(zombie), signal.SIGCONT)
        connection.settimeout(WITHIN_SECONDS)
        receive_frame(connection)
    eventually(lambda: eyes.registration(zombie) > left, "its next registration")
    cluster.wait_until_ready()
    assert eyes.epoch() == (epoch + 1, version + 1)
    assert eyes.json("/controller")["brokerid"] != zombie
    if eyes.client.exists(f"/brokers/topics/{late}"):  # it passed the wish on to the new controller
        state = eyes.json(f"/brokers/topics/{late}/partitions/0/state")
        assert state["controller_epoch"] == epoch + 1
    for number in range(3):
        leadership = eyes.json(f"/brokers/topics/{before}/partitions/{number}/state")
        assert leadership["controller_epoch"] == epoch + 1, "its leaderships were moved by the new controller"


def create_topic(name: str) -> bytes:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    body = m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000).encode(4)
    header = struct.pack(">hhih", 19, 4, 7, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def test_a_live_brokers_lost_session_is_followed_by_another_registration(cluster: LocalCluster, eyes: Eyes) -> None:
    broker = next(number for number in cluster.brokers if number != cluster.controller())
    first = eyes.registration(broker)
    cluster.pause(broker)
    eventually(lambda: eyes.registration(broker) == -1, "the end of its session")
    cluster.resume(broker)
    eventually(lambda: eyes.registration(broker) > first, "its next registration")
    cluster.wait_until_ready()


def test_brokers_end_when_they_are_told_to_though_zookeeper_is_silent(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("silent")
    with (
        ZooKeeperServer(directory / "zookeeper") as server,
        LocalCluster(directory / "cluster", server.address, brokers=2, settings=FAST_SESSIONS) as cluster,
    ):
        cluster.wait_until_ready()
        server.pause()
        wish = socket.create_connection(("127.0.0.1", cluster.brokers[cluster.controller()].port), 5)
        wish.sendall(create_topic("nobody-can-write-this"))
        assert cluster.brokers[1].stop() == 0
        server.kill()
        assert cluster.brokers[2].stop() == 0
        wish.close()


def test_topics_are_made_while_the_ensemble_loses_its_leader_and_no_session_ends(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("ensemble")
    patient = {"zookeeper.session.timeout.ms": "30000"}
    with (
        ZooKeeperEnsemble(directory) as ensemble,
        LocalCluster(directory / "cluster", f"{ensemble.address}/c", brokers=2, settings=patient) as cluster,
    ):
        eventually(lambda: len(cluster.view().brokers) == 2, "two brokers")
        controller = cluster.controller()
        leader = ensemble.leader()
        for number in range(8):
            if number == 4:
                leader.kill()
            cluster.create_topic(f"topic-{number}", partitions=2, replicas=2)
        assert cluster.controller() == controller
        eyes = Eyes(f"{next(each for each in ensemble.servers if each is not leader).address}/c")
        assert sorted(eyes.client.get_children("/brokers/topics")) == [f"topic-{number}" for number in range(8)]
        assert eyes.epoch() == (1, 0)
        eyes.client.stop()
        eyes.client.close()
