"""A broker that takes connections and answers nothing, as one that was paused does, is asked last."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from tests.client.proxies import PausableProxy, proxied
from tests.eventually import WITHIN_SECONDS


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[PausableProxy]:
    """Another address of a broker."""
    with proxied(tmp_path, PausableProxy, is_advertised=False) as proxy:
        yield proxy


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
