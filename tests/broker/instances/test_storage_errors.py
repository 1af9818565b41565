"""What an instance's client reads of a produce that fails on the disk: its own names, whichever way it has taken."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.protocol import messages as m
from headrace.replication.partition_state import LeaderAndIsr
from headrace.types import BrokerId, LeaderEpoch
from tests.broker.instances.houses import Houses
from tests.broker.refusing_disk import refusing
from tests.eventually import eventually
from tests.wire import batch

NAME, TOPIC = "acme", "orders"


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[Houses]:
    with Houses(tmp_path, (Instance(NAME, "id"),)) as made:
        with made.ask(NAME) as asker:
            topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
            assert not asker.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics[0].error_code
            for number in range(2):
                assert not codes(asker.ask(produce([number]), 9))[0][1]
        yield made


def produce(numbers: list[int], *, timeout_ms: int = 10_000, topic_id: bytes | None = None) -> m.ProduceRequest:
    Data = m.ProduceRequest.TopicProduceData
    data = Data(
        name=TOPIC,
        partition_data=[
            m.ProduceRequest.PartitionProduceData(index=number, records=memoryview(batch([b"v"]))) for number in numbers
        ],
    )
    if topic_id is not None:
        data.topic_id = topic_id
    return m.ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data])


def codes(answer: Any) -> list[tuple[int, int, str | None]]:
    """The number, code and text of each partition; the topic has the client's name."""
    (topic,) = answer.responses
    assert (topic.name, topic.topic_id) in ((TOPIC, bytes(16)), ("", topic.topic_id))
    return [(each.index, each.error_code, each.error_message) for each in topic.partition_responses]


def partition(houses: Houses, number: int) -> Partition:
    return houses.broker.replicas.partitions[(f"{NAME}.{TOPIC}", number)]


@pytest.fixture(params=[7, 8, 9, 12, 13])
def version(request: pytest.FixtureRequest) -> int:
    """Before 8 there are no texts, and from 13 on ids in the place of names."""
    found: int = request.param
    return found


@pytest.fixture
def topic_id(houses: Houses, version: int) -> bytes | None:
    return houses.broker.metadata.topics[f"{NAME}.{TOPIC}"].id if version >= 13 else None


STORED = int(ErrorCode.NONE), None
FULL = f"{TOPIC}-1 could not be written: [Errno {errno.ENOSPC}] No space left on device"


@pytest.mark.parametrize("numbers", [[1], [0, 1]])
def test_a_disk_that_is_full(
    houses: Houses, version: int, topic_id: bytes | None, numbers: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Alone the batch takes the general way, behind another one the plain way. The log has the path, and the client
    has not."""
    with houses.ask(NAME) as asker, refusing(partition(houses, 1).log):
        answer = codes(asker.ask(produce(numbers, topic_id=topic_id), version))
    assert answer[:-1] == [(0, *STORED)] * (len(numbers) - 1)
    assert answer[-1] == (1, ErrorCode.KAFKA_STORAGE_ERROR, FULL if version >= 8 else None)
    directory = partition(houses, 1).log.directory
    (line,) = [each.getMessage() for each in caplog.records if "could not be written" in each.getMessage()]
    assert f"could not be written in {directory}: [Errno {errno.ENOSPC}] No space left on device" in line


@pytest.mark.parametrize("numbers", [[1], [0, 1]])
def test_a_data_directory_that_has_failed(
    houses: Houses, version: int, topic_id: bytes | None, numbers: list[int]
) -> None:
    log = partition(houses, 1).log
    assert log.directory.is_absolute()

    async def fail() -> None:
        log.fail(f"{log.partition} is in a data directory that failed: [Errno 5] it broke: '{log.directory}/0.log'")

    houses.run(fail)
    with houses.ask(NAME) as asker:
        answer = codes(asker.ask(produce(numbers, topic_id=topic_id), version))
    text = f"{TOPIC}-1 is in a data directory that failed: [Errno 5] it broke: 'log-dir/{TOPIC}-1/0.log'"
    assert answer[-1] == (1, ErrorCode.KAFKA_STORAGE_ERROR, text if version >= 8 else None)


@pytest.mark.parametrize("numbers", [[1], [0, 1]])
def test_a_data_directory_that_fails_while_a_produce_waits_for_a_follower(
    houses: Houses, version: int, topic_id: bytes | None, numbers: list[int]
) -> None:
    broker, found = houses.broker, partition(houses, 1)
    replicas = found.state.leader, BrokerId(7)

    async def be_followed() -> None:
        state, epoch = found.state, LeaderEpoch(found.state.leader_epoch + 1)
        state.apply(LeaderAndIsr(state.leader, epoch, replicas, 1, replicas), broker.now_ms())

    async def fail() -> None:
        found.log.fail(f"the disk of {found.log.directory} broke")
        broker.purgatory.touch(found.key)

    async def waits() -> bool:
        return found.key in broker.purgatory.watched

    houses.run(be_followed)
    with houses.ask(NAME) as asker:
        request = produce(numbers, topic_id=topic_id)
        asker.send(request, version)
        eventually(lambda: houses.run(waits), "the request to wait")
        houses.run(fail)
        answer = codes(asker.receive(request, version))
    assert answer == [*[(0, *STORED)] * (len(numbers) - 1), (1, ErrorCode.KAFKA_STORAGE_ERROR, None)]
