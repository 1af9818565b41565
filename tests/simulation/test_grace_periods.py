"""A grace period ends by the clock of the controller. The simulator waits for a clock that is behind, and no longer."""

from collections.abc import Iterator

import pytest

from headrace.instances.definition import Instance, InstanceState
from tests.simulation.cluster import SECOND_US, Cluster, started
from tests.simulation.plan import Plan, with_instances
from tests.simulation.tenancy import LODGER


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(1, with_instances(Plan(replicas=3, min_insync_replicas=1, partitions=1)))
    started(cluster)
    assert cluster.scheduler.run(cluster.led_and_in_sync, 10 * SECOND_US)
    yield cluster
    cluster.scheduler.dispose()


def grace_left_ms(cluster: Cluster, ahead_ms: int | None, skews_ms: tuple[int, ...]) -> int:
    """What is left of a grace period that ends `ahead_ms` after the true time; the last skew is the controller's."""
    controller = cluster.controller()
    assert controller is not None and controller.process is not None
    cluster.nemesis._skews_ms = {0}
    for skew_ms in skews_ms:
        cluster.nemesis.skew(controller, skew_ms)
    now_ms = controller.process.now_ms() - controller.clock_skew_ms
    until_ms = None if ahead_ms is None else now_ms + ahead_ms
    cluster.tenancy.definitions[LODGER] = Instance(LODGER, "id", state=InstanceState.DELETING, deleted_at_ms=until_ms)
    return cluster.tenancy.grace_left_us() // 1000


def test_a_deletion_that_the_controller_s_clock_has_not_reached_is_waited_for(cluster: Cluster) -> None:
    assert grace_left_ms(cluster, -10_000, (-25_000,)) == 15_000
    assert grace_left_ms(cluster, 12_000, (20_000, -25_000)) == 37_000


@pytest.mark.parametrize("skews_ms", [(0,), (25_000,), (-25_000, 0)])
def test_a_deletion_whose_time_has_come_is_not_waited_for(cluster: Cluster, skews_ms: tuple[int, ...]) -> None:
    assert grace_left_ms(cluster, -1, skews_ms) == 0


def test_a_grace_period_that_no_clock_explains_is_not_waited_for(cluster: Cluster) -> None:
    assert grace_left_ms(cluster, 600_000, (0,)) == 0
    assert grace_left_ms(cluster, 600_000, (-25_000, 5_000)) == 30_000


def test_nothing_is_waited_for_without_a_deletion(cluster: Cluster) -> None:
    assert grace_left_ms(cluster, None, (-25_000,)) == 0
