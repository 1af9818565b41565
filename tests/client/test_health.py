"""How a cluster is, from metadata made by hand."""

from headrace.client.core.metadata import ClusterView, PartitionInfo, TopicInfo
from headrace.client.core.settings import Address
from headrace.client.operations.health import health_of, reasons, shares_of
from headrace.errors import ErrorCode
from headrace.types import BrokerId, LeaderEpoch, TopicPartition


def view(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]], live: tuple[int, ...] = (1, 2, 3)) -> ClusterView:
    infos = tuple(
        PartitionInfo(
            number,
            BrokerId(leader),
            LeaderEpoch(0),
            tuple(map(BrokerId, replicas)),
            tuple(map(BrokerId, isr)),
            tuple(BrokerId(each) for each in replicas if each not in live),
        )
        for number, (leader, replicas, isr) in enumerate(partitions)
    )
    brokers = {BrokerId(number): Address("127.0.0.1", 9000 + number) for number in live}
    topic = TopicInfo("t", bytes(16), False, ErrorCode.NONE, infos)
    return ClusterView("c", BrokerId(1), brokers, {}, {"t": topic})


def part(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_a_cluster_that_is_as_it_should_be() -> None:
    well = view((1, (1, 2), (1, 2)), (2, (2, 3), (3, 2)))
    health = health_of(well, {"t": 2})
    assert health.is_ready
    assert health == ((), (), (), (), ())
    assert reasons(well, {}, {}) == {}


def test_everything_that_can_be_wrong() -> None:
    ill = view((-1, (3,), (3,)), (1, (1, 2), (1,)), (2, (1, 2), (1, 2)), (1, (1, 3), (1,)), live=(1, 2))
    health = health_of(ill, {"t": 2})
    assert not health.is_ready
    assert health.offline == (part(0),)
    assert health.under_min_isr == (part(1), part(3))
    assert health.under_replicated == (part(1), part(3))
    assert health.led_elsewhere == (part(2),)
    assert health.missing_brokers == (3,)
    assert health_of(ill, {}).under_min_isr == ()


def test_each_reason_says_what_to_do() -> None:
    ill = view(
        (-1, (3,), (3,)), (1, (1, 2), (1,)), (1, (1, 3), (1,)), (1, (1, 2), (1,)), (1, (1, 2), (1,)), live=(1, 2)
    )
    sizes = {(BrokerId(1), part(1)): 5000, (BrokerId(2), part(1)): 4000, (BrokerId(2), part(4)): 1}
    found = reasons(ill, sizes, {BrokerId(2): ["/disk/b"]})
    assert found == {
        part(0): "broker 3 is down and has all committed records: start it",
        part(1): "broker 2 is catching up: about 1000 bytes behind leader 1",
        part(2): "broker 3 is down: start it, or move its replicas away with: headrace cluster drain 3",
        part(3): "broker 2 has lost the log directory /disk/b: replace the disk and restart the broker",
        part(4): "broker 2 has not reported its log end offset",
    }


def test_nobody_leads_though_brokers_are_there() -> None:
    found = reasons(view((-1, (1, 2), (1,))), {}, {})
    assert found[part(0)] == (
        "broker 1 is up and can lead: wait for the controller, or see the controller's log; "
        "broker 2 is up but not in sync, so it cannot lead"
    )


def test_shares() -> None:
    shares = shares_of(view((1, (1, 2), (1,)), (1, (1, 4), (1,))))
    assert shares[BrokerId(1)] == (2, 2, 2)
    assert shares[BrokerId(2)] == (0, 1, 0)
    assert shares[BrokerId(4)] == (0, 1, 0)
    assert shares[BrokerId(3)] == (0, 0, 0)
