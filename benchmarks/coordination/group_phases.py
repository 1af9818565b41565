"""Measures a heartbeat and an offset commit in microseconds of CPU, in process, without the network.

    Heartbeat                the one member of a classic group
    ConsumerGroupHeartbeat   the one member of a group of KIP-848, which has its assignment and tells nothing new
    ShareGroupHeartbeat      the same of a share group
    StreamsGroupHeartbeat    the same of a streams group, which has no short way
    OffsetCommit             of one partition and of twenty, by the member of either; and with a follower of
                             `__consumer_offsets` that has it at the end of the turn, without the follower's fetch
    OffsetFetch              of one partition and of twenty, by the classic one

From the readable event to the response, without the calls of the socket, on the general way and on the one that the
broker takes; the best and the median of many rounds of 50 requests, the ways in turns.

    python benchmarks/coordination/group_phases.py [--json]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker import phases
from headrace.broker.app import running
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.network.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.replication.partition_state import LeaderAndIsr
from headrace.topics import OFFSETS_TOPIC
from headrace.types import BrokerId

TOPIC, MEMBER = "phases", "A" * 22
PARTITIONS, ROUNDS, REQUESTS = 20, 60, 50
FOLLOWER = 7
SETTLED_S = 1.1
SETTINGS = {
    "listeners": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


class Listening(phases.Loopback):
    """Keeps what is sent."""

    def __init__(self, frame: bytes) -> None:
        super().__init__(frame)
        self.sent = bytearray()

    def send(self, data: bytes, flags: int = 0) -> int:
        """Keeps the bytes."""
        self.sent += data
        return len(data)

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Keeps the bytes."""
        return sum(self.send(bytes(part)) for part in parts)


def framed(request: Message, version: int) -> bytearray:
    """A request as it is in the buffer of a connection."""
    assert request.API_KEY is not None
    payload = write_request_header(request.API_KEY, version, 7, "phases") + request.encode(version)
    return bytearray(len(payload).to_bytes(4, "big") + payload)


async def until(is_done: Callable[[], object]) -> None:
    """Lets the event loop turn."""
    while not is_done():  # noqa: ASYNC110 - what it waits for has no event
        await asyncio.sleep(0)


async def asked(broker: Services, request: Message, version: int) -> Any:
    """The response to a request that may have to wait."""
    connection, heard = listening(broker, request, version)
    connection.on_readable()
    await until(lambda: heard.sent)
    assert request.API_KEY is not None
    _, position = read_response_header(heard.sent[4:], request.API_KEY, version)
    response = getattr(m, type(request).__name__.replace("Request", "Response"))
    return response.decode(version, memoryview(heard.sent)[4:], position)[0]


def listening(
    broker: Services, request: Message, version: int, *, has_shortcut: bool = True
) -> tuple[Connection, Listening]:
    """A connection on which the request comes whenever it is read, and what it answers."""
    made: list[Listening] = []

    def loopback(frame: bytes) -> Listening:
        made.append(Listening(frame))
        return made[-1]

    connection = phases.connected(broker, framed(request, version), has_shortcut=has_shortcut, loopback=loopback)
    return connection, made[-1]


async def micros_with_follower(broker: Services, request: Message, version: int) -> dict[str, float]:
    """The CPU of one commit that waits for a follower. Each connection has one in flight, as consumers have."""
    ways = ("general", "short")
    members = {
        way: [listening(broker, request, version, has_shortcut=way == "short") for _ in range(REQUESTS)] for way in ways
    }
    partition = broker.replicas.partitions[OFFSETS_TOPIC, broker.groups.topic.partition_for("classic")]
    state, follower = partition.state, BrokerId(FOLLOWER)
    led = LeaderAndIsr(
        state.local_id, state.leader_epoch, (state.local_id, follower), state.partition_epoch + 1,
        (state.local_id, follower),
    )  # fmt: skip
    partition.apply(led, broker.now_ms())
    rounds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, connections in members.items():
            state.follower_fetched(follower, partition.log.log_end_offset, broker.now_ms())
            began = time.process_time()
            for connection, _ in connections:
                connection.on_readable()
            fetching = time.process_time()
            state.follower_fetched(follower, partition.log.log_end_offset, broker.now_ms())
            broker.purgatory.touch(partition.key)
            fetched = time.process_time() - fetching
            await until(lambda connections=connections: all(heard.sent for _, heard in connections))
            rounds[way].append((time.process_time() - began - fetched) / REQUESTS * 1e6)
            for _, heard in connections:
                heard.sent.clear()
    return summed(rounds)


def summed(rounds: dict[str, list[float]]) -> dict[str, float]:
    """The best and the median of each way."""
    return {
        f"{way}, {name}": of(each) for way, each in rounds.items() for name, of in (("best", min), ("median", median))
    }


async def micros(broker: Services, request: Message, version: int) -> dict[str, float]:
    """The CPU of one request."""
    ways = {way: listening(broker, request, version, has_shortcut=way == "short") for way in ("general", "short")}
    rounds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, (connection, heard) in ways.items():
            began = time.process_time()
            for _ in range(REQUESTS):
                connection.on_readable()
            await until(lambda connection=connection: connection.is_idle)
            rounds[way].append((time.process_time() - began) / REQUESTS * 1e6)
            heard.sent.clear()
    return summed(rounds)


