"""Keeps the order of a new idempotent producer when the broker refuses its first batch.

A client has up to five batches of a partition in flight. When the broker refuses the first batch, the client sends it
again, but the second batch is already on its way. The log refuses the second batch of a known producer, because it
expects the first batch's sequence. The log accepts any sequence from an unknown producer (KIP-360). Without this memory
the log would append the second batch, and then refuse the first batch for good, because its sequences come earlier.

    the batch was refused with             while the log does not know the producer
    an error that clients retry            later sequences of the same epoch fail with OutOfOrderSequence
    MESSAGE_TOO_LARGE, several records     the same: the Java client splits the batch, and the halves keep its sequences
    any other error                        nothing: the client gives the batch up
    CORRUPT_MESSAGE                        the producer id is not reliable: each unknown producer of the partition
                                           has to begin with sequence 0

Clients handle OutOfOrderSequence: they send the batch again after the refused one. The broker accepts a batch with a
newer epoch, an earlier sequence, or the refused sequence itself.

An entry lasts `REFUSED_SEQUENCE_KEPT_MS` after the last refusal, which is as long as a request may be in flight behind
the refused one. A client that gave up without a new epoch is not blocked for longer. Entries belong to the broker, not
to a log: a broker also refuses batches before it learns that it leads the partition, or that the partition exists. A
new leader does not need the old leader's entries, because clients resend refused batches in order before any others.
Apache Kafka has no such memory; there the producer begins a new epoch, and the two batches change places.
"""

from collections.abc import Container
from struct import Struct
from typing import NamedTuple

from headrace.errors import ErrorCode, InvalidProducerEpoch, OutOfOrderSequence
from headrace.limits import INT32_MAX, REFUSED_PRODUCERS_MAX, REFUSED_SEQUENCE_KEPT_MS
from headrace.records.format2.header import HEADER_BYTES, MAGIC, BatchHeader

ANYONE = -1
"""Stands for every producer, after a damaged batch whose producer id is not reliable."""

_MAGIC_AT = 16
_PRODUCER_AT = 43
_producer = Struct(">qhii")  # id, epoch, first sequence, record count

Where = tuple[str | bytes, int]
"""A partition: the topic and the partition number. The topic is its name, or its id when the request has an id that the
broker does not know."""


class RefusedSequence(NamedTuple):
    """A refused batch, which has to come first. `at_ms` is the time of its last refusal, in ms since the epoch."""

    epoch: int
    first_sequence: int
    at_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether no request can be in flight behind the batch any more. A jump of the clock also ends the wait."""
        return abs(now_ms - self.at_ms) >= REFUSED_SEQUENCE_KEPT_MS


class RefusedSequences:
    """The refused first sequences of one broker.

    `entries` is almost always empty, so a caller checks it before it calls `check`.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[tuple[Where, int], RefusedSequence] = {}  # by partition and producer id; the oldest first

    def note(
        self,
        where: Where,
        records: memoryview | bytes | None,
        code: ErrorCode,
        known_producers: Container[int],
        now_ms: int,
    ) -> None:
        """Note that the broker refused a batch with `code`.

        `records` is the whole batch of format 2; other content is ignored. `known_producers` are the producer ids that
        the partition's log knows.
        """
        if records is None or len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
            return
        producer_id, epoch, first, count = _producer.unpack_from(records, _PRODUCER_AT)
        if producer_id == ANYONE:  # not idempotent
            return
        if code is ErrorCode.CORRUPT_MESSAGE:
            self._put((where, ANYONE), RefusedSequence(-1, 0, now_ms))
            return
        if producer_id in known_producers:
            return
        key = (where, producer_id)
        known = self.entries.get(key)
        if known is not None and known.is_over(now_ms):
            known = None
        if not (code.retriable or (code is ErrorCode.MESSAGE_TOO_LARGE and count > 1)):
            if known is not None and known.epoch == epoch and known.first_sequence == first:
                del self.entries[key]
            return
        if known is None or epoch > known.epoch or (epoch == known.epoch and not _is_later(first, known)):
            self._put(key, RefusedSequence(epoch, first, now_ms))

    def check(self, where: Where, header: BatchHeader, now_ms: int) -> None:
        """Check that a batch of a producer that the log does not know may be appended, and drop the producer's entry.

        Raises OutOfOrderSequence while an earlier batch has to come first, and InvalidProducerEpoch for an older epoch.
        """
        key = (where, header.producer_id)
        refusal = self._find(key, now_ms)
        epoch, first = header.producer_epoch, header.base_sequence
        if refusal is not None:
            if epoch < refusal.epoch:
                raise InvalidProducerEpoch(
                    f"producer {header.producer_id} has sent epoch {refusal.epoch}; a batch of epoch {epoch} is refused"
                )
            if epoch == refusal.epoch and _is_later(first, refusal):
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {first}, but has to send the refused sequence "
                    f"{refusal.first_sequence} again first"
                )
            del self.entries[key]
        elif first != 0 and self._find((where, ANYONE), now_ms) is not None:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {first}, but has to send a refused damaged batch, which "
                "may be its first, again first"
            )

    def _find(self, key: tuple[Where, int], now_ms: int) -> RefusedSequence | None:
        refusal = self.entries.get(key)
        if refusal is not None and refusal.is_over(now_ms):
            del self.entries[key]
            return None
        return refusal

    def _put(self, key: tuple[Where, int], refusal: RefusedSequence) -> None:
        entries = self.entries
        entries.pop(key, None)
        while entries:
            oldest = next(iter(entries))
            if len(entries) < REFUSED_PRODUCERS_MAX and not entries[oldest].is_over(refusal.at_ms):
                break
            del entries[oldest]
        entries[key] = refusal


def _is_later(first_sequence: int, refusal: RefusedSequence) -> bool:
    """Whether a sequence comes after the refused one. Sequences wrap at 2^31."""
    return 0 < (first_sequence - refusal.first_sequence) & INT32_MAX <= INT32_MAX // 2
