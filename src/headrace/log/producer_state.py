"""What a partition remembers of each idempotent producer: the newest epoch, and its last five batches.

    batch                                           answer
    the sequences of one of the last five           its old offsets; not written again
    sequences that end before those five            DuplicateSequence
    the sequence after the last one                 written; 2147483647 is followed by 0
    any other sequence                              OutOfOrderSequence
    an older epoch                                  InvalidProducerEpoch
    a newer epoch                                   must begin with sequence 0, else OutOfOrderSequence
    a producer that is not known                    written, whatever its sequence

The last line is Kafka's since 2.4 (KIP-360): what is known of a producer goes away with its records, and that must
not stop it. Transactions: the first offset of each one that is open, which bounds what a committed reader may see.

Where Apache Kafka differs: it has dropped DuplicateSequence and answers OutOfOrderSequence there; its clients still
take DuplicateSequence for a success, which it is. And it lets a producer expire by the timestamps of its records; we
go by the clock at the append, or old data that is loaded today would be forgotten, duplicates and all, at the next
start. Source: Kafka's ProducerStateManager, ProducerStateEntry, ProducerAppendInfo. Left out: the verification of
a transaction's first append (KIP-890).
"""

from bisect import insort
from typing import NamedTuple

from headrace.errors import (
    DuplicateSequence,
    ErrorCode,
    InvalidProducerEpoch,
    KafkaError,
    OutOfOrderSequence,
)
from headrace.limits import INT32_MAX, PRODUCER_BATCHES_KEPT
from headrace.log.txn_index import AbortedTransaction
from headrace.records.header import BatchHeader

NO_SEQUENCE = -1
NO_EPOCH = -1


class KeptBatch(NamedTuple):
    """One of the last batches of a producer. `timestamp_ms` is the batch's largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """The batch's first sequence, which may lie before the wrap."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        """The batch's first offset."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer. `seen_ms` is the clock at its last append; `open_since` the first offset of its open
    transaction, or -1."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "open_since", "producer_id", "seen_ms")

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH, seen_ms: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.coordinator_epoch = -1
        self.open_since = -1
        self.batches: list[KeptBatch] = []

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch; -1 when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def set_epoch(self, epoch: int) -> None:
        """Begin a new epoch: sequences begin anew."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class OpenTransaction(NamedTuple):
    """A transaction from its first offset; ordered by it."""

    first_offset: int
    producer_id: int


class ClosedTransaction(NamedTuple):
    """A transaction whose marker, at `last_offset`, the high watermark has not passed yet."""

    first_offset: int
    last_offset: int


class Producers:
    """The producers of one partition. `end_offset` is the offset up to which (exclusively) they are known."""

    __slots__ = ("_closed", "_open", "end_offset", "entries")

    def __init__(self, end_offset: int = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset
        self._open: list[OpenTransaction] = []
        self._closed: list[ClosedTransaction] = []

    def check(self, header: BatchHeader) -> KeptBatch | None:
        """Whether a client's batch may be appended: None, or the batch that it repeats.

        Raises OutOfOrderSequence, DuplicateSequence, InvalidProducerEpoch; InvalidTxnState for a batch outside
        the transaction that its producer has open.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch == entry.epoch:
            if first != (entry.last_sequence + 1) & INT32_MAX:
                return self._duplicate(entry, first, header.last_sequence)
        elif epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {entry.epoch} here; a batch of epoch {epoch} is refused"
            )
        elif first != 0 and entry.epoch != NO_EPOCH:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins epoch {epoch} with sequence {first} instead of 0"
            )
        if entry.open_since >= 0 and not header.is_transactional:
            raise KafkaError(
                f"producer {header.producer_id} has a transaction open since offset {entry.open_since}; "
                "a batch outside it is refused",
                ErrorCode.INVALID_TXN_STATE,
            )
        return None

    def _duplicate(self, entry: ProducerEntry, first: int, last: int) -> KeptBatch:
        """The kept batch that has these sequences. Raises DuplicateSequence, OutOfOrderSequence when none has."""
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        sequences = f"producer {entry.producer_id} sent sequences {first} to {last} after {entry.last_sequence}"
        if entry.batches:
            behind = (entry.batches[0].first_sequence - 1 - last) & INT32_MAX
            if behind <= INT32_MAX // 2:
                raise DuplicateSequence(f"{sequences}: a batch from before the last {PRODUCER_BATCHES_KEPT}")
        raise OutOfOrderSequence(sequences)

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
        if header.is_transactional and entry.open_since < 0:
            entry.open_since = base_offset
            insort(self._open, OpenTransaction(base_offset, producer_id))

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Whether a marker may be appended. Raises InvalidProducerEpoch, TransactionCoordinatorFenced."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {entry.producer_id} has epoch {entry.epoch} here; "
                f"a marker of epoch {header.producer_epoch} is refused"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                f"a marker of coordinator epoch {coordinator_epoch} comes after one of {entry.coordinator_epoch}",
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    def end_transaction(
        self, header: BatchHeader, base_offset: int, coordinator_epoch: int, *, is_abort: bool, now_ms: int
    ) -> AbortedTransaction | None:
        """Note that a marker was written at `base_offset`; returns the transaction if it aborted one."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id)
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.seen_ms = now_ms
        first_offset, entry.open_since = entry.open_since, -1
        if first_offset < 0:
            return None
        self._open.remove(OpenTransaction(first_offset, entry.producer_id))
        self._closed.append(ClosedTransaction(first_offset, base_offset))
        if not is_abort:
            return None
        stable = self._open[0].first_offset if self._open else base_offset + 1
        return AbortedTransaction(entry.producer_id, first_offset, base_offset, stable)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the closed transactions whose marker every replica has."""
        if self._closed:
            self._closed = [closed for closed in self._closed if closed.last_offset >= high_watermark]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker the high watermark has not passed."""
        unstable = [self._open[0].first_offset] if self._open else []
        unstable.extend(closed.first_offset for closed in self._closed)
        return min(unstable) if unstable else None

    def restore(self, entry: ProducerEntry) -> None:
        """Take over an entry of a snapshot."""
        self.entries[entry.producer_id] = entry
        if entry.open_since >= 0:
            insort(self._open, OpenTransaction(entry.open_since, entry.producer_id))

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget the producers that wrote nothing for `after_ms`, unless they have a transaction open."""
        idle = [e.producer_id for e in self.entries.values() if e.open_since < 0 and now_ms - e.seen_ms >= after_ms]
        for producer_id in idle:
            del self.entries[producer_id]
