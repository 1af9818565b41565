"""The nodes by which clients of Kafka 0.7 find brokers: contents, numbers, and settings that are wrong."""

import pytest

from headrace.broker.kafka07.discovery_nodes import (
    broker_path,
    count_path,
    decode_numbers,
    encode_broker,
    encode_numbers,
    grown,
    not_led,
)
from headrace.broker.kafka07.discovery_start import address_for_07, chroot_of
from headrace.config import BrokerConfig, parse_broker
from headrace.errors import InvalidConfig
from headrace.metadata.image import PartitionMetadata, TopicMetadata
from headrace.metadata.model import Endpoint
from headrace.metadata.znodes import CorruptNode
from headrace.network.listeners import Listener
from headrace.types import BrokerId, LeaderEpoch

ONE, TWO = BrokerId(1), BrokerId(2)
ID, OTHER_ID = bytes(range(16)), bytes(16)


def topic(*leaders: tuple[int, int]) -> TopicMetadata:
    """A topic by the preferred and the present leader of each partition."""
    partitions = {
        number: PartitionMetadata(
            number, BrokerId(leader), LeaderEpoch(0), (BrokerId(first), BrokerId(3 - first)), (BrokerId(leader),), ()
        )
        for number, (first, leader) in enumerate(leaders)
    }
    return TopicMetadata("t", ID, partitions)


def test_nodes_are_those_of_kafka_0_7() -> None:
    assert broker_path(ONE) == "/brokers/ids/1"
    assert count_path("clicks", TWO) == "/brokers/topics/clicks/2"
    assert encode_broker("10.0.0.1", 9093, 1_320_943_265_233) == b"10.0.0.1-1320943265233:10.0.0.1:9093"


def test_a_broker_numbers_what_it_leads_as_the_preferred_leader() -> None:
    shared = topic((1, 1), (2, 2), (2, 1), (1, 1))
    assert (grown((), shared, ONE), grown((), shared, TWO)) == ((0, 3), (1,))


def test_numbers_stay_when_partitions_are_added_come_back_or_are_moved() -> None:
    assert grown((0, 3), topic((1, 1), (2, 2), (2, 2), (1, 1), (1, 1)), ONE) == (0, 3, 4)
    assert grown((1,), topic((1, 1), (2, 2), (2, 2)), TWO) == (1, 2), "2 was led by the other before"
    moved = topic((2, 2), (1, 1), (1, 1), (1, 1))
    assert grown((0, 3), moved, ONE) == (0, 3, 1, 2)
    assert not_led((0, 3, 1, 2), moved, ONE) == [0]
    assert not_led((0, 9), topic((1, 1)), ONE) == [9]


def test_numbers_are_of_one_topic_and_not_of_the_next_of_its_name() -> None:
    assert encode_numbers(ID, (0, 3)) == b'{"version":1,"topic_id":"%s","partitions":[0,3]}' % ID.hex().encode()
    assert decode_numbers(encode_numbers(ID, (0, 3)), ID) == (0, 3)
    assert decode_numbers(encode_numbers(ID, (0, 3)), OTHER_ID) == ()
    for data in (b"", b"[]", b'{"topic_id":"%s"}', b'{"topic_id":"%s","partitions":[1,1]}', b'{"partitions":["a"]}'):
        with pytest.raises(CorruptNode):
            decode_numbers(data.replace(b"%s", ID.hex().encode()), ID)


@pytest.mark.parametrize(
    ("chroot", "connect", "root"),
    [("/", "zk:2181/kafka", ""), ("/old", "zk:2181", "/old"), ("/old/07/", "a:1,b:2/old", "/old/07")],
)
def test_the_chroot_is_a_path_of_the_whole_ensemble(chroot: str, connect: str, root: str) -> None:
    assert chroot_of(_config(chroot, connect)) == root


@pytest.mark.parametrize(
    ("chroot", "connect", "said"),
    [
        ("/", "zk:2181", "keeps the cluster's own nodes"),
        ("/kafka/", "zk:2181/kafka", "keeps the cluster's own nodes"),
        ("old", "zk:2181", "'old' is not a path such as /kafka07"),
        ("/old//07", "zk:2181", "'/old//07' is not a path"),
        ("/old", "", "requires zookeeper.connect"),
    ],
)
def test_a_chroot_that_cannot_be_is_named(chroot: str, connect: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        chroot_of(_config(chroot, connect))


def _config(chroot: str, connect: str) -> BrokerConfig:
    return parse_broker({"headrace.kafka07.zookeeper.chroot": chroot, "zookeeper.connect": connect})


def test_clients_are_told_an_address_that_they_can_connect_to() -> None:
    advertised = (Endpoint("PLAINTEXT", "kafka.example", 9092),)
    today = Listener("PLAINTEXT", "0.0.0.0", 9092)
    old = Listener("OLD", "10.0.0.1", 9093, "KAFKA07")
    assert address_for_07((today, old), advertised) == ("10.0.0.1", 9093)
    for host in ("0.0.0.0", "", "::"):
        assert address_for_07((today, old._replace(host=host)), advertised) == ("kafka.example", 9093)
    with pytest.raises(InvalidConfig, match="requires a listener of protocol KAFKA07"):
        address_for_07((today,), advertised)
    with pytest.raises(InvalidConfig, match="cannot read the address fe80::1"):
        address_for_07((old._replace(host="fe80::1"),), advertised)
