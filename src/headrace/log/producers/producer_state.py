"""The producer state of a partition: the newest epoch and the last five batches of each idempotent producer.

    the batch has                                   result
    the sequences of one of the last five batches   its old offsets; not written again
    the sequence after the last one                 written; 0 follows 2147483647
    any other sequence                              OutOfOrderSequence
    an older epoch                                  InvalidProducerEpoch
    a newer epoch                                   must begin with sequence 0, else OutOfOrderSequence
    an unknown producer                             written, with any sequence

The last line follows Kafka since 2.4 (KIP-360): the log forgets a producer together with its records, and the producer
must still be able to continue. `refused_sequences` keeps the order of such a producer. Sequences before the last five
batches are out of order too. The log may not have all of a producer's batches, so it cannot tell whether those
sequences were written, and clients would take DUPLICATE_SEQUENCE_NUMBER for a success.

A transactional batch also needs an open transaction of its epoch, or a verification (`verification`), else its append
fails with INVALID_TXN_STATE. A marker ends the producer's transaction:

    the marker has                                  result
    an older epoch                                  InvalidProducerEpoch
    the same epoch, `transaction.version` 0 or 1    written
    the same epoch, `transaction.version` 2         written when no transaction is open: the coordinator repeats a
                                                    marker; else InvalidProducerEpoch, as version 2 ends each
                                                    transaction with the next epoch
    a newer epoch                                   written; the producer's sequences begin at 0 again
    a coordinator epoch older than the last one     TRANSACTION_COORDINATOR_FENCED

Apache Kafka lets a producer expire by the timestamps of its records. This log uses the clock at the append. Otherwise
the next start would forget the producers of old data that is loaded today, and would not recognize duplicates. Source:
Kafka's ProducerStateManager, ProducerStateEntry, ProducerAppendInfo.
"""

from typing import NamedTuple

from headrace.errors import ErrorCode, InvalidProducerEpoch, KafkaError, OutOfOrderSequence
from headrace.limits import INT16_MAX, INT32_MAX, PRODUCER_BATCHES_KEPT
from headrace.log.append_state import ProducerEnd, ProducersEnd
from headrace.log.producers.transactions import PartitionTransactions
from headrace.log.producers.verification import NOT_REQUIRED, Verification
from headrace.log.segment.txn_index import AbortedTransaction
from headrace.records.format2.header import TRANSACTIONAL_BIT, BatchHeader

NO_SEQUENCE = -1
NO_EPOCH = -1


class KeptBatch(NamedTuple):
    """One of the last batches of a producer.

    `last_sequence` and `last_offset` are inclusive. `offset_delta` is the last offset minus the first one.
    `timestamp_ms` is the batch's largest timestamp.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The batch's first sequence. It is greater than `last_sequence` when the sequences wrap within the batch."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        """The batch's first offset."""
        return self.last_offset - self.offset_delta


