"""Members of one consumer group of KIP-848, or of one streams group of KIP-1071, each a client with several lives.

A member heartbeats, takes what it is assigned, gives up what it is to give up and says so at once, and commits ever
higher offsets of the partitions that it owns. Some lives end without a word, some leave. What it owned when is noted:
the checker compares the members.
"""

from typing import TYPE_CHECKING, Any

from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from tests.simulation.clients import Client
from tests.simulation.history import Beat, MemberCommit, MemberPosition, Tenure
from tests.simulation.plan import MEMBER_SESSION_TIMEOUT_MS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

GROUP = "members"
SUBTOPOLOGY = "0"
JOINING, LEAVING = 0, -1
Response = m.ConsumerGroupHeartbeatResponse | m.StreamsGroupHeartbeatResponse
LOST_MEMBERSHIP = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
REPEATED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSUPPORTED_VERSION,  # until the cluster has found that every broker knows the protocol
}


class Member:
    """One life of a member."""

    def __init__(self, client: Client, member_id: str) -> None:
        self._client, self.member_id = client, member_id
        self.epoch = JOINING
        self.owned: dict[int, Tenure] = {}
        self._positions: dict[int, int] = {}
        self._topic_id = bytes(16)
        self._is_full = True
        self._coordinator = -1
        self._next_beat_us = 0

    @property
    def partitions(self) -> set[int]:
        """What it owns."""
        return set(self.owned)

    async def work(self) -> None:
        """Heartbeats if it is time, else commits an offset."""
        client = self._client
        try:
            if self._coordinator < 0:
                await self._find_coordinator()
            elif client.now_us >= self._next_beat_us:
                await self._heartbeat()
            elif self.owned:
                await self._commit(client.chance.choice(sorted(self.owned)))
        except PeerUnreachable:
            self._coordinator, self._is_full = -1, True

    async def leave(self) -> bool:
        """Gives up everything, and says so once; whether the coordinator heard it."""
        self._keep_only(set())
        self.epoch = LEAVING
        try:
            if self._coordinator < 0:
                await self._find_coordinator()
            if self._coordinator < 0:
                return False
            answer = await self._ask_heartbeat(is_full=False)
        except PeerUnreachable:
            return False
        return not answer.error_code

    def die(self) -> None:
        """It owns nothing any more, and nobody is told."""
        self._keep_only(set())

    # Membership

    async def _find_coordinator(self) -> None:
        client = self._client
        request = m.FindCoordinatorRequest(key=GROUP, key_type=0)
        found = await client.ask(client.anyone()[0], request, m.FindCoordinatorResponse, 3)
        self._coordinator = -1 if found.error_code else found.node_id

    async def _ask_heartbeat(self, *, is_full: bool) -> Response:
        """One heartbeat; `is_full`: it says everything about the member."""
        fields: dict[str, Any] = {}
        if is_full:
            Owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions
            fields = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": [self._client.cluster.topic],
                "topic_partitions": [Owned(topic_id=self._topic_id, partitions=sorted(self.owned))]
                if self.owned
                else [],
            }
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        return await self._client.ask(self._coordinator, request, m.ConsumerGroupHeartbeatResponse, 1)

    def _assigned(self, answer: Any) -> set[int] | None:
        """The partitions that an answer assigns; None if they have not changed."""
        if answer.assignment is None:
            return None
        if answer.assignment.topic_partitions:
            self._topic_id = answer.assignment.topic_partitions[0].topic_id
        return {number for each in answer.assignment.topic_partitions for number in each.partitions}

    async def _heartbeat(self) -> None:
        client = self._client
        sent_us, is_full = client.now_us, self._is_full
        self._is_full = False
        answer = await self._ask_heartbeat(is_full=is_full or self.epoch == JOINING)
        code = ErrorCode(answer.error_code)
        if code in LOST_MEMBERSHIP:
            client.note(f"{self.member_id} is no longer a member: {code.name}")
            self._keep_only(set())
            self.epoch = JOINING
        elif code in REPEATED:
            self._coordinator, self._is_full = -1, True
        elif code:
            raise AssertionError(f"a heartbeat of {self.member_id} was refused: {code.name}: {answer.error_message}")
        else:
            assigned = self._assigned(answer)
            self._beaten(answer, assigned, sent_us)
            self._is_full |= is_full and assigned is not None and bool(self.owned)

    def _beaten(self, answer: Response, assigned: set[int] | None, sent_us: int) -> None:
        client = self._client
        self.epoch = answer.member_epoch
        client.cluster.history.beats.append(Beat(self.member_id, self.epoch, sent_us))
        self._next_beat_us = client.now_us + answer.heartbeat_interval_ms * 1000
        if assigned is not None and assigned != self.partitions:
            client.note(f"{self.member_id} owns {sorted(assigned)} in epoch {self.epoch}")
            self._keep_only(assigned)
            for partition in sorted(assigned - self.partitions):
                tenure = Tenure(self.member_id, partition, self.epoch, MEMBER_SESSION_TIMEOUT_MS * 1000, client.now_us)
                self.owned[partition] = tenure
                client.cluster.history.tenures.append(tenure)
            self._is_full, self._next_beat_us = True, client.now_us

    def _keep_only(self, partitions: set[int]) -> None:
        for partition in sorted(self.partitions - partitions):
            self.owned.pop(partition).ended_us = self._client.now_us
            self._positions.pop(partition, None)

    # Offsets

    async def _commit(self, partition: int) -> None:
        """Commits the offset after the last one, or reads where that is."""
        position = self._positions.get(partition)
        if position is None:
            await self._read_position(partition)
            return
        client, sent_us = self._client, self._client.now_us
        one = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=position + 1, committed_metadata=self.member_id
        )
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=client.cluster.topic, partitions=[one])
        request = m.OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=self.epoch, member_id=self.member_id, topics=[topic]
        )
        code: ErrorCode | None = None
        try:
            answer = await client.ask(self._coordinator, request, m.OffsetCommitResponse, 9)
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
        finally:
            if code is None or code in REPEATED:  # it may be written, or will be
                self._positions.pop(partition, None)
            if code in (None, ErrorCode.NONE) or code in REPEATED:
                noted = MemberCommit(
                    self.member_id, partition, position + 1, sent_us, client.now_us, code is ErrorCode.NONE
                )
                client.cluster.history.member_commits.append(noted)
        if code is ErrorCode.NONE and partition in self._positions:
            self._positions[partition] = position + 1
        elif code in REPEATED:
            self._coordinator, self._is_full = -1, True

    async def _read_position(self, partition: int) -> None:
        client, sent_us = self._client, self._client.now_us
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=client.cluster.topic, partition_indexes=[partition])
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, topics=[topic]
        )
        answer = await client.ask(self._coordinator, m.OffsetFetchRequest(groups=[group]), m.OffsetFetchResponse, 9)
        (told,) = answer.groups
        code = ErrorCode(told.error_code or told.topics[0].partitions[0].error_code)
        if code in REPEATED:
            self._coordinator, self._is_full = -1, True
        elif code is ErrorCode.NONE:
            offset = told.topics[0].partitions[0].committed_offset
            client.cluster.history.member_positions.append(
                MemberPosition(self.member_id, partition, offset, sent_us, client.now_us)
            )
            self._positions[partition] = max(offset, 0)


