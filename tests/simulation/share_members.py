"""Members of one share group (KIP-932), each a client with several lives.

A member heartbeats, fetches from the leaders of the partitions that it is assigned, and accepts, releases or rejects
what it gets, with the next fetch or in a request of its own; at times so late that the lock has run out, or not at all.
What came when, and what was acknowledged how, is noted for the checker.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.coordinators.share_state.persister import SharePartitionKey
from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.simulation.clients import Client
from tests.simulation.group_members import JOINING, LEAVING, LOST_MEMBERSHIP, REPEATED
from tests.simulation.history import Delivery, Outcome, ShareAcknowledgement, UnansweredFetch
from tests.simulation.plan import SHARE_LOCK_MS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

GROUP = "sharers"
ACCEPT, RELEASE, REJECT = 1, 2, 3
_GROUP_RESOURCE, _SET = 32, 0
FETCH_VERSION = 2
NEW_SESSION, ENDING_SESSION = 0, -1
NOT_DONE = {
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors of acknowledgements that certainly changed nothing."""

Held = list[Delivery]
Fates = list[tuple[Delivery, int]]
"""Records with what is to become of them."""


async def read_from_start(client: Client) -> bool:
    """Has the group begin with the first record of each partition; whether that was set."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="share.auto.offset.reset", config_operation=_SET, value="earliest"
    )
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=GROUP, configs=[config]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    for _ in range(20):
        for number in client.anyone():
            try:
                answer = await client.ask(number, request, m.IncrementalAlterConfigsResponse, 1, 3000)
            except PeerUnreachable:
                continue
            if not answer.responses[0].error_code:
                return True
        await client.pause(100, 200)
    return False


class _Session:
    """A share session with one broker, which ends with its connection."""

    def __init__(self) -> None:
        self.epoch = NEW_SESSION
        self.partitions: set[int] = set()
        self.held: Held = []


class Sharer:
    """One life of a member."""

    def __init__(self, client: Client, member_id: str) -> None:
        self._client, self.member_id = client, member_id
        self.epoch = JOINING
        self.assigned: set[int] = set()
        self.is_willing = False
        """Whether it accepts everything."""
        self._topic_id = bytes(16)
        self._sessions: dict[int, _Session] = {}
        self._coordinator = -1
        self._next_beat_us = 0
        self._is_full = True
        """Whether the next heartbeat says everything, so that its answer does: the last one may be lost."""

    async def work(self) -> None:
        """Heartbeats if it is time, else takes records from the leaders of its partitions."""
        try:
            if self._coordinator < 0:
                await self._find_coordinator()
            elif self._client.now_us >= self._next_beat_us:
                await self._heartbeat(self.epoch)
        except PeerUnreachable:
            self._coordinator = -1
        await self._take()

    async def leave(self) -> None:
        """Ends its sessions, and leaves the group, if brokers answer."""
        for broker, session in list(self._sessions.items()):
            if self._client.is_connected(broker):
                try:
                    await self._fetch(broker, session, ENDING_SESSION, sorted(session.partitions), [])
                except PeerUnreachable:
                    continue
        self._sessions.clear()
        if self._coordinator >= 0 and self.epoch != JOINING:
            try:
                await self._heartbeat(LEAVING)
            except PeerUnreachable:
                return

    # Membership

    async def _find_coordinator(self) -> None:
        client = self._client
        request = m.FindCoordinatorRequest(key=GROUP, key_type=0)
        found = await client.ask(client.anyone()[0], request, m.FindCoordinatorResponse, 3)
        self._coordinator = -1 if found.error_code else found.node_id

    async def _heartbeat(self, epoch: int) -> None:
        client = self._client
        request = m.ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=[client.cluster.topic] if self._is_full or epoch == JOINING else None,
        )
        self._is_full = True
        answer = await client.ask(self._coordinator, request, m.ShareGroupHeartbeatResponse, 1)
        code = ErrorCode(answer.error_code)
        if code in LOST_MEMBERSHIP:
            client.note(f"{self.member_id} is no longer a member: {code.name}")
            self.epoch = JOINING
        elif code in REPEATED:
            self._coordinator = -1
        elif code:
            raise AssertionError(f"a heartbeat of {self.member_id} was refused: {code.name}: {answer.error_message}")
        elif epoch != LEAVING:
            self._is_full, self.epoch = False, answer.member_epoch
            self._next_beat_us = client.now_us + answer.heartbeat_interval_ms * 1000
            if answer.assignment is not None:
                self._assign(answer.assignment.topic_partitions)

    def _assign(self, topics: Sequence[Any]) -> None:
        assigned = {number for each in topics for number in each.partitions}
        if topics:
            self._topic_id = topics[0].topic_id
        if assigned != self.assigned:
            self._client.note(f"{self.member_id} fetches {sorted(assigned)} from epoch {self.epoch} on")
            self.assigned = assigned

    # Records

    async def _take(self) -> None:
        client = self._client
        by_leader: dict[int, set[int]] = {}
        for partition in sorted(self.assigned):
            by_leader.setdefault(client.leaders.get(partition, (-1, -1))[0], set()).add(partition)
        if -1 in by_leader or not by_leader:
            await client.refresh()
        for leader in sorted({*by_leader, *self._sessions} - {-1}):
            try:
                await self._take_from(leader, by_leader.get(leader, set()))
            except PeerUnreachable:
                self._sessions.pop(leader, None)
                await client.refresh()

    async def _take_from(self, broker: int, wanted: set[int]) -> None:
        client, chance = self._client, self._client.chance
        session = self._sessions.get(broker)
        if session is None or not client.is_connected(broker):
            if not wanted:
                self._sessions.pop(broker, None)
                return
            session = self._sessions[broker] = _Session()
        if session.held and not self.is_willing and chance.random() < 0.12:
            await client.pause(0, 2 * SHARE_LOCK_MS)
            if not client.is_connected(broker):
                return
        fates = self._fates(session)
        if fates and chance.random() < 0.5:
            if not await self._acknowledge(broker, session, fates):
                return
            fates = []
        epoch = session.epoch if wanted else ENDING_SESSION
        await self._fetch(broker, session, epoch, sorted(wanted - session.partitions), fates, wanted)
        if epoch == ENDING_SESSION:
            self._sessions.pop(broker, None)

    def _fates(self, session: _Session) -> Fates:
        """What is to become of the records that the session holds: the same for all, or for each another one. Records
        without a fate are never acknowledged."""
        chance, held = self._client.chance, session.held
        session.held = []
        if self.is_willing:
            return [(each, ACCEPT) for each in held]
        fates = []
        kind = self._fate()
        is_mixed = chance.random() < 0.3
        for each in held:
            kind = self._fate() if is_mixed else kind
            if kind:
                fates.append((each, kind))
        return fates

    def _fate(self) -> int:
        return self._client.chance.choices((ACCEPT, RELEASE, REJECT, 0), (70, 14, 4, 12))[0]

    async def _acknowledge(self, broker: int, session: _Session, fates: Fates) -> bool:
        """Acknowledges in a request of its own; whether the session goes on."""
        Request = m.ShareAcknowledgeRequest
        partitions = [
            Request.AcknowledgePartition(
                partition_index=partition, acknowledgement_batches=_batches(Request.AcknowledgementBatch, some)
            )
            for partition, some in _by_partition(fates).items()
        ]
        request = Request(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            topics=[Request.AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)],
        )
        noted = self._note_sent(fates, broker)
        answer = await self._client.ask(broker, request, m.ShareAcknowledgeResponse, FETCH_VERSION)
        code = ErrorCode(answer.error_code)
        told = {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}
        self._note_answers(noted, code, told)
        session.epoch += 1
        if code:
            self._sessions.pop(broker, None)
        return not code

    async def _fetch(
        self,
        broker: int,
        session: _Session,
        epoch: int,
        added: list[int],
        fates: Fates,
        wanted: set[int] | None = None,
    ) -> None:
        client, cluster = self._client, self._client.cluster
        Request = m.ShareFetchRequest
        by_partition = _by_partition(fates)
        partitions = [
            Request.FetchPartition(
                partition_index=number,
                acknowledgement_batches=_batches(Request.AcknowledgementBatch, by_partition.get(number, [])),
            )
            for number in sorted({*added, *by_partition})
        ]
        gone = sorted(session.partitions - wanted) if wanted is not None and epoch > NEW_SESSION else []
        request = Request(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=client.chance.choice((1, 5, 100)),
            batch_size=client.chance.choice((1, 5, 100)),
            share_acquire_mode=client.chance.choice((0, 1)),
            topics=[Request.FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[Request.ForgottenTopic(topic_id=self._topic_id, partitions=gone)] if gone else [],
        )
        sent_us = client.now_us
        asked = set() if epoch == ENDING_SESSION else (session.partitions | set(added)) - set(gone)
        epochs = {number: self._epoch_at(broker, number) for number in asked}
        noted = self._note_sent(fates, broker)
        try:
            answer = await client.ask(broker, request, m.ShareFetchResponse, FETCH_VERSION)
        except PeerUnreachable:
            cluster.history.unanswered_fetches += [UnansweredFetch(number, sent_us) for number in sorted(asked)]
            raise
        code = ErrorCode(answer.error_code)
        parts = [each for topic in answer.responses for each in topic.partitions]
        self._note_answers(noted, code, {each.partition_index: each.acknowledge_error_code for each in parts})
        if code:
            client.note(f"{self.member_id} fetches in epoch {epoch} from broker {broker}: {code.name}")
            cluster.history.unanswered_fetches += [UnansweredFetch(number, sent_us) for number in sorted(asked)]
            self._sessions.pop(broker, None)
            return
        session.epoch, session.partitions = epoch + 1, asked
        for each in parts:
            self._got(broker, session, each, sent_us, epochs.get(each.partition_index, -1))
        if any(each.error_code for each in parts):
            await client.refresh()

    def _got(self, broker: int, session: _Session, answer: Any, sent_us: int, epoch: int) -> None:
        client, number = self._client, answer.partition_index
        state = client.cluster.leaderships().get(number)
        is_current = state is not None and state.leader == broker and state.leader_epoch == epoch
        got = [
            Delivery(
                self.member_id, number, offset, of.delivery_count, broker, sent_us, client.now_us, is_current=is_current
            )
            for of in answer.acquired_records
            for offset in range(of.first_offset, of.last_offset + 1)
        ]
        if got:
            ranges = ", ".join(
                f"{of.first_offset} to {of.last_offset} (time {of.delivery_count})" for of in answer.acquired_records
            )
            client.note(f"{self.member_id} gets {ranges} of partition {number} from broker {broker}")
        session.held += got
        client.cluster.history.deliveries += got

    def _epoch_at(self, broker: int, number: int) -> int:
        """The leader epoch in which a broker is with a partition, -1 if it is not running."""
        cluster = self._client.cluster
        parts = cluster.brokers[broker].parts
        partition = None if parts is None else parts.replicas.find(TopicPartition(cluster.topic, number))
        return -1 if partition is None else partition.leader_epoch

    # Notes

    def _note_sent(self, fates: Fates, broker: int) -> list[ShareAcknowledgement]:
        noted = [
            ShareAcknowledgement(
                self.member_id,
                each.partition,
                each.offset,
                kind,
                each.delivery_count,
                broker,
                each.at_us,
                self._client.now_us,
            )
            for each, kind in fates
        ]
        self._client.cluster.history.share_acknowledgements += noted
        return noted

    def _note_answers(self, noted: list[ShareAcknowledgement], code: ErrorCode, by_partition: dict[int, int]) -> None:
        for each in noted:
            found = code or ErrorCode(by_partition.get(each.partition, ErrorCode.UNKNOWN_SERVER_ERROR))
            each.ended_us = self._client.now_us
            if found is ErrorCode.NONE:
                each.outcome = Outcome.ACKNOWLEDGED
            elif found in NOT_DONE:
                each.outcome = Outcome.REFUSED
        kinds = {each.kind for each in noted}
        for kind in sorted(kinds):
            done = [each for each in noted if each.kind == kind]
            for number, outcome in sorted({(each.partition, each.outcome.value) for each in done}):
                some = [each.offset for each in done if (each.partition, each.outcome.value) == (number, outcome)]
                what = f"{('', 'accepts', 'releases', 'rejects')[kind]} {_ranges(some)} of partition {number}"
                self._client.note(f"{done[0].member} {what}: {outcome}")


class ShareWorker:
    """A client that is a member of the share group again and again."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.client = Client(cluster, f"sharer-{number}")
        self._lives = 0
        self.member = self._next_life()
        self.is_settling = self.is_stopping = self.has_ended = False

    def start(self) -> None:
        """Begins."""
        process = self.client.process
        process.call(process.loop.create_task, self._run())

    async def _run(self) -> None:
        """Until it is told to stop: `is_settling` has it accept everything, `is_stopping` ends it."""
        chance = self.client.chance
        while not self.is_stopping:
            self.member.is_willing = self.is_settling
            await self.member.work()
            if not self.is_settling and chance.random() < 0.03:
                if chance.random() < 0.5:
                    self.client.note(f"{self.member.member_id} leaves")
                    await self.member.leave()
                else:
                    self.client.note(f"{self.member.member_id} dies")
                    self.client.hang_up()
                await self.client.pause(0, 1500)
                self.member = self._next_life()
            await self.client.pause(10, 60)
        self.has_ended = True

    def _next_life(self) -> Sharer:
        self._lives += 1
        return Sharer(self.client, f"{self.client.name}.{self._lives}")


