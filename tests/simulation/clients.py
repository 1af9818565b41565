"""Clients in the simulation: they speak the protocol as real ones do, remember what they did and saw, and never crash.

    Producer   one batch in flight; metadata again and a retry after each error, until its delivery time-out
    Reader     follows every partition from the current leader, and asks now and then where they end; in some plans
               also, in each new leader epoch, whether its position still exists (KIP-320)
    Committer  commits a group's offset, ever higher, and reads it back

What a producer may say afterwards of a batch:

    acknowledged   an attempt was answered without an error, or as a duplicate of one that was appended
    refused        every attempt was answered with an error that says that nothing was appended
    unknown        anything else
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import BatchHeader
from tests.records.decoding import decode_any
from tests.simulation.frames import Caller
from tests.simulation.history import BEGINS_AGAIN, Committed, EndSeen, Outcome, Reading, Reset, Seen, Sent

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

R = TypeVar("R", bound=Message)

REQUEST_TIMEOUT_MS = 1500
NOT_APPENDED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.POLICY_VIOLATION,  # the storage of an instance is full
}
NEEDS_NEW_ID = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
LEADER_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Client:
    """A client's host: connections to brokers, and what it was told of the cluster."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster, self.name = cluster, name
        self.process = cluster.scheduler.process(name)
        self.chance = Random(f"{cluster.seed}/{name}")
        self._callers: dict[int, Caller] = {}
        self._failed_us: dict[int, int] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        """Per partition: the leader's number and its epoch."""
        self.nearby: dict[int, int] = {}
        """Per partition: the follower that its leader told to read from."""
        self.topic, self.partitions, self.history = cluster.topic, cluster.plan.partitions, cluster.history
        cluster.network.host(name)

    @property
    def now_us(self) -> int:
        return self.cluster.scheduler.now_us

    def note(self, what: str) -> None:
        self.cluster.timeline.note(self.name, what)

    async def ask(
        self, broker: int, request: Message, answer: type[R], version: int, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        """An answer of one broker; raises `PeerUnreachable`."""
        caller = self._callers.get(broker)
        if caller is None or not caller.is_open:
            caller = self._callers[broker] = self._connect(self.cluster.brokers[broker].host)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await caller.ask(request, answer, version)
        except TimeoutError:
            caller.close("the time was up")
            self._failed_us[broker] = self.now_us
            raise PeerUnreachable("the time was up") from None
        except PeerUnreachable:
            self._failed_us[broker] = self.now_us
            raise

    def _connect(self, host: str) -> Caller:
        return Caller(self.cluster.network, self.process, self.name, host, self.name)

    def hang_up(self) -> None:
        """Closes its connections."""
        for caller in self._callers.values():
            if caller.is_open:
                caller.close("the client ends")

    def is_connected(self, broker: int) -> bool:
        """Whether it has an open connection to a broker."""
        caller = self._callers.get(broker)
        return caller is not None and caller.is_open

    def anyone(self) -> list[int]:
        """Every broker, in the order in which to ask where each may answer: those that failed last come last."""
        numbers = sorted(self.cluster.brokers)
        self.chance.shuffle(numbers)
        return sorted(numbers, key=lambda number: self._failed_us.get(number, -1))

    async def refresh(self) -> None:
        """Asks any broker for metadata, until one answers."""
        topic = m.MetadataRequest.MetadataRequestTopic(name=self.topic)
        request = m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        for number in self.anyone():
            try:
                found = await self.ask(number, request, m.MetadataResponse, 8, 800)
            except PeerUnreachable:
                continue
            for told in found.topics:
                for each in told.partitions:
                    epoch = self.leaders.get(each.partition_index, (-1, -1))[1]
                    if each.leader_epoch >= epoch:  # as clients do since KIP-320: an older one is not believed
                        self.leaders[each.partition_index] = (each.leader_id, each.leader_epoch)
            return

    async def pause(self, low_ms: int, high_ms: int) -> None:
        await asyncio.sleep(self.chance.uniform(low_ms, high_ms) / 1000)


class Producer:
    """Sends unique values, one batch after the other."""

    def __init__(self, client: Client, name: str, *, acks: int, is_idempotent: bool, pace_ms: int) -> None:
        self._client, self.name = client, name
        self._acks, self._is_idempotent, self._pace_ms = acks, is_idempotent, pace_ms
        self._count = 0
        self._id: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self.is_stopping = False
        self.delivery_timeout_us = 6_000_000

    @property
    def client(self) -> Client:
        """Its host."""
        return self._client

    async def run(self) -> None:
        """Until it is told to stop."""
        chance = self._client.chance
        while not self.is_stopping:
            await self.send(chance.randrange(self._client.partitions), chance.choice((1, 1, 2, 3)))
            await self._client.pause(0, 2 * self._pace_ms)

    async def send(self, partition: int, count: int) -> bool:
        """Sends a batch of new values; whether it was acknowledged."""
        batch = self._make(partition, count)
        outcome, offset = await self._deliver(partition, [each.value for each in batch])
        self._end(batch, outcome, offset)
        return outcome is Outcome.ACKNOWLEDGED

    def _make(self, partition: int, count: int) -> list[Sent]:
        """New values, noted as sent."""
        batch = []
        for _ in range(count):
            self._count += 1
            value = f"{self.name}.{self._count}"
            batch.append(Sent(self.name, partition, value, self._acks, self._is_idempotent, self._client.now_us))
        self._client.history.sent += batch
        return batch

    def _end(self, batch: list[Sent], outcome: Outcome, offset: int) -> None:
        """Notes what became of a batch."""
        for number, each in enumerate(batch):
            each.outcome, each.ended_us = outcome, self._client.now_us
            each.offset = offset + number if offset >= 0 else -1
        names = ", ".join(each.value for each in batch)
        where = f" at {offset}" if offset >= 0 else ""
        text = "all" if self._acks == -1 else self._acks
        self._client.note(f"partition {batch[0].partition}: {names} (acks={text}): {outcome.value}{where}")

    async def _deliver(self, partition: int, values: list[str]) -> tuple[Outcome, int]:
        """Until it is acknowledged or the delivery time-out is over."""
        client, deadline = self._client, self._client.now_us + self.delivery_timeout_us
        may_be_there = False
        while client.now_us < deadline:
            if self._is_idempotent and self._id is None and not await self._take_id():
                await client.pause(50, 150)
                continue
            leader = client.leaders.get(partition, (-1, -1))[0]
            if leader < 0:
                await client.refresh()
                await client.pause(20, 200)
                continue
            try:
                code, offset = await self._attempt(leader, partition, values, self._sequences.get(partition, 0))
            except PeerUnreachable:
                may_be_there = True
                await client.refresh()
                await client.pause(20, 150)
                continue
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
                return Outcome.ACKNOWLEDGED, offset if code is ErrorCode.NONE else -1
            may_be_there = may_be_there or code not in NOT_APPENDED
            if code in NEEDS_NEW_ID:
                self._id = None
                if may_be_there:
                    return Outcome.UNKNOWN, -1
            if code in LEADER_ERRORS:
                await client.refresh()
            await client.pause(20, 150)
        if may_be_there:
            self._id = None  # its sequence may be used, or not: go on under another id
            return Outcome.UNKNOWN, -1
        return Outcome.REFUSED, -1

    async def _attempt(
        self, leader: int, partition: int, values: list[str], sequence: int, *, is_damaged: bool = False
    ) -> tuple[ErrorCode, int]:
        now_ms = self._client.process.now_ms()
        producer_id, epoch = self._id or (-1, -1)
        records = encode_batch(
            [Record(0, now_ms, None, value.encode()) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if self._id else -1,
        )
        if is_damaged:
            records[-1] ^= 1
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=memoryview(records))
        topic = m.ProduceRequest.TopicProduceData(name=self._client.topic, partition_data=[data])
        request = m.ProduceRequest(acks=self._acks, timeout_ms=1000, topic_data=[topic])
        answer = await self._client.ask(leader, request, m.ProduceResponse, 9)
        told = answer.responses[0].partition_responses[0]
        return ErrorCode(told.error_code), told.base_offset

    async def _take_id(self) -> bool:
        client = self._client
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            answer = await client.ask(client.anyone()[0], request, m.InitProducerIdResponse, 4)
        except PeerUnreachable:
            return False
        if answer.error_code:
            return False
        self._id, self._sequences = (answer.producer_id, answer.producer_epoch), {}
        return True


class Reader:
    """Reads every partition from its start, for ever; from a replica in its rack, if it names one.

    One that checks positions asks the leader of each new epoch where the epoch of the last record ends that it read, as
    clients do since KIP-320, and begins again where it is told that its position is lost. It knows of no such record at
    first: then it takes the first leader's epoch, as librdkafka does. Like Apache Kafka's consumer, it does not send
    `last_fetched_epoch`, which is for followers.
    """

    def __init__(
        self, client: Client, rack: str = "", *, checks_positions: bool = False, rewinds: bool = False
    ) -> None:
        """`rewinds`: it begins again now and then."""
        self._client, self._rack, self._checks_positions = client, rack, checks_positions
        self._rewinds = rewinds
        self._positions = dict.fromkeys(range(client.partitions), 0)
        self._epochs: dict[int, int] = {}
        """Of the last record that was read before each position."""
        self._checked: dict[int, int] = {}
        """The leader epoch in which each position was last found to exist."""
        self.is_stopping = False

    async def run(self) -> None:
        """Until it is told to stop."""
        client = self._client
        while not self.is_stopping:
            if client.chance.random() < 0.2:
                await client.refresh()
            if self._rewinds and client.chance.random() < 0.05:
                self._begin_again(client.chance.choice(sorted(self._positions)), 0)
            by_leader: dict[int, list[int]] = {}
            for partition in self._positions:
                source = client.nearby.get(partition, client.leaders.get(partition, (-1, -1))[0])
                by_leader.setdefault(source, []).append(partition)
            for leader in by_leader:
                if leader >= 0:
                    await self._read(leader, by_leader[leader])
            if -1 in by_leader or not by_leader:
                await client.refresh()
            await client.pause(20, 120)

    async def _read(self, leader: int, partitions: list[int]) -> None:
        client = self._client
        try:
            if self._checks_positions:
                partitions = await self._check_positions(partitions)
                if not partitions:
                    return
            await self._fetch(leader, partitions)
            led = [each for each in partitions if each not in client.nearby]
            if led and client.chance.random() < 0.3:
                await self._ask_for_ends(leader, led)
        except PeerUnreachable:
            self._leave(partitions)
            await client.refresh()

    async def _check_positions(self, partitions: list[int]) -> list[int]:
        """The partitions whose positions exist, as the leader of this epoch says, or as it said before."""
        for number in partitions:
            leader, epoch = self._client.leaders[number]
            if number not in self._checked:
                self._epochs[number] = self._checked[number] = epoch
            elif epoch > self._checked[number] and leader >= 0:
                await self._check_position(number, leader, epoch)
        return [each for each in partitions if self._checked[each] >= self._client.leaders[each][1]]

    async def _check_position(self, number: int, leader: int, epoch: int) -> None:
        client, position = self._client, self._positions[number]
        kind = m.OffsetForLeaderEpochRequest
        wanted = kind.OffsetForLeaderPartition(
            partition=number, current_leader_epoch=epoch, leader_epoch=self._epochs[number]
        )
        request = kind(replica_id=-1, topics=[kind.OffsetForLeaderTopic(topic=client.topic, partitions=[wanted])])
        answer = await client.ask(leader, request, m.OffsetForLeaderEpochResponse, 4)
        told = answer.topics[0].partitions[0]
        if told.error_code:
            await client.refresh()
            return
        self._checked[number] = epoch
        if told.leader_epoch < 0 or told.end_offset < 0 or told.end_offset < position:
            what = f"epoch {told.leader_epoch} ends at {told.end_offset}"
            client.note(f"partition {number}: position {position} of epoch {self._epochs[number]} is lost: {what}")
            client.history.resets.append(
                Reset(client.name, number, leader, client.now_us, position, self._epochs[number], what)
            )
            self._positions[number] = max(told.end_offset, 0)
            self._epochs[number] = epoch

    def _leave(self, partitions: list[int]) -> None:
        """Reads from the leader again."""
        for each in partitions:
            self._client.nearby.pop(each, None)

    async def _fetch(self, leader: int, partitions: list[int]) -> None:
        client = self._client
        wanted = [
            m.FetchRequest.FetchPartition(
                partition=number,
                current_leader_epoch=client.leaders[number][1],
                fetch_offset=self._positions[number],
                log_start_offset=-1,
                partition_max_bytes=client.chance.choice((100, 400, 1 << 20)),
            )
            for number in partitions
        ]
        topic = m.FetchRequest.FetchTopic(topic=client.topic, partitions=wanted)
        request = m.FetchRequest(replica_id=-1, max_wait_ms=200, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        request.rack_id = self._rack
        answer = await client.ask(leader, request, m.FetchResponse, 11)
        for each in (part for told in answer.responses for part in told.partitions):
            number, code = each.partition_index, ErrorCode(each.error_code)
            position = self._positions[number]
            start = client.cluster.log_start(leader, number) if code is ErrorCode.OFFSET_OUT_OF_RANGE else 0
            if position < start:
                client.note(f"partition {number}: position {position} is deleted at broker {leader}")
                self._begin_again(number, start)
                continue
            seen = [] if code else _records(bytes(each.records or b""), position)
            client.history.readings.append(
                Reading(
                    client.name, number, leader, client.now_us, position, tuple(seen), each.high_watermark,
                    code.name if code else "",
                )
            )  # fmt: skip
            if seen:
                self._positions[number] = seen[-1].offset + 1
                if self._checks_positions:
                    self._epochs[number] = _last_epoch(bytes(each.records or b""), seen[-1].offset)
            if code:
                self._leave([number])
            elif each.preferred_read_replica >= 0:
                client.nearby[number] = each.preferred_read_replica
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                client.note(f"partition {number}: position {position} is out of range at broker {leader}")
                self._positions[number] = 0
            elif code in LEADER_ERRORS:
                await client.refresh()

    def _begin_again(self, number: int, position: int) -> None:
        client = self._client
        client.history.readings.append(Reading(client.name, number, -1, client.now_us, position, (), 0, BEGINS_AGAIN))
        self._positions[number] = position
        self._leave([number])

    async def _ask_for_ends(self, leader: int, partitions: list[int]) -> None:
        client = self._client
        wanted = [
            m.ListOffsetsRequest.ListOffsetsPartition(
                partition_index=number, current_leader_epoch=client.leaders[number][1], timestamp=-1
            )
            for number in partitions
        ]
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=client.topic, partitions=wanted)
        answer = await client.ask(leader, m.ListOffsetsRequest(replica_id=-1, topics=[topic]), m.ListOffsetsResponse, 7)
        for each in (part for told in answer.topics for part in told.partitions):
            if not each.error_code:
                client.history.ends.append(
                    EndSeen(client.name, each.partition_index, leader, client.now_us, each.offset)
                )


def _records(data: bytes, position: int) -> list[Seen]:
    """The records and markers of a fetch from `position` on; a batch that is cut off is left for the next."""
    seen = []
    for at, header in iter_any_headers(data):
        batch = data[at : at + header.size_bytes]
        if header.is_control:
            seen.append(Seen(header.base_offset, marker_text(header, batch), is_marker=True))
        else:
            seen += [Seen(record.offset, (record.value or b"").decode()) for record in decode_any(batch)]
    return [each for each in seen if each.offset >= position]


def _last_epoch(data: bytes, offset: int) -> int:
    """The leader epoch of the batch with this offset."""
    return max(header.leader_epoch for _, header in iter_any_headers(data) if header.base_offset <= offset)


def marker_text(header: BatchHeader, batch: Bytes) -> str:
    """A marker, for people, with all that tells it from others."""
    marker = read_marker(batch)
    what = "commit" if marker.is_commit else "abort"
    return f"{what} of producer {header.producer_id}, epoch {header.producer_epoch}, by {marker.coordinator_epoch}"


class Administrator:
    """Asks the controller, whoever that is, to move leaders and replicas; what becomes of it the run shows."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def elect_preferred(self) -> None:
        """Has preferred leaders lead."""
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000)
        for number in self._client.anyone():
            try:
                answer = await self._client.ask(number, request, m.ElectLeadersResponse, 2, 3000)
            except PeerUnreachable:
                continue
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                self._client.note(f"elects preferred leaders: {ErrorCode(answer.error_code).name}")
                return

    async def reassign(self, partition: int, replicas: Sequence[int], topic: str = "") -> None:
        """Has a partition's replicas be these, of a topic that is not the run's own if it is named."""
        wanted = m.AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=partition, replicas=[*replicas]
        )
        asked = m.AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=topic or self._client.topic, partitions=[wanted]
        )
        request = m.AlterPartitionReassignmentsRequest(topics=[asked], timeout_ms=2000)
        for number in self._client.anyone():
            try:
                answer = await self._client.ask(number, request, m.AlterPartitionReassignmentsResponse, 0, 3000)
            except PeerUnreachable:
                continue
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                codes = [each.error_code for told in answer.responses for each in told.partitions]
                name = ErrorCode(answer.error_code or (codes or [0])[0]).name
                self._client.note(f"moves {topic or self._client.topic}-{partition} to {replicas}: {name}")
                return

    async def delete_records(self, partition: int, offset: int) -> None:
        """Has the records of a partition before an offset deleted."""
        client = self._client
        wanted = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=client.topic, partitions=[wanted])
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        await client.refresh()
        leader = client.leaders.get(partition, (-1, -1))[0]
        if leader < 0:
            return
        try:
            answer = await client.ask(leader, request, m.DeleteRecordsResponse, 1)
        except PeerUnreachable:
            return
        name = ErrorCode(answer.topics[0].partitions[0].error_code).name
        client.note(f"deletes the records of partition {partition} before {offset}: {name}")


class Committer:
    """A group without members, whose offset only ever grows."""

    def __init__(self, client: Client, group: str, mark: str = "") -> None:
        """`mark` goes with each offset."""
        self._client, self._group, self._mark = client, group, mark
        self._offset = 0
        self.is_stopping = self._has_stopped = False

    async def run(self) -> None:
        """Until it is told to stop."""
        client = self._client
        while not self.is_stopping:
            try:
                coordinator = await self._find()
                if coordinator >= 0:
                    await (self._commit(coordinator) if client.chance.random() < 0.6 else self._read_back(coordinator))
            except PeerUnreachable:
                pass
            await client.pause(50, 400)
        self._has_stopped = True

    async def _find(self) -> int:
        client = self._client
        request = m.FindCoordinatorRequest(key=self._group, key_type=0)
        found = await client.ask(client.anyone()[0], request, m.FindCoordinatorResponse, 3)
        return -1 if found.error_code else found.node_id

    async def _commit(self, coordinator: int) -> None:
        client = self._client
        self._offset += 1
        offset = self._offset
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=self._mark
        )
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=client.topic, partitions=[partition])
        request = m.OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        answer = await client.ask(coordinator, request, m.OffsetCommitResponse, 8)
        code = answer.topics[0].partitions[0].error_code
        client.note(f"commits {offset}: {ErrorCode(code).name}")
        if not code:
            client.history.commits.append(Committed(self._group, 0, coordinator, client.now_us, offset, False))

    async def finish(self) -> bool:
        """Reads the offset back for the last time; whether that came about."""
        client, deadline = self._client, self._client.now_us + 10_000_000
        while client.now_us < deadline:
            try:
                coordinator = await self._find()
                if coordinator >= 0 and self._has_stopped and await self._read_back(coordinator, is_final=True):
                    return True
            except PeerUnreachable:
                pass
            await client.pause(50, 100)
        return False

    async def _read_back(self, coordinator: int, *, is_final: bool = False) -> bool:
        client = self._client
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=client.topic, partition_indexes=[0])
        request = m.OffsetFetchRequest(group_id=self._group, topics=[topic])
        answer = await client.ask(coordinator, request, m.OffsetFetchResponse, 7)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return False
        offset = answer.topics[0].partitions[0].committed_offset
        client.note(f"reads back {offset}")
        client.history.commits.append(Committed(self._group, 0, coordinator, client.now_us, offset, True, is_final))
        return True