class ProducerEntry(ProducerEnd):
    """One producer.

    `seen_ms` is the time of its last append. `open_since` is the first offset of its open transaction, or -1.
    `coordinator_epoch` is that of its last transaction marker, or -1. `batches` are its last batches, oldest first.
    """

    __slots__ = ("coordinator_epoch", "producer_id")

    batches: list[KeptBatch]

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        seen_ms: int = -1,
        coordinator_epoch: int = -1,
        open_since: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.coordinator_epoch = coordinator_epoch
        self.open_since = open_since
        self.batches = []

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch; -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find(self, first_sequence: int, last_sequence: int) -> KeptBatch | None:
        """The kept batch with these sequences (both inclusive); None when there is none."""
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def set_epoch(self, epoch: int) -> None:
        """Set the producer's epoch. A different epoch begins with new sequences, so it drops the kept batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers(ProducersEnd):
    """The producers of one partition, from the batches below `end_offset` (exclusive)."""

    __slots__ = ("_verifications",)

    entries: dict[int, ProducerEntry]
    transactions: PartitionTransactions

    def __init__(self, end_offset: int = 0) -> None:
        self.entries = {}
        self.end_offset = end_offset
        self.transactions = PartitionTransactions()
        self._verifications: dict[int, Verification] = {}

    # Checking

    def check(self, header: BatchHeader) -> KeptBatch | None:
        """Check that a client's batch may be appended. Returns None, or the kept batch that it repeats.

        Raises OutOfOrderSequence and InvalidProducerEpoch. Raises KafkaError with INVALID_TXN_STATE for a
        non-transactional batch while its producer has a transaction open.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch == entry.epoch:
            if first != (entry.last_sequence + 1) & INT32_MAX:
                return self._duplicate(entry, first, header.last_sequence)
        elif epoch < entry.epoch:
            raise _older_epoch(entry, epoch, "batch")
        elif first != 0 and entry.epoch != NO_EPOCH:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} began epoch {epoch} with sequence {first}; sequence 0 is expected"
            )
        if entry.open_since >= 0 and not header.is_transactional:
            raise KafkaError(
                f"producer {header.producer_id} has a transaction open since offset {entry.open_since}; "
                "a batch outside it is refused",
                ErrorCode.INVALID_TXN_STATE,
            )
        return None

    def _duplicate(self, entry: ProducerEntry, first: int, last: int) -> KeptBatch:
        """The kept batch with these sequences (both inclusive). Raises OutOfOrderSequence when there is none."""
        found = entry.find(first, last)
        if found is None:
            raise OutOfOrderSequence(
                f"producer {entry.producer_id} sent sequences {first} to {last} after {entry.last_sequence}"
            )
        return found

    def check_transactional(
        self, header: BatchHeader, verification: Verification | None, *, has_sequences: bool
    ) -> KeptBatch | None:
        """Check that a transactional batch may be appended. Returns None, or the kept batch that it repeats.

        `verification` is the result of `begin_verification`, which the coordinator has confirmed since. A coordinator's
        own batch has no sequences. Raises as `check`, and KafkaError with INVALID_TXN_STATE for a batch that would open
        a transaction without the current verification.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self.entries.get(producer_id)
        if has_sequences and entry is not None and entry.epoch == epoch:
            kept = entry.find(header.base_sequence, header.last_sequence)
            if kept is not None:
                return kept
        current = self._verifications.get(producer_id)
        if entry is None or entry.open_since < 0 or entry.epoch != epoch:
            if entry is not None and epoch < entry.epoch:
                raise _older_epoch(entry, epoch, "batch")
            if verification is not NOT_REQUIRED and (current is None or current is not verification):
                raise KafkaError(
                    f"producer {producer_id} has no transaction open here, and the batch was not verified for one",
                    ErrorCode.INVALID_TXN_STATE,
                )
        if not has_sequences:
            return None
        if current is not None and verification is not NOT_REQUIRED:
            current.check_sequence(header, has_batches=entry is not None and bool(entry.batches))
        return self.check(header)

    def begin_verification(
        self, producer_id: int, first_sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """Begin the verification of a transactional batch, or join the producer's current one.

        Returns None when the producer has a transaction of this epoch open, which needs no verification. Raises
        InvalidProducerEpoch for an older epoch.
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch <= entry.epoch:
            if epoch < entry.epoch:
                raise _older_epoch(entry, epoch, "batch")
            if entry.open_since >= 0:
                return None
        current = self._verifications.get(producer_id)
        if current is None:
            current = self._verifications[producer_id] = Verification(
                first_sequence, epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
            )
        else:
            current.join(first_sequence, epoch)
        return current

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, transaction_version: int = 0
    ) -> None:
        """Check that a transaction marker may be appended.

        `transaction_version` is that of the transaction, from WriteTxnMarkers. Raises InvalidProducerEpoch, and
        KafkaError with TRANSACTION_COORDINATOR_FENCED for an older coordinator epoch.

        Below transaction.version 2 all transactions of a producer have one epoch. A marker that is delivered late,
        after the next transaction has begun here, ends that one, as in Apache Kafka: nothing in it tells the two
        apart. From 2 on a marker's epoch is that of the next transaction's records, so a late one is refused. The last
        epoch is excepted, as in Apache Kafka: no marker could have a later one.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise _older_epoch(entry, epoch, "marker")
        if epoch == entry.epoch != INT16_MAX and transaction_version >= 2 and entry.open_since >= 0:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has a transaction of epoch {epoch} open here; "
                "a marker of transaction version 2 must have a later epoch"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                f"a marker of coordinator epoch {coordinator_epoch} comes after one of {entry.coordinator_epoch}",
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    # Noting what was written

    def append(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note that a data batch was written at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != header.producer_epoch:
            entry.set_epoch(header.producer_epoch)
        entry.seen_ms = now_ms
        last_offset = base_offset + header.last_offset_delta
        batches = entry.batches
        if len(batches) == PRODUCER_BATCHES_KEPT:
            del batches[0]
        batches.append(KeptBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp))
        if header.attributes & TRANSACTIONAL_BIT:
            self._verifications.pop(producer_id, None)
            if entry.open_since < 0:
                entry.open_since = base_offset
                self.transactions.begin(base_offset, producer_id)

    def aborted_by(self, producer_id: int, last_offset: int) -> AbortedTransaction | None:
        """The transaction that an abort marker at `last_offset` ends; None when the producer has none open.

        Changes nothing: the transaction stays open until its index entry is written.
        """
        entry = self.entries.get(producer_id)
        if entry is None or entry.open_since < 0:
            return None
        stable = self.transactions.first_open_beside(producer_id)
        return AbortedTransaction(
            producer_id, entry.open_since, last_offset, last_offset + 1 if stable is None else stable
        )

    def end_transaction(self, header: BatchHeader, base_offset: int, coordinator_epoch: int, *, now_ms: int) -> None:
        """Note that a marker was written at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.seen_ms = now_ms
        self._verifications.pop(producer_id, None)
        first_offset, entry.open_since = entry.open_since, -1
        if first_offset >= 0:
            self.transactions.end(first_offset, producer_id, base_offset)

    def restore(self, entry: ProducerEntry) -> None:
        """Add an entry that was read from a snapshot."""
        self.entries[entry.producer_id] = entry
        if entry.open_since >= 0:
            self.transactions.begin(entry.open_since, entry.producer_id)

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget the producers that wrote nothing for `after_ms`, except those with an open transaction.

        Also forgets the verifications that began as long ago, and that no append has ended.
        """
        self._forget_until(now_ms - after_ms)
        stale = [key for key, each in self._verifications.items() if now_ms - each.begun_ms >= after_ms]
        for producer_id in stale:
            del self._verifications[producer_id]

    def _forget_until(self, seen_ms: int) -> None:
        """Forget the producers that wrote nothing after `seen_ms`, except those with an open transaction."""
        idle = [e.producer_id for e in self.entries.values() if e.open_since < 0 and e.seen_ms <= seen_ms]
        for producer_id in idle:
            del self.entries[producer_id]

    def forget(self, producer_id: int, seen_ms: int) -> bool:
        """Forget a producer if it has written nothing after `seen_ms` and has no open transaction; whether it was."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.open_since >= 0 or entry.seen_ms > seen_ms:
            return False
        del self.entries[producer_id]
        return True


def _older_epoch(entry: ProducerEntry, epoch: int, what: str) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {entry.producer_id} has epoch {entry.epoch}; a {what} of epoch {epoch} is refused"
    )
