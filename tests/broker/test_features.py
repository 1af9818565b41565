"""The finalized features follow the registrations, and a registration that cannot be read ends no broker."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.cluster.features import Features
from headrace.errors import ErrorCode, known_code
from headrace.metadata import znodes
from headrace.metadata.deltas import MetadataDelta
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.model import Broker, Endpoint
from headrace.protocol import messages as m
from headrace.types import BrokerId

OURS = Broker(BrokerId(1), (Endpoint("PLAINTEXT", "a", 1),), directory="d", supports_fencing=True)
THEIRS = OURS._replace(directory=None, supports_fencing=False)


async def levels(*registrations: tuple[bytes, int]) -> list[tuple[int, int]]:
    """The level and the epoch after each registration of the cluster's only broker (data, czxid)."""
    nodes = iter(registrations)
    listeners: list[Any] = []

    async def get(path: str) -> object:
        data, czxid = next(nodes)
        return SimpleNamespace(data=data, czxid=czxid)

    tasks: list[asyncio.Task[None]] = []
    metadata = SimpleNamespace(brokers={BrokerId(1): OURS}, topics={}, on_change=listeners.append)
    features = Features(
        cast(Any, SimpleNamespace(get=get)),
        cast(Any, metadata),
        lambda work: tasks.append(asyncio.ensure_future(work)),
        is_alone=False,
    )
    found = []
    for _ in registrations:
        listeners[0](MetadataDelta(brokers_changed=frozenset({BrokerId(1)})))
        await tasks.pop()
        found.append((features.transaction_version, features.epoch))
    return found


async def test_the_level_follows_the_brokers_and_the_epoch_never_falls() -> None:
    ours, theirs = znodes.encode_broker(OURS, 0), znodes.encode_broker(THEIRS, 0)
    assert await levels((ours, 5), (theirs, 9), (ours, 7)) == [(2, 5), (0, 9), (2, 9)]


async def test_a_registration_that_cannot_be_read_sets_level_0() -> None:
    ours = znodes.encode_broker(OURS, 0)
    assert await levels((ours, 5), (b"{", 6), (ours, 7)) == [(2, 5), (0, 5), (2, 7)]


class Cluster:
    """Brokers 1 (headrace) and 2 (Apache Kafka) as broker 1 sees them, and one partition."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.registered: dict[int, Broker] = {}
        self.tasks: list[asyncio.Task[object]] = []
        self.reads = 0
        store = SimpleNamespace(get=self.get)
        self.features = Features(cast(Any, store), self.cache, self.spawn, is_alone=False)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """As the broker's task group."""
        self.tasks.append(asyncio.ensure_future(work))

    async def get(self, path: str) -> object:
        """A registration."""
        self.reads += 1
        number = int(path.rpartition("/")[2])
        return SimpleNamespace(data=znodes.encode_broker(self.registered[number], 0), czxid=number)

    async def level(self, brokers: dict[int, Broker], replicas: list[int]) -> int:
        """The level after an UpdateMetadata with these live brokers and replicas of the partition."""
        self.registered = brokers
        state = m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=0, leader=1, replicas=replicas, isr=[1]
        )
        topic = m.UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name="t", topic_id=bytes(16), partition_states=[state]
        )
        live = [
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=number,
                endpoints=[
                    m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                        listener="PLAINTEXT", host="a", port=number, security_protocol=0
                    )
                ],
            )
            for number in brokers
        ]
        self.cache.apply(m.UpdateMetadataRequest(controller_id=1, topic_states=[topic], live_brokers=live))
        await asyncio.gather(*self.tasks)
        return self.features.transaction_version


async def test_an_apache_kafka_broker_that_is_away_counts_as_long_as_it_has_replicas() -> None:
    cluster = Cluster()
    assert await cluster.level({1: OURS, 2: THEIRS}, [1, 2]) == 0
    assert await cluster.level({1: OURS}, [1, 2]) == 0
    assert await cluster.level({1: OURS, 2: THEIRS}, [1, 2]) == 0
    assert await cluster.level({1: OURS}, [2, 1]) == 0
    reads = cluster.reads
    assert await cluster.level({1: OURS}, [2]) == 0
    assert cluster.reads == reads  # the partition still says so
    assert await cluster.level({1: OURS}, [1]) == 2


async def test_headrace_in_the_place_of_an_apache_kafka_broker_raises_the_level() -> None:
    cluster = Cluster()
    assert await cluster.level({1: OURS, 2: THEIRS}, [1, 2]) == 0
    assert await cluster.level({1: OURS}, [1, 2]) == 0
    assert await cluster.level({1: OURS, 2: OURS}, [1, 2]) == 2
    assert await cluster.level({1: OURS}, [1, 2]) == 2  # one of headrace may be away


def test_a_code_of_a_newer_release_is_an_unknown_error() -> None:
    assert known_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert known_code(12_345) is ErrorCode.UNKNOWN_SERVER_ERROR
