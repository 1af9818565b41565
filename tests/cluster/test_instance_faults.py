"""What happens to whom, while two instances are used up to their limits: nothing acknowledged is lost, neither sees
anything of the other, and neither gets more than its limit and the shares of brokers that cannot be reached.

    {kill -9, SIGSTOP, network partition} x {leader, controller} x {idempotent or not}

Both have topics, groups and client ids of the same names; the records of each are numbers of its own. Each run of the
tests does two cells, others the next day; the whole grid is marked `soak`.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.types import TopicPartition
from tests.cluster.conftest import FAST_SESSIONS
from tests.cluster.faults import AWAY_SECONDS, PAUSE_SECONDS
from tests.cluster.limited_tenant import KIB, Tenant
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.eventually import eventually
from tests.rotation import seed
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

FAULTS = ("kill", "pause", "partition")
VICTIMS = ("leader", "controller")
IDEMPOTENT = (True, False)
GRID = [(fault, victim, is_idempotent) for is_idempotent, victim, fault in product(IDEMPOTENT, VICTIMS, FAULTS)]
CELLS_A_DAY = 2
ROTATION = seed()

LEDGER, GROUP = "ledger", "app"
PARTITIONS = 3
LIMIT = 200 * KIB
BURST_S = 0.5
F_MAX = 1 / 3
"""The share of the partitions that one broker leads, of which one is out of reach at a time."""
PER_SECOND = 100
APART = 1_000_000
"""Between the first values of the two instances."""
COMMITS = 5
SETTINGS = ClientSettings(request_timeout_ms=5_000, connect_timeout_ms=1_000, api_timeout_ms=60_000)

Cell = tuple[str, str, bool]


def cells_of(rotation: int) -> list[Cell]:
    """Those of one day."""
    first = rotation * CELLS_A_DAY
    return [GRID[(first + number) % len(GRID)] for number in range(CELLS_A_DAY)]


def test_every_cell_has_its_day() -> None:
    assert {cell for rotation in range(len(GRID)) for cell in cells_of(rotation)} == set(GRID)


@pytest.fixture(scope="module")
def proxied(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that can be cut off from each other."""
    chroot = zookeeper.chroot("instance-faults")
    with LocalCluster(tmp_path_factory.mktemp("proxied"), chroot, settings=FAST_SESSIONS, proxies=True) as cluster:
        yield cluster


@pytest.mark.parametrize("number", range(CELLS_A_DAY))
def test_instances_stay_apart_and_within_their_limits(proxied: LocalCluster, number: int) -> None:
    cell = cells_of(ROTATION)[number]
    print(f"rotation {ROTATION}: {cell=}")
    go_through(proxied, cell)


@pytest.mark.soak
@pytest.mark.parametrize("cell", GRID, ids=lambda cell: "-".join(map(str, cell)))
def test_the_whole_grid(proxied: LocalCluster, cell: Cell) -> None:
    go_through(proxied, cell)


class Side:
    """One of the two instances, with clients that use it up to its limit, and one that keeps count."""

    def __init__(self, cluster: LocalCluster, number: int, *, is_idempotent: bool) -> None:
        self.tenant = Tenant(cluster, bytes_in=LIMIT, burst_seconds=BURST_S)
        self.bootstrap = ",".join(self.tenant.addresses.values())
        with Cluster(self.bootstrap, SETTINGS) as own:
            Admin(own).create_topic(LEDGER, PARTITIONS, 3, {"min.insync.replicas": "2"})
        self.first = number * APART
        self.producer = VerifyingProducer(
            self.bootstrap,
            LEDGER,
            partitions=PARTITIONS,
            per_second=PER_SECOND,
            is_idempotent=is_idempotent,
            first=self.first,
        )
        self.committed = -1

    @property
    def produced(self) -> int:
        """Bytes that were acknowledged to the clients that use the limit up."""
        return sum(self.tenant.produced.values())

    def commit(self) -> None:
        """Commits an offset of its own of the group."""
        wanted = max(self.first, self.committed) + 1
        with Cluster(self.bootstrap, SETTINGS) as own:
            GroupAdmin(own).commit(GROUP, {TopicPartition(LEDGER, 0): wanted})
        self.committed = wanted

    def check(self, logs: str) -> None:
        """Nothing of it is lost, and nothing of the other is here."""
        report = verify(self.bootstrap, LEDGER, self.producer)
        assert not self.producer.failed, next(iter(self.producer.failed.values()))
        assert report.acknowledged > 0
        assert not report.faults(), f"{report.faults()}\n{logs}"
        with Cluster(self.bootstrap, SETTINGS) as own:
            assert {each.name for each in Admin(own).list_topics()} == {LEDGER, "orders"}
            assert {each.group_id for each in GroupAdmin(own).list_groups()} <= {GROUP, "verifying-consumer"}
            assert GroupAdmin(own).offsets(GROUP) == {TopicPartition(LEDGER, 0): self.committed}