def commit(group_id: str, epoch: int, member_id: str, count: int = 1) -> m.OffsetCommitRequest:
    """A commit of so many partitions."""
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=number, committed_offset=5) for number in range(count)]
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return m.OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
    )


def fetch(group_id: str, count: int) -> m.OffsetFetchRequest:
    """A fetch of the offsets of so many partitions."""
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(count)))
    return m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=[topic])]
    )


async def classic_member(broker: Services) -> tuple[int, str]:
    """The generation and the member of a group of one."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")
    joining = m.JoinGroupRequest(
        group_id="classic", session_timeout_ms=45_000, rebalance_timeout_ms=45_000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    joined = await asked(broker, joining, 3)
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"y")
    syncing = m.SyncGroupRequest(
        group_id="classic", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    assert (await asked(broker, syncing, 3)).error_code == 0
    return joined.generation_id, joined.member_id


async def new_member(broker: Services) -> int:
    """The epoch of the member of a group of one that has settled."""
    heartbeat = m.ConsumerGroupHeartbeatRequest
    request = heartbeat(
        group_id="new", member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )  # fmt: skip
    epoch = 0
    for _ in range(3):
        answer = await asked(broker, request, 1)
        epoch, owned = answer.member_epoch, None
        if answer.assignment is not None:
            owned = [
                heartbeat.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
        request = heartbeat(group_id="new", member_id=MEMBER, member_epoch=epoch, topic_partitions=owned)
    await asyncio.sleep(SETTLED_S)
    return epoch


async def share_member(broker: Services) -> int:
    """The epoch of the member of a share group of one that has settled."""
    request = m.ShareGroupHeartbeatRequest(
        group_id="share", member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC]
    )
    for _ in range(5):
        answer = await asked(broker, request, 1)
        assert answer.error_code == 0
        await asyncio.sleep(SETTLED_S)
        request = m.ShareGroupHeartbeatRequest(group_id="share", member_id=MEMBER, member_epoch=answer.member_epoch)
    return int(answer.member_epoch)


async def streams_member(broker: Services) -> int:
    """The epoch of the member of a streams group of one that has settled."""
    heartbeat = m.StreamsGroupHeartbeatRequest
    topology = heartbeat.Topology(
        epoch=1,
        subtopologies=[
            heartbeat.Subtopology(
                subtopology_id="0", source_topics=[TOPIC], source_topic_regex=[], state_changelog_topics=[],
                repartition_sink_topics=[], repartition_source_topics=[], copartition_groups=[],
            )
        ],
    )  # fmt: skip
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    request = heartbeat(
        group_id="streams", member_id=MEMBER, member_epoch=0, rebalance_timeout_ms=60_000, topology=topology,
        process_id=MEMBER, **nothing,
    )  # fmt: skip
    epoch = 0
    for _ in range(5):
        answer = await asked(broker, request, 0)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.active_tasks is not None:
            nothing["active_tasks"] = [
                heartbeat.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
                for each in answer.active_tasks
            ]
        await asyncio.sleep(SETTLED_S)
        request = heartbeat(group_id="streams", member_id=MEMBER, member_epoch=epoch, **nothing)
    assert nothing["active_tasks"], "it was assigned no task"
    return epoch


async def measure() -> dict[str, dict[str, float]]:
    """Measures all with a broker in this process."""
    with tempfile.TemporaryDirectory() as directory:
        async with running(parse_broker({**SETTINGS, "log.dirs": directory})) as (broker, _):
            await broker.controller.create_topics([RequestedTopic(TOPIC, PARTITIONS)])
            await broker.groups.topic.ensure()
            await until(lambda: not broker.groups.availability(0))
            generation, member_id = await classic_member(broker)
            epoch = await new_member(broker)
            share_epoch = await share_member(broker)
            streams_epoch = await streams_member(broker)
            streams_beat = m.StreamsGroupHeartbeatRequest(
                group_id="streams", member_id=MEMBER, member_epoch=streams_epoch
            )
            share_beat = m.ShareGroupHeartbeatRequest(group_id="share", member_id=MEMBER, member_epoch=share_epoch)
            beat = m.HeartbeatRequest(group_id="classic", generation_id=generation, member_id=member_id)
            new_beat = m.ConsumerGroupHeartbeatRequest(group_id="new", member_id=MEMBER, member_epoch=epoch)
            return {
                "Heartbeat": await micros(broker, beat, 4),
                "ConsumerGroupHeartbeat": await micros(broker, new_beat, 1),
                "ShareGroupHeartbeat": await micros(broker, share_beat, 1),
                "StreamsGroupHeartbeat": await micros(broker, streams_beat, 0),
                "OffsetCommit, classic": await micros(broker, commit("classic", generation, member_id), 8),
                "… of 20 partitions": await micros(broker, commit("classic", generation, member_id, PARTITIONS), 8),
                "OffsetCommit, KIP-848": await micros(broker, commit("new", epoch, MEMBER), 9),
                "OffsetFetch": await micros(broker, fetch("classic", 1), 8),
                "… of 20 offsets": await micros(broker, fetch("classic", PARTITIONS), 8),
                "OffsetCommit, a follower": await micros_with_follower(
                    broker, commit("classic", generation, member_id), 8
                ),
            }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = asyncio.run(measure())
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'':26}", *(f"{name:>16}" for name in next(iter(results.values()))))
    for name, values in results.items():
        print(f"{name:26}", *(f"{value:16.2f}" for value in values.values()))


if __name__ == "__main__":
    main()
