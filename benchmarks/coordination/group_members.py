"""Members of groups for benchmarks: they speak the protocol and read nothing. One socket and one task each.

    NewMember       KIP-848: heartbeats, and takes at once what it is assigned
    ClassicMember   JoinGroup, SyncGroup, Heartbeat; the leader deals the partitions

A group is complete when all its members have all partitions of the topic, and no partition has two owners.
"""

import asyncio
from itertools import count
from typing import Any, Self
from uuid import uuid4

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header

RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
VERSION_0, NO_USER_DATA = bytes(2), b"\xff\xff\xff\xff"


class Connection:
    """A connection with one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = count(1)

    @classmethod
    async def to(cls, port: int) -> Self:
        """Connects to the broker on this port."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: Message, version: int) -> Any:
        """The response to a request."""
        assert request.API_KEY is not None
        frame = write_request_header(request.API_KEY, version, next(self._ids), "bench") + request.encode(version)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        data = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        _, position = read_response_header(data, request.API_KEY, version)
        return getattr(m, type(request).__name__.replace("Request", "Response")).decode(version, data, position)[0]

    def close(self) -> None:
        """Closes the connection."""
        self._writer.close()


async def find_coordinator(connection: Connection, group_id: str) -> None:
    """Waits until the group's coordinator answers; the first question makes the topic of the groups."""
    while True:
        request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        if (await connection.ask(request, 4)).coordinators[0].error_code == 0:
            return
        await asyncio.sleep(0.05)


class Group:
    """What the members of one group own together."""

    def __init__(self, group_id: str, topic: str, partitions: int, members: int) -> None:
        self.group_id, self.topic, self.partitions = group_id, topic, partitions
        self._members = members
        self._owners: dict[int, object] = {}
        self._sizes: dict[object, int] = {}
        self.complete = asyncio.Event()

    def owns(self, member: object, before: frozenset[int], now: frozenset[int]) -> None:
        """Notes what a member owns; raises AssertionError if another owns it too."""
        for partition in before - now:
            del self._owners[partition]
        for partition in now - before:
            assert self._owners.setdefault(partition, member) is member, (
                f"{partition} of {self.group_id} has two owners"
            )
        self._sizes[member] = len(now)
        if len(self._owners) == self.partitions and len(self._sizes) == self._members:
            share = self.partitions // self._members
            if min(self._sizes.values()) >= share and max(self._sizes.values()) <= share + 1:
                self.complete.set()


class NewMember:
    """A member of KIP-848."""

    def __init__(self, group: Group, connection: Connection) -> None:
        self._group, self._connection = group, connection
        self._id, self._epoch = str(uuid4()), 0
        self._owned: frozenset[int] = frozenset()

    async def run(self) -> None:
        """Joins, and heartbeats until it is cancelled."""
        request = self._beat(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=[self._group.topic], topic_partitions=[]
        )
        while True:
            answer = await self._connection.ask(request, 1)
            if answer.error_code in RETRIED:
                await asyncio.sleep(0.05)
                continue
            assert answer.error_code == 0, f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
            self._epoch = answer.member_epoch
            if answer.assignment is None:
                self._group.owns(self, self._owned, self._owned)
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
                request = self._beat()
                continue
            assigned = answer.assignment.topic_partitions
            now = frozenset(partition for topic in assigned for partition in topic.partitions)
            self._group.owns(self, self._owned, now)
            self._owned = now
            Owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions
            request = self._beat(
                topic_partitions=[Owned(topic_id=each.topic_id, partitions=each.partitions) for each in assigned]
            )

    def leaving(self) -> tuple[Message, int]:
        """The request that leaves the group, and its version."""
        self._epoch = -1
        return self._beat(), 1

    def _beat(self, **more: Any) -> m.ConsumerGroupHeartbeatRequest:
        return m.ConsumerGroupHeartbeatRequest(
            group_id=self._group.group_id, member_id=self._id, member_epoch=self._epoch, **more
        )


class ClassicMember:
    """A member of the classic protocol."""

    def __init__(self, group: Group, connection: Connection) -> None:
        self._group, self._connection = group, connection
        self._id, self._generation = "", -1
        self._owned: frozenset[int] = frozenset()

    async def run(self) -> None:
        """Joins, and heartbeats until it is cancelled."""
        while True:
            if not await self._join():
                continue
            while True:
                await asyncio.sleep(3)
                beat = m.HeartbeatRequest(
                    group_id=self._group.group_id, generation_id=self._generation, member_id=self._id
                )
                if (await self._connection.ask(beat, 4)).error_code != 0:
                    break

    def leaving(self) -> tuple[Message, int]:
        """The request that leaves the group, and its version."""
        Member = m.LeaveGroupRequest.MemberIdentity
        return m.LeaveGroupRequest(group_id=self._group.group_id, members=[Member(member_id=self._id)]), 5

    async def _join(self) -> bool:
        """Gives up what it owns, then one JoinGroup and SyncGroup; whether the member has an assignment."""
        self._group.owns(self, self._owned, frozenset())
        self._owned = frozenset()
        Protocol = m.JoinGroupRequest.JoinGroupRequestProtocol
        joined = await self._connection.ask(
            m.JoinGroupRequest(
                group_id=self._group.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[Protocol(name="range", metadata=_subscription(self._group.topic))],
            ),
            9,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            return False
        if joined.error_code in RETRIED:
            await asyncio.sleep(0.05)
            return False
        assert joined.error_code == 0, ErrorCode(joined.error_code).name
        self._generation = joined.generation_id
        members = [each.member_id for each in joined.members] if joined.leader == self._id else []
        Assignment = m.SyncGroupRequest.SyncGroupRequestAssignment
        synced = await self._connection.ask(
            m.SyncGroupRequest(
                group_id=self._group.group_id,
                generation_id=self._generation,
                member_id=self._id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    Assignment(
                        member_id=member,
                        assignment=_assignment(self._group.topic, range(number, self._group.partitions, len(members))),
                    )
                    for number, member in enumerate(members)
                ],
            ),
            5,
        )
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        assert synced.error_code == 0, ErrorCode(synced.error_code).name
        now = _partitions(bytes(synced.assignment))
        self._group.owns(self, self._owned, now)
        self._owned = now
        return True


Member = NewMember | ClassicMember
KINDS: dict[str, type[NewMember] | type[ClassicMember]] = {"KIP-848": NewMember, "classic": ClassicMember}


def _subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    return VERSION_0 + (1).to_bytes(4, "big") + _string(topic) + NO_USER_DATA


def _assignment(topic: str, partitions: range) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    numbers = b"".join(each.to_bytes(4, "big") for each in (len(partitions), *partitions))
    return VERSION_0 + (1).to_bytes(4, "big") + _string(topic) + numbers + NO_USER_DATA


def _partitions(assignment: bytes) -> frozenset[int]:
    """The partitions in an assignment of one topic."""
    start = 8 + int.from_bytes(assignment[6:8], "big")
    number = int.from_bytes(assignment[start : start + 4], "big")
    return frozenset(
        int.from_bytes(assignment[at : at + 4], "big") for at in range(start + 4, start + 4 + 4 * number, 4)
    )


def _string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()