def go_through(cluster: LocalCluster, cell: Cell) -> None:
    """One cell of the grid."""
    fault, victim, is_idempotent = cell
    cluster.make_whole()
    sides = [Side(cluster, number, is_idempotent=is_idempotent) for number in (1, 2)]
    with ThreadPoolExecutor(2 * len(cluster.brokers)) as pool:
        try:
            with sides[0].producer, sides[1].producer:
                for side in sides:
                    for broker in cluster.brokers:
                        pool.submit(side.tenant.produce_to(broker))
                    side.producer.wait_for(PER_SECOND)
                    side.commit()
                broker = cluster.controller()
                if victim == "leader":
                    broker = cluster.leader(f"{sides[0].tenant.name}.{LEDGER}")
                began, before = time.monotonic(), [side.produced for side in sides]
                _strike(cluster, broker, fault, sides)
                for _ in range(COMMITS):
                    for side in sides:
                        side.commit()
                        side.producer.wait_for(PER_SECOND)
                elapsed = time.monotonic() - began
                _check_limits(sides, before, elapsed, cluster)
        finally:
            for side in sides:
                side.tenant.stop()
    cluster.make_whole()
    for side in sides:
        side.check(cluster.logs())
        side.tenant.delete()


def _strike(cluster: LocalCluster, broker: int, fault: str, sides: list[Side]) -> None:
    """The fault, and its end."""
    others = [each for each in cluster.brokers if each != broker]
    if fault == "kill":
        cluster.brokers[broker].kill()
        time.sleep(AWAY_SECONDS)
        cluster.wait_until_present(others)
    elif fault == "pause":
        cluster.pause(broker)
        time.sleep(PAUSE_SECONDS)  # longer than a session, and than a lease
    else:
        for other in others:
            cluster.cut(broker, other)
        time.sleep(PAUSE_SECONDS)
    try:
        if fault != "partition":  # a leader that is cut off, but has its session, takes no write until the ISR shrinks
            for side in sides:
                side.producer.wait_for(PER_SECOND)
    finally:
        if fault == "kill":
            cluster.brokers[broker].restart()
        elif fault == "pause":
            cluster.resume(broker)
        else:
            for other in others:
                cluster.heal(broker, other)


def _check_limits(sides: list[Side], before: list[int], elapsed: float, cluster: LocalCluster) -> None:
    """Rates add up to the limit, and F of the broker that was out of reach. The bursts of all brokers, and of the one
    that began again, come on top, and what was on its way."""
    most = LIMIT * (1 + F_MAX) * elapsed * 1.05 + LIMIT * BURST_S * (len(cluster.brokers) + 1) + LIMIT
    for side, at_first in zip(sides, before, strict=True):
        taken = side.produced - at_first
        assert taken <= most, f"{taken} bytes in {elapsed:.1f} s, at most {most:.0f}\n{side.tenant.flow()}"
    for side in sides:
        eventually(lambda side=side: _is_shared_out(side), "the limit to be shared out", state=side.tenant.flow)  # type: ignore[misc]


def _is_shared_out(side: Side) -> bool:
    """Whether the controller allots the limit, and no more."""
    shared = side.tenant.shared_out()
    return bool(shared) and sum(each["allotted"] for each in shared.values()) <= LIMIT * 1.001
