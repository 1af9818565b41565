"""Three brokers on an ensemble of three: its leader is stopped, killed, restarted and paused while a producer writes.

One column of the grid of `test_faults.py`, with more than one server to be left with: sessions move to another server
and live on, and leaders lead on meanwhile.
"""

import time
from collections.abc import Iterator

import pytest

from tests import rotation
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.faults import FAULTS, PAUSE_SECONDS
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_faults import CODECS, IDEMPOTENT, PARTITIONS, ROTATION
from tests.cluster.verifying import VerifyingProducer, verify
from tests.zookeeper_server import ZooKeeperEnsemble, missing_tools

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers."""
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as servers:
        yield servers


@pytest.fixture(scope="module")
def cluster(ensemble: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers on them."""
    with LocalCluster(tmp_path_factory.mktemp("brokers"), ensemble.address, settings=FAST_SESSIONS) as brokers:
        yield brokers


@pytest.mark.parametrize("fault", rotation.in_turn(*FAULTS, a_day=2))
def test_the_leader_of_the_ensemble_goes_while_a_producer_writes(
    cluster: LocalCluster, ensemble: ZooKeeperEnsemble, fault: str
) -> None:
    number = FAULTS.index(fault)
    is_idempotent, codec = IDEMPOTENT[(number // 2 + ROTATION) % 2], CODECS[(number // 2 + ROTATION // 2) % 2]
    print(f"rotation {ROTATION}: {is_idempotent=} {codec=}")
    cluster.make_whole()
    topic = f"ensemble-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    with VerifyingProducer(
        cluster.bootstrap, topic, partitions=PARTITIONS, per_second=600, is_idempotent=is_idempotent, codec=codec
    ) as producer:
        producer.wait_for(300)
        lost = ensemble.leader()
        if fault == "pause":
            lost.pause()
            time.sleep(PAUSE_SECONDS)
        elif fault == "kill":
            lost.kill()
        else:
            lost.stop()
        if fault != "bounce":
            producer.wait_for(600)
            # The two that are left take wishes, which an ensemble does not before it has a leader.
            cluster.create_topic(f"{topic}-later", 1, 3)
        if fault == "pause":
            lost.resume()
        else:
            lost.start()
        producer.wait_for(300)
        cluster.wait_until_ready()
    assert not producer.failed, next(iter(producer.failed.values()))
    report = verify(cluster.bootstrap, topic, producer)
    assert report.acknowledged >= 600
    assert not report.faults(), f"{report.faults()}\n{cluster.logs()}"
