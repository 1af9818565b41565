"""What happens to whom, while a producer writes: nothing acknowledged under acks=all is lost, nothing is doubled under
idempotence.

    {clean stop, kill -9, bounce, SIGSTOP} x {leader, follower, controller, ZooKeeper}
        x {idempotent or not} x {no codec, zstd}

Each day has each fault once and each victim once, so in four days every fault meets every victim. The other two
dimensions are chosen so that in four days all pairs of values occur, and change then; the whole grid is marked `soak`.
Source: the grid of Apache Kafka's own system tests.
"""

import time
from collections.abc import Iterator
from itertools import product

import pytest

from tests import rotation
from tests.cluster.faults import FAULTS, do_to_broker, do_to_zookeeper, find_victim
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.zookeeper_server import ZooKeeperServer

VICTIMS = ("leader", "follower", "controller", "zookeeper")
IDEMPOTENT = (True, False)
CODECS = ("none", "zstd")

PARTITIONS = 3
DAYS = len(VICTIMS)
ROTATION = rotation.seed() // DAYS

Cell = tuple[str, str, bool, str]


def pairwise_cells(turn: int) -> Iterator[Cell]:
    """Each fault with each victim, and every pair of values of any two dimensions somewhere."""
    for i, fault in enumerate(FAULTS):
        for j, victim in enumerate(VICTIMS):
            yield fault, victim, IDEMPOTENT[(j + i // 2 + turn) % 2], CODECS[(i + j // 2 + turn // 2) % 2]


GRID = list(product(FAULTS, VICTIMS, IDEMPOTENT, CODECS))


def test_every_pair_occurs_whatever_the_rotation() -> None:
    for turn in range(4):
        cells = list(pairwise_cells(turn))
        assert len(cells) == len(FAULTS) * len(VICTIMS)
        for one, other in product(range(4), range(4)):
            if one < other:
                seen = {(cell[one], cell[other]) for cell in cells}
                assert seen == {(cell[one], cell[other]) for cell in GRID}
    assert {cell for turn in range(4) for cell in pairwise_cells(turn)} == set(GRID)


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize(
    ("fault", "victim"),
    [
        pytest.param(fault, victim, marks=rotation.unless_today((i + j) % DAYS, DAYS))
        for (i, fault), (j, victim) in product(enumerate(FAULTS), enumerate(VICTIMS))
    ],
)
def test_nothing_is_lost_nor_doubled(
    cluster: LocalCluster, zookeeper: ZooKeeperServer, fault: str, victim: str
) -> None:
    ((is_idempotent, codec),) = [cell[2:] for cell in pairwise_cells(ROTATION) if cell[:2] == (fault, victim)]
    print(f"rotation {ROTATION}: {is_idempotent=} {codec=}")
    go_through(cluster, zookeeper, (fault, victim, is_idempotent, codec))


@pytest.mark.soak
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("cell", GRID, ids=lambda cell: "-".join(map(str, cell)))
def test_the_whole_grid(cluster: LocalCluster, zookeeper: ZooKeeperServer, cell: Cell) -> None:
    go_through(cluster, zookeeper, cell)


def go_through(cluster: LocalCluster, zookeeper: ZooKeeperServer, cell: Cell) -> None:
    """One cell of the grid."""
    fault, victim, is_idempotent, codec = cell
    topic = f"{fault}-{victim}-{is_idempotent}-{codec}-{time.monotonic_ns()}".replace(" ", "-")
    cluster.create_topic(topic, PARTITIONS, 3)
    with VerifyingProducer(
        cluster.bootstrap, topic, partitions=PARTITIONS, per_second=600, is_idempotent=is_idempotent, codec=codec
    ) as producer:
        producer.wait_for(300)
        if victim == "zookeeper":
            do_to_zookeeper(zookeeper, fault)
        else:
            do_to_broker(cluster, find_victim(cluster, victim, topic), fault, producer)
        producer.wait_for(600)
        cluster.wait_until_ready()
        producer.wait_for(300)
    assert not producer.failed, f"{len(producer.failed)} values failed: {next(iter(producer.failed.values()))}"
    report = verify(cluster.bootstrap, topic, producer)
    assert report.acknowledged >= 1200
    assert not report.faults(), f"{report.faults()}\n{cluster.logs()}"
