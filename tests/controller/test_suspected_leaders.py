"""A broker that refuses the controller's connections, and is not fenced, is elected only where no other may lead."""

from pathlib import Path

import pytest

from headrace.controller.decisions.elections import elect, elect_among, elect_for_shutdown, elect_new
from headrace.controller.decisions.fencing import Suspicion
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.errors import ErrorCode
from headrace.metadata import znodes
from headrace.metadata.model import Broker, PartitionLeadership, Replicas
from headrace.metastore.store import ensure_path
from headrace.types import BrokerId, LeaderEpoch, TopicPartition
from tests.controller.paper_brokers import Cluster, cluster_in, create
from tests.controller.test_leaders import alter, epoch_of, only

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
REPLICAS = Replicas((TWO, THREE))
LIVE = {each: Broker(each, (), epoch=1, directory="d") for each in (ONE, TWO, THREE)}


def led_by(leader: BrokerId, *isr: BrokerId) -> PartitionLeadership:
    return PartitionLeadership(leader, LeaderEpoch(0), isr, 1, mzxid=2)


def test_every_election_passes_over_a_suspected_broker_and_takes_it_as_the_last_one() -> None:
    both, alone = Replicas((TWO, THREE)), Replicas((TWO,))
    gone = led_by(BrokerId(9), TWO, THREE)
    for suspected, leader in (((), TWO), ((TWO,), THREE), ((TWO, THREE), TWO)):
        found = (
            elect_new(both, LIVE, 1, suspected=suspected),
            elect(both, gone, LIVE, 1, suspected=suspected),
            elect(both, led_by(BrokerId(9), BrokerId(9)), LIVE, 1, unclean=True, suspected=suspected),
            elect_for_shutdown(both, led_by(ONE, ONE, TWO, THREE), LIVE, 1, (ONE,), suspected=suspected),
            elect_among((TWO, THREE), led_by(ONE, ONE, TWO, THREE), LIVE, 1, suspected=suspected),
        )
        assert [each and each.leader for each in found] == [leader] * 5, suspected
    only_replica = elect_new(alone, LIVE, 1, suspected=(TWO,))
    assert only_replica is not None and (only_replica.leader, only_replica.isr) == (TWO, (TWO,))


def test_a_suspected_broker_stays_the_leader_that_it_is() -> None:
    assert elect(REPLICAS, led_by(TWO, TWO, THREE), LIVE, 1, suspected=(TWO,)) is None


async def suspect(cluster: Cluster, number: int, observer: int) -> str:
    """Names the suspicion's node."""
    of, by = await epoch_of(cluster, number), await epoch_of(cluster, observer)
    path = znodes.suspicion(Suspicion(BrokerId(number), of, BrokerId(observer), by).name)
    await ensure_path(cluster.store, znodes.SUSPICIONS)
    await cluster.store.create(path, ephemeral=True)
    await cluster.settle()
    return path


@pytest.mark.parametrize("witnesses", [(1,), (1, 3)])
async def test_no_leadership_is_given_back_to_a_suspected_broker(tmp_path: Path, witnesses: tuple[int, ...]) -> None:
    """Broker 2 is the only replica of one partition, so that fencing it would help nobody."""
    async with cluster_in(tmp_path, can_fence=True) as cluster:
        await create(cluster, "alone", {0: (2,)})
        await create(cluster, "t", {0: (2, 3)})
        t = TopicPartition("t", 0)
        await cluster.go(2)
        await cluster.come(2)
        assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.NONE
        assert (await cluster.state("t")).leader == 3
        nodes = [await suspect(cluster, 2, observer) for observer in witnesses]
        outcomes = await cluster.controller.elect_leaders([t], ElectionKind.PREFERRED)
        assert [error and error.code for error in outcomes.values()] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
        await create(cluster, "new", {0: (2, 3)})
        assert (await cluster.state("new")).leader == 3
        assert (await cluster.state("alone")).leader == 2
        for node in nodes:
            await cluster.store.delete(node)
        await cluster.settle()
        assert await cluster.controller.elect_leaders([t], ElectionKind.PREFERRED) == {t: None}
        assert (await cluster.state("t")).leader == 2


async def test_a_suspicion_of_others_alone_keeps_no_broker_from_leading(tmp_path: Path) -> None:
    async with cluster_in(tmp_path, can_fence=True) as cluster:
        await suspect(cluster, 2, 3)
        await create(cluster, "t", {0: (2, 3)})
        assert (await cluster.state("t")).leader == 2
