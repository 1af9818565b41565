"""A transactional producer in the simulation, at the level of the protocol, and fetches of committed records.

                       transaction.version 2                  transaction.version 0
    partitions         added with the first Produce 12        AddPartitionsToTxn 3, then Produce 11
    group offsets      added with TxnOffsetCommit 5           AddOffsetsToTxn 3, then TxnOffsetCommit 3
    end                EndTxn 5, which returns the next       EndTxn 4; the epoch stays
                       epoch

A request is repeated after each lost answer and each error upon which clients repeat it. In version 0 all transactions
of a producer have one epoch, so a request that arrives late may take effect in the next transaction (KIP-890 tells how,
and is why version 2 exists). After a lost answer, a client of version 0 therefore gets a new epoch before its next
transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.coordinators.groups.partitioning import partition_for
from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.records.any_format import iter_any_headers
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import read_marker
from headrace.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.types import TopicPartition
from tests.records.decoding import decode_any
from tests.simulation.clients import LEADER_ERRORS, Client
from tests.simulation.history import CommittedReading, Forgotten, GroupOffset, Initialized, Outcome, Seen, Sent
from tests.simulation.history import Transaction as Noted

GROUP, TRANSACTION = 0, 1
OTHER_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
REPEATED = {
    *OTHER_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
PRODUCE_REPEATED = {
    *LEADER_ERRORS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    *OTHER_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
MUST_END = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
LEAVES_OUTCOME_OPEN = {*OTHER_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT}
"""Errors of EndTxn after which its record may be in the log all the same."""


class Fenced(Exception):
    """The producer must end: another one has its transactional id, or the coordinator has ended its transaction."""


class Abortable(Exception):
    """The transaction can only be aborted."""


class Committed(NamedTuple):
    """What a fetch of committed records returned."""

    records: tuple[Seen, ...]
    next_position: int


class TransactionalProducer:
    """One life of a producer with a transactional id."""

    def __init__(self, client: Client, transactional_id: str, version: int, timeout_ms: int) -> None:
        self.client, self.transactional_id, self.version = client, transactional_id, version
        self._timeout_ms = timeout_ms
        self._coordinators: dict[tuple[int, str], int] = {}
        self.identity = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._has_begun = self._has_lost = False
        self._added: set[int] = set()
        self._has_offsets = False
        self._used_us = 0
        self._count = 0
        self._value_count = 0
        self.noted: Noted | None = None

    # Transactions

    async def init(self) -> None:
        """Gets the id and epoch, which fences the producers before it."""
        await self._init((-1, -1))

    def begin(self) -> Noted:
        """Begins a transaction."""
        self._count += 1
        client = self.client
        noted = self.noted = Noted(self.transactional_id, f"{client.name}.{self._count}", self.identity, client.now_us)
        client.cluster.history.transactions.append(noted)
        self._has_begun = self._has_offsets = False
        self._added.clear()
        return noted

    async def send(self, wanted: Mapping[int, Iterable[str]]) -> None:
        """Sends a batch to each of these partitions. The texts complete the values."""
        assert self.noted is not None
        batches: dict[int, list[Sent]] = {}
        for partition, texts in wanted.items():
            for text in texts:
                self._value_count += 1
                value = f"{self.client.name}.{self._value_count}{text}"
                batches.setdefault(partition, []).append(
                    Sent(self.client.name, partition, value, -1, True, self.client.now_us)
                )
        for batch in batches.values():
            self.noted.values += batch
            self.client.cluster.history.sent += batch
        if self.version < 2:
            await self._add_partitions([each for each in batches if each not in self._added])
        self._has_begun = True
        done = await asyncio.gather(
            *(self._deliver(partition, batch) for partition, batch in batches.items()), return_exceptions=True
        )
        for error in done:
            if isinstance(error, BaseException):
                raise error

    async def send_offset(self, group: str, partition: int, offset: int) -> None:
        """Commits an offset of a group with the transaction."""
        assert self.noted is not None
        noted = self.noted
        noted.group, noted.offset = group, offset
        producer_id, epoch = self.identity
        if self.version < 2 and not self._has_offsets:
            added = m.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group,
            )
            await self._at_coordinator(
                TRANSACTION,
                self.transactional_id,
                lambda to: self._code_of(to, added, m.AddOffsetsToTxnResponse, 3),
            )
            self._has_offsets = True
        self._has_begun = True
        told = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=noted.name
        )
        topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self.client.cluster.topic, partitions=[told])
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            member_id="",
            topics=[topic],
        )

        async def ask(to: int) -> ErrorCode:
            version = 5 if self.version >= 2 else 3
            answer = await self.client.ask(to, request, m.TxnOffsetCommitResponse, version)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        await self._at_coordinator(GROUP, group, ask)

    async def end(self, *, is_commit: bool) -> bool:
        """Commits or aborts; whether the transaction was committed."""
        assert self.noted is not None
        noted, client = self.noted, self.client
        if not self._has_begun:
            self._note_outcome(Outcome.REFUSED)
            return False
        if is_commit:
            noted.commit_began_us = client.now_us
        producer_id, epoch = self.identity
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=is_commit,
        )
        is_open = False

        async def ask(to: int) -> ErrorCode:
            nonlocal is_open
            try:
                answer = await client.ask(to, request, m.EndTxnResponse, 5 if self.version >= 2 else 4)
            except PeerUnreachable:
                is_open = True
                raise
            code = ErrorCode(answer.error_code)
            is_open = is_open or code in LEAVES_OUTCOME_OPEN
            if code is ErrorCode.NONE and self.version >= 2:
                self._take((answer.producer_id, answer.producer_epoch))
            return code

        try:
            await self._at_coordinator(TRANSACTION, self.transactional_id, ask)
        except (Fenced, Abortable) as error:
            self._note_outcome(Outcome.UNKNOWN if is_commit and is_open else Outcome.REFUSED, f" ({error})")
            if not is_commit and not isinstance(error, Fenced):
                # Nothing was begun, as far as the coordinator knows.
                await self._renew()
                return False
            raise Fenced(str(error)) from None
        self._note_outcome(Outcome.ACKNOWLEDGED if is_commit else Outcome.REFUSED)
        if self.version < 2 and (self._has_lost or not is_commit):
            await self._renew()
        return is_commit

    def _note_outcome(self, outcome: Outcome, why: str = "") -> None:
        noted = self.noted
        assert noted is not None
        noted.outcome, noted.ended_us = outcome, self.client.now_us
        names = {Outcome.ACKNOWLEDGED: "committed", Outcome.REFUSED: "not committed", Outcome.UNKNOWN: "unknown"}
        shown = [f"{each.value} in {each.partition}" for each in noted.values[:6]] + ["…"] * (len(noted.values) > 6)
        values = ", ".join(shown)
        self.client.note(f"transaction {noted.name} of {noted.producer}: {values}: {names[outcome]}{why}")

    # Requests

    async def _renew(self) -> None:
        await self._init(self.identity)
        self._has_lost = False

    async def _init(self, known: tuple[int, int]) -> None:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )

        async def ask(to: int) -> ErrorCode:
            answer = await self.client.ask(to, request, m.InitProducerIdResponse, 4)
            if not answer.error_code:
                self._take((answer.producer_id, answer.producer_epoch))
            return ErrorCode(answer.error_code)

        await self._at_coordinator(TRANSACTION, self.transactional_id, ask)

    def _take(self, identity: tuple[int, int]) -> None:
        """Begins with the sequences of a new epoch."""
        client = self.client
        self.identity, self._sequences = identity, {}
        client.note(f"{self.transactional_id} is producer {identity[0]}, epoch {identity[1]}")
        client.cluster.history.initialized.append(
            Initialized(client.name, self.transactional_id, *identity, client.now_us)
        )

    async def _add_partitions(self, partitions: list[int]) -> None:
        if not partitions:
            return
        topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
            name=self.client.cluster.topic, partitions=partitions
        )
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity[0],
            v3_and_below_producer_epoch=self.identity[1],
            v3_and_below_topics=[topic],
        )

        async def ask(to: int) -> ErrorCode:
            self._has_begun = True  # if the answer is lost, the transaction may have begun
            answer = await self.client.ask(to, request, m.AddPartitionsToTxnResponse, 3)
            codes = {each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition}
            codes.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
            return ErrorCode(max(codes, default=0))

        await self._at_coordinator(TRANSACTION, self.transactional_id, ask)
        self._added.update(partitions)

    async def _code_of(self, to: int, request: m.AddOffsetsToTxnRequest, answer: type, version: int) -> ErrorCode:
        self._has_begun = True
        return ErrorCode((await self.client.ask(to, request, answer, version)).error_code)

    async def _at_coordinator(self, kind: int, key: str, ask: Callable[[int], Awaitable[ErrorCode]]) -> None:
        """Asks the coordinator again and again. Raises `Fenced` and `Abortable`."""
        client = self.client
        while True:
            try:
                coordinator = await self._coordinator(kind, key)
                if coordinator < 0:
                    await client.pause(20, 150)
                    continue
                asked_us = client.now_us
                code = await ask(coordinator)
            except PeerUnreachable:
                self._has_lost = True
                self._coordinators.pop((kind, key), None)
                await client.pause(20, 150)
                continue
            if code is ErrorCode.NONE:
                self._used_us = asked_us  # the time that the coordinator keeps, though it may answer seconds later
                return
            if code not in REPEATED:
                raise self._refusal(code, coordinator, self._led_by_coordinator(kind, key))
            if code in OTHER_COORDINATOR:
                self._has_lost = True  # the coordinator may have written it all the same
                self._coordinators.pop((kind, key), None)
            await client.pause(20, 150)

    def _refusal(self, code: ErrorCode, broker: int, led: TopicPartition) -> Exception:
        """`broker`: who refused, as the leader of `led`. One that was paused, and has not heard yet that it was
        replaced, knows the producer before, and refuses the new one, as in Apache Kafka."""
        client = self.client
        if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            state = client.cluster.all_leaderships().get(led)
            if state is None or state.leader == broker:
                client.cluster.history.forgotten.append(
                    Forgotten(client.name, self.transactional_id, self._used_us, client.now_us)
                )
        return Fenced(code.name) if code in MUST_END else Abortable(code.name)

    def _led_by_coordinator(self, kind: int, key: str) -> TopicPartition:
        if kind == GROUP:
            return TopicPartition(OFFSETS_TOPIC, 0)
        return TopicPartition(TRANSACTIONS_TOPIC, partition_for(key, self.client.cluster.plan.transaction_partitions))

    async def _coordinator(self, kind: int, key: str) -> int:
        known = self._coordinators.get((kind, key))
        if known is None:
            request = m.FindCoordinatorRequest(key=key, key_type=kind)
            found = await self.client.ask(self.client.anyone()[0], request, m.FindCoordinatorResponse, 3)
            if found.error_code:
                return -1
            known = self._coordinators[kind, key] = found.node_id
        return known

    # Batches

    async def _deliver(self, partition: int, batch: list[Sent]) -> None:
        """Repeats a batch until it is acknowledged. Raises `Fenced` and `Abortable`."""
        client = self.client
        deadline = client.now_us + 6_000_000
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(batch)
        while client.now_us < deadline:
            leader = client.leaders.get(partition, (-1, -1))[0]
            if leader < 0:
                await client.refresh()
                await client.pause(20, 200)
                continue
            try:
                code, offset = await self._produce(leader, partition, batch, sequence)
            except PeerUnreachable:
                self._has_lost = True
                await client.refresh()
                await client.pause(20, 150)
                continue
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                for number, each in enumerate(batch):
                    each.outcome = Outcome.ACKNOWLEDGED
                    each.offset = offset + number if code is ErrorCode.NONE else -1
                return
            if code not in PRODUCE_REPEATED:
                raise self._refusal(code, leader, TopicPartition(client.cluster.topic, partition))
            if code in LEADER_ERRORS:
                await client.refresh()
            await client.pause(20, 150)
        self._has_lost = True
        raise Abortable("the delivery time-out is over")

    async def _produce(self, leader: int, partition: int, batch: list[Sent], sequence: int) -> tuple[ErrorCode, int]:
        now_ms = self.client.process.now_ms()
        records = encode_batch(
            [Record(0, now_ms, None, each.value.encode()) for each in batch],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=memoryview(records))
        topic = m.ProduceRequest.TopicProduceData(name=self.client.cluster.topic, partition_data=[data])
        request = m.ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = await self.client.ask(leader, request, m.ProduceResponse, 12 if self.version >= 2 else 11)
        told = answer.responses[0].partition_responses[0]
        return ErrorCode(told.error_code), told.base_offset


async def fetch_committed(
    client: Client, partition: int, position: int, rack: str = "", max_bytes: int = 1 << 20
) -> Committed | None:
    """The committed records from `position` on that the leader, or a replica in the rack, returns; None after an
    error. Raises `PeerUnreachable`."""
    leader, epoch = client.leaders.get(partition, (-1, -1))
    source = client.nearby.get(partition, leader)
    if leader < 0:
        await client.refresh()
        return None
    wanted = m.FetchRequest.FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=position,
        log_start_offset=-1,
        partition_max_bytes=min(max_bytes, client.chance.choice((100, 400, 1 << 20))),
    )
    topic = m.FetchRequest.FetchTopic(topic=client.cluster.topic, partitions=[wanted])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=200, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    request.isolation_level, request.rack_id = 1, rack
    try:
        answer = await client.ask(source, request, m.FetchResponse, 11)
    except PeerUnreachable:
        client.nearby.pop(partition, None)
        raise
    told = answer.responses[0].partitions[0]
    if told.error_code:
        client.nearby.pop(partition, None)
        await client.refresh()
        return None
    if told.preferred_read_replica >= 0:
        client.nearby[partition] = told.preferred_read_replica
    aborted = [(each.first_offset, each.producer_id) for each in told.aborted_transactions or ()]
    found = _committed(bytes(told.records or b""), position, aborted)
    client.cluster.history.committed_readings.append(
        CommittedReading(
            client.name, partition, source, client.now_us, position, found.next_position, found.records,
            told.last_stable_offset, told.high_watermark,
        )
    )  # fmt: skip
    return found


def _committed(data: bytes, position: int, aborted: list[tuple[int, int]]) -> Committed:
    """Leaves out the records of aborted transactions, as clients do from the list that Fetch returns."""
    left = sorted(aborted)
    aborting: set[int] = set()
    records: list[Seen] = []
    for at, header in iter_any_headers(data):
        while left and left[0][0] <= header.last_offset:
            aborting.add(left.pop(0)[1])
        batch = data[at : at + header.size_bytes]
        if header.is_control:
            if read_marker(batch).is_abort:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records += [
                Seen(each.offset, bytes(each.value or b"").decode())
                for each in decode_any(batch)
                if each.offset >= position
            ]
        position = max(position, header.next_offset)
    return Committed(tuple(records), position)


async def committed_offset(
    client: Client, group: str, partition: int, *, is_stable: bool = True, is_final: bool = False
) -> int | None:
    """A group's offset, -1 if there is none; None after an error. Raises `PeerUnreachable`."""
    request = m.FindCoordinatorRequest(key=group, key_type=GROUP)
    found = await client.ask(client.anyone()[0], request, m.FindCoordinatorResponse, 3)
    if found.error_code:
        return None
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=client.cluster.topic, partition_indexes=[partition])
    asked = m.OffsetFetchRequest(group_id=group, topics=[topic], require_stable=is_stable)
    answer = await client.ask(found.node_id, asked, m.OffsetFetchResponse, 7)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return None
    told = answer.topics[0].partitions[0]
    client.cluster.history.group_offsets.append(
        GroupOffset(group, told.metadata or "", told.committed_offset, client.now_us, is_final)
    )
    if is_stable:
        # A coordinator that was paused, and has not heard yet that it was replaced, tells an old offset, as in Apache
        # Kafka. No member of the group would ask it: nobody can join there, for that needs a record in its log.
        state = client.cluster.all_leaderships().get(TopicPartition(OFFSETS_TOPIC, 0))
        if state is not None and state.leader != found.node_id:
            return None
    return told.committed_offset
