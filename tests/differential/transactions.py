"""Transactional requests in few words, for the scenarios of transactions.

A `Transactions` is a transactional producer of one of two kinds:
    of_version(1)   EndTxn 4, Produce 11, AddPartitionsToTxn 3: the client adds partitions, epochs stay
    of_version(2)   EndTxn 5, Produce 12, TxnOffsetCommit 5: a produce adds its partition, each end bumps the epoch
"""

from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.differential.conversation import Conversation, batch, produce_request

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
LATER = (
    CONCURRENT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass
class Transactions:
    """A transactional producer: its id, its epoch, and the next sequence of each partition."""

    ask: Conversation
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    version: int = 2
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def with_(self, **changes: int) -> "Transactions":
        """The same producer with another id, epoch or version."""
        return replace(self, **changes, sequences=dict(self.sequences))  # type: ignore[arg-type]

    def init(self, timeout_ms: int = 60_000) -> "Transactions":
        """Get an id and an epoch, as soon as no end is in progress; not recorded."""
        request = m.InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        answer = self.ask.settle(lambda found: found.error_code not in LATER, request, 4)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}
        return self

    # ---- requests ------------------------------------------------------------------------------------------------

    def init_request(self, *, timeout_ms: int = 60_000, known: bool = False, **more: Any) -> m.InitProducerIdRequest:
        """InitProducerId; with the producer's id and epoch if they are `known`."""
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **more
        )
        if known:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        return request

    def add_request(self, *partitions: tuple[str, int]) -> m.AddPartitionsToTxnRequest:
        """AddPartitionsToTxn of versions 0 to 3."""
        Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        names = list(dict.fromkeys(name for name, _ in partitions))
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                Topic(name=name, partitions=[number for each, number in partitions if each == name]) for name in names
            ],
        )

    def batched_add_request(self, *partitions: tuple[str, int], verify_only: bool = False) -> Any:
        """AddPartitionsToTxn of versions 4 and 5."""
        old = self.add_request(*partitions)
        transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=old.v3_and_below_topics,
        )
        return m.AddPartitionsToTxnRequest(transactions=[transaction])

    def add_offsets_request(self, group: str) -> m.AddOffsetsToTxnRequest:
        """AddOffsetsToTxn."""
        return m.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

    def commit_offset_request(
        self, group: str, topic: str, offset: int = 5, partition: int = 0, **more: Any
    ) -> m.TxnOffsetCommitRequest:
        """TxnOffsetCommit of one partition."""
        Topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        Partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        wanted = Partition(partition_index=partition, committed_offset=offset, committed_metadata="")
        return m.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[Topic(name=topic, partitions=[wanted])],
            **more,
        )

    def end_request(self, *, committed: bool) -> m.EndTxnRequest:
        """EndTxn."""
        return m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def batch(self, *values: str, sequence: int = 0, is_transactional: bool = True) -> bytes:
        """A batch of this producer."""
        return batch(
            values or ("a",),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    def produce_request(self, topic: str, *values: str, partition: int = 0) -> m.ProduceRequest:
        """Produce of the next records of a partition."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values or ("a",))
        records = self.batch(*values, sequence=sequence)
        return produce_request(topic, records, partition=partition, transactional_id=self.transactional_id)

    # ---- steps that are not recorded -----------------------------------------------------------------------------

    def add(self, *partitions: tuple[str, int]) -> None:
        """AddPartitionsToTxn 3 that succeeds."""
        found = self.ask.settle(
            lambda answer: all(
                part.partition_error_code != CONCURRENT
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ),
            self.add_request(*partitions),
            3,
        )
        for topic in found.results_by_topic_v3_and_below:
            for part in topic.results_by_partition:
                assert part.partition_error_code == 0, ErrorCode(part.partition_error_code).name

    def produce(self, topic: str, *values: str, partition: int = 0) -> None:
        """Records in the open transaction, or that open one."""
        if self.version == 1:
            self.add((topic, partition))
        request = self.produce_request(topic, *values, partition=partition)

        def code(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        answer = self.ask.settle(lambda found: code(found) != CONCURRENT, request, 10 + self.version)
        assert code(answer) == 0, ErrorCode(code(answer)).name

    def end(self, *, committed: bool) -> None:
        """Commit or abort."""
        answer = self.ask.settle(
            lambda found: found.error_code != CONCURRENT, self.end_request(committed=committed), 3 + self.version
        )
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        if self.version == 2:
            self._bump(answer.producer_id, answer.producer_epoch)

    def _bump(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    def commit(self) -> None:
        """Commit, and wait until it is complete."""
        self.end(committed=True)
        self.complete()

    def abort(self) -> None:
        """Abort, and wait until it is complete."""
        self.end(committed=False)
        self.complete()

    def complete(self) -> None:
        """Wait until the coordinator has written every marker."""
        self.ask.settle(
            lambda found: not found.transaction_states[0].transaction_state.startswith("Prepare"), self.describe(), 0
        )

    def describe(self) -> m.DescribeTransactionsRequest:
        """DescribeTransactions of this producer."""
        return m.DescribeTransactionsRequest(transactional_ids=[self.transactional_id])


def transactions(ask: Conversation, text: str = "x", version: int = 2, timeout_ms: int = 60_000) -> Transactions:
    """A transactional producer with a new transactional id, initialised."""
    return Transactions(ask, ask.name(text), version=version).init(timeout_ms)
