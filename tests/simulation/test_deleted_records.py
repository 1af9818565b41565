"""Deleted records stay deleted: DeleteRecords is answered when every live replica has deleted them, and not before."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.simulation.broker import SimBroker
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster import SECOND_US, Cluster, started
from tests.simulation.plan import Plan

EVENTS = TopicPartition(Cluster.topic, 0)
RECORDS = 20


class Scene:
    """Three brokers, and a partition with some records that nobody writes to any more."""

    def __init__(self, seed: int, *, is_plain: bool) -> None:
        disks = frozenset({1, 2, 3} if is_plain else ())
        self.cluster = Cluster(seed, Plan(partitions=1, producers=(), readers=0, plain_disks=disks))
        started(self.cluster)
        self.client = Client(self.cluster, "client")
        producer = Producer(self.client, "p", acks=-1, is_idempotent=False, pace_ms=0)
        assert self.result_of(producer.send(0, RECORDS)) is True
        self.cluster.scheduler.run_for(SECOND_US)

    def leader(self) -> SimBroker:
        """The broker that leads the partition, and knows it."""
        assert self.cluster.scheduler.run(self._has_leader, 15 * SECOND_US), str(self.cluster.timeline)
        return self.cluster.brokers[self.cluster.leaderships()[0].leader]

    def _has_leader(self) -> bool:
        state = self.cluster.leaderships()[0]
        parts = self.cluster.brokers[state.leader].parts if state.has_leader else None
        found = parts.replicas.find(EVENTS) if parts is not None else None
        return found is not None and found.is_leader and found.leader_epoch == state.leader_epoch

    def result_of(self, work: Any) -> Any:
        """Runs a coroutine of the client to its end."""
        done: list[Any] = []

        async def run() -> None:
            done.append(await work)

        self.client.process.call(lambda: self.client.process.loop.create_task(run()))
        assert self.cluster.scheduler.run(lambda: bool(done), 10 * SECOND_US), str(self.cluster.timeline)
        return done[0]

    def delete(self, offset: int, timeout_ms: int = 5_000) -> tuple[ErrorCode, int]:
        """Deletes the records before an offset; the answer's error and low watermark."""
        wanted = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=EVENTS.topic, partitions=[wanted])
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        answer = self.result_of(
            self.client.ask(self.leader().number, request, m.DeleteRecordsResponse, 2, timeout_ms + 2_000)
        )
        told = answer.topics[0].partitions[0]
        return ErrorCode(told.error_code), told.low_watermark

    def log_starts(self) -> set[int]:
        """Where the log starts at the brokers that run."""
        found = [each.parts.replicas.find(EVENTS) for each in self.cluster.brokers.values() if each.parts is not None]
        return {each.log.log_start_offset for each in found if each is not None}


@pytest.mark.parametrize("is_plain", (False, True), ids=("the general way", "the shortest way"))
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_the_next_leader_does_not_bring_them_back(seed: int, is_plain: bool) -> None:
    scene = Scene(seed, is_plain=is_plain)
    for offset in (7, 7, 5, 12):
        start = max(7, offset)
        assert scene.delete(offset) == (ErrorCode.NONE, start)
        assert scene.log_starts() == {start}
    leader = scene.leader()
    leader.kill()
    assert scene.leader() is not leader
    assert scene.log_starts() == {12}
    assert scene.delete(-1) == (ErrorCode.NONE, RECORDS)
    assert scene.log_starts() == {RECORDS}
    scene.cluster.scheduler.dispose()


def test_a_live_follower_that_still_has_them_is_waited_for() -> None:
    scene = Scene(4, is_plain=False)
    follower = next(each for each in scene.cluster.brokers.values() if each is not scene.leader())
    follower.pause()
    assert scene.delete(7, timeout_ms=800) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    follower.resume()
    assert scene.delete(7) == (ErrorCode.NONE, 7)
    assert scene.log_starts() == {7}
    follower.kill()
    assert scene.cluster.scheduler.run(lambda: len(scene.cluster.leaderships()[0].isr) == 2, 15 * SECOND_US)
    assert scene.delete(9) == (ErrorCode.NONE, 9)  # who is not there is not waited for
    scene.cluster.scheduler.dispose()
