"""A broker that takes connections and answers nothing, as one that was paused does, is asked last."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Producer
from headrace.client.consumer import commits
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from tests.client.proxies import PausableProxy, proxied
from tests.eventually import WITHIN_SECONDS, eventually


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


@pytest.mark.slow
def test_close_gives_up_the_last_commit_to_a_silent_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "_LAST_MS", 500)
    with proxied(tmp_path, PausableProxy) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"
        with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            admin.create_topic("t", 1, 1)
            producer.send("t", b"x").result(WITHIN_SECONDS)
        consumer = Consumer(
            bootstrap, group_id="g", auto_offset_reset="earliest", default_api_timeout_ms=10_000_000,
            session_timeout_ms=6_000, heartbeat_interval_ms=1_000,
        )  # fmt: skip
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(200), "the record")
        proxy.goes_on.clear()
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(WITHIN_SECONDS)
        assert not closing.is_alive()
    assert "positions were not committed" in caplog.text
