"""A broker that takes connections and answers nothing, as one that was paused does, is asked last."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from tests.broker.frame_proxy import FrameProxy, Requests, as_sent
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer, free_ports


class PausableProxy(FrameProxy):
    """Another address of a broker; while it is paused, nothing that is sent there reaches anybody."""

    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port, self._counted)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.connections = self.requests = 0

    def _counted(self) -> Requests:
        self.connections += 1
        return self._passed

    def _passed(self, frame: bytes) -> bytes:
        self.requests += 1
        self.goes_on.wait()
        return as_sent(frame)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[PausableProxy]:
    port, own_port = free_ports(2)
    server = HeadraceServer(tmp_path / "data", listen=f"127.0.0.1:{own_port}").start()
    proxy = PausableProxy(port, own_port)
    yield proxy
    proxy.goes_on.set()
    proxy.close()
    server.stop()


def test_after_silence_the_other_brokers_are_asked_and_the_silent_one_is_left_alone(proxy: PausableProxy) -> None:
    settings = ClientSettings(request_timeout_ms=1_000)
    with Cluster(f"127.0.0.1:{proxy.port}", settings) as cluster:
        cluster.refresh(None)
        proxy.goes_on.clear()
        for _ in range(2):
            cluster.refresh(None, Deadline.after_ms(WITHIN_SECONDS * 1000))
        assert (proxy.connections, cluster.silent) == (1, set(cluster.bootstrap))


def test_silence_of_one_connection_spares_the_others_their_question(proxy: PausableProxy) -> None:
    with Cluster(f"127.0.0.1:{proxy.port}") as cluster:
        cluster.refresh(None)
        deadline = Deadline.after_ms(WITHIN_SECONDS * 1000)
        cluster.dial(cluster.bootstrap[0], deadline).give_up()
        asked = proxy.requests
        cluster.refresh(None)
        assert proxy.requests == asked
        cluster.dial(cluster.bootstrap[0], deadline).close()
        assert not cluster.silent, "it has answered"