def undrained(cluster: "Cluster") -> str:
    """Which share partitions have not reached the end of their partitions; "" if all have."""
    found = []
    for number, state in sorted(cluster.leaderships().items()):
        start, end = _progress(cluster, number, state.leader)
        if start != end:
            found.append(f"partition {number}: the start offset is {start}, the end {end}")
    return "; ".join(found)


def _progress(cluster: "Cluster", number: int, leader: int) -> tuple[int | None, int | None]:
    """The start offset of a share partition, and the partition's high watermark; None while it has no leader."""
    broker = cluster.brokers.get(leader)
    parts = broker.parts if broker is not None else None
    partition = None if parts is None else parts.replicas.find(TopicPartition(cluster.topic, number))
    if parts is None or partition is None or partition.log.topic_id is None:
        return None, -1
    led = parts.shares.manager.find(SharePartitionKey(GROUP, partition.log.topic_id, number))
    start = led.state.start_offset if led is not None and led.state is not None else None
    return start, partition.high_watermark


def _by_partition(fates: Fates) -> dict[int, Fates]:
    found: dict[int, Fates] = {}
    for each in fates:
        found.setdefault(each[0].partition, []).append(each)
    return found


def _ranges(offsets: Sequence[int]) -> str:
    """Ascending offsets, neighbours together."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)


def _batches(Batch: Any, fates: Fates) -> list[Any]:
    """Acknowledgement batches: of neighbours one, with a type for each record, or one if all have the same."""
    found: list[Any] = []
    for delivery, kind in sorted(fates, key=lambda fate: fate[0].offset):
        if found and found[-1].last_offset + 1 == delivery.offset:
            found[-1].last_offset = delivery.offset
            found[-1].acknowledge_types.append(kind)
        else:
            found.append(Batch(first_offset=delivery.offset, last_offset=delivery.offset, acknowledge_types=[kind]))
    for batch in found:
        if len(set(batch.acknowledge_types)) == 1:
            batch.acknowledge_types = batch.acknowledge_types[:1]
    return found