class StreamsThread(Member):
    """One life of a member of a streams group (KIP-1071): a thread of an application, alone in its process."""

    async def _ask_heartbeat(self, *, is_full: bool) -> Response:
        Request = m.StreamsGroupHeartbeatRequest
        fields: dict[str, Any] = {}
        if is_full:
            active = [Request.TaskIds(subtopology_id=SUBTOPOLOGY, partitions=sorted(self.owned))] if self.owned else []
            fields = {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}
        if self.epoch == JOINING:
            read = Request.Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[self._client.cluster.topic])
            fields |= {
                "topology": Request.Topology(subtopologies=[read]),
                "process_id": self.member_id,
                "rebalance_timeout_ms": 60_000,
            }
        request = Request(group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, **fields)
        return await self._client.ask(self._coordinator, request, m.StreamsGroupHeartbeatResponse, 0)

    def _assigned(self, answer: Any) -> set[int] | None:
        if answer.active_tasks is None:
            return None
        return {number for each in answer.active_tasks for number in each.partitions}


class GroupWorker:
    """A client that is a member again and again."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.client = Client(cluster, f"member-{number}")
        self._lives = 0
        self.member = self._next_life()
        self.is_settling = self.is_stopping = self.has_ended = False

    def start(self) -> None:
        """Begins."""
        process = self.client.process
        process.call(process.loop.create_task, self._run())

    async def _run(self) -> None:
        """Until it is told to stop: `is_settling` ends the changes of life, `is_stopping` everything."""
        chance = self.client.chance
        while not self.is_stopping:
            await self.member.work()
            if not self.is_settling and chance.random() < 0.03:
                if chance.random() < 0.5:
                    self.client.note(f"{self.member.member_id} leaves")
                    await self.member.leave()
                else:
                    self.client.note(f"{self.member.member_id} dies")
                    self.member.die()
                await self.client.pause(0, 1500)
                self.member = self._next_life()
            await self.client.pause(10, 60)
        self.member.die()
        self.has_ended = True

    def _next_life(self) -> Member:
        self._lives += 1
        kind = StreamsThread if self.client.cluster.plan.members_are_threads else Member
        return kind(self.client, f"{self.client.name}.{self._lives}")


def unsettled(workers: list[GroupWorker], partitions: int) -> str:
    """What is not yet as it must be in a group that no fault hits: who owns what, if that is it; "" if all is well."""
    members = [each.member for each in workers]
    found = sorted(number for member in members for number in member.owned)
    sizes = [len(member.owned) for member in members]
    if found == list(range(partitions)) and max(sizes) - min(sizes) <= 1 and len({each.epoch for each in members}) == 1:
        return ""
    return ", ".join(f"{each.member_id} owns {sorted(each.owned)} in epoch {each.epoch}" for each in members)
