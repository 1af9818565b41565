"""The verification of a transaction's first append to a partition (KIP-890).

    verification = log.begin_verification(producer_id, first_sequence, epoch, …)
    … the transaction coordinator confirms that the partition is in the producer's open transaction …
    appending.append(log, batch, header, …, verification=verification)

A batch that opens a transaction is appended with the verification that is current at that moment, and no other. A
marker, and the append itself, end the verification. So a confirmation from before a marker opens no transaction that
the coordinator does not know, which would never end. Later batches of the open transaction need no verification.

A verification has the lowest sequence that asked for it. A higher sequence is refused until that one is appended,
because its request may have failed with an error that the client retries. Source: Kafka's VerificationStateEntry,
VerificationGuard.
"""

from headrace.errors import OutOfOrderSequence
from headrace.records.format2.header import BatchHeader


class Verification:
    """A verification that has begun for one producer. Its identity is Kafka's verification guard."""

    __slots__ = ("_epoch", "_lowest_sequence", "_supports_epoch_bump", "begun_ms")

    def __init__(self, first_sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int) -> None:
        """`supports_epoch_bump` is true for a request of `transaction.version` 2."""
        self._lowest_sequence = first_sequence
        self._epoch = epoch
        self._supports_epoch_bump = supports_epoch_bump
        self.begun_ms = now_ms

    def join(self, first_sequence: int, epoch: int) -> None:
        """Note that another batch asks for the same verification."""
        if epoch > self._epoch:
            self._epoch, self._lowest_sequence = epoch, first_sequence
        elif epoch == self._epoch:
            self._lowest_sequence = min(self._lowest_sequence, first_sequence)

    def check_sequence(self, header: BatchHeader, *, has_batches: bool) -> None:
        """Check the sequence of the batch that opens the transaction. Raises OutOfOrderSequence.

        `has_batches` says whether the log knows a batch of the producer's. Without one, a producer of
        `transaction.version` 2 begins with sequence 0: each of its transactions has an epoch of its own.
        """
        first = header.base_sequence
        if self._supports_epoch_bump and first != 0 and not has_batches:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} begins a transaction of version 2 with sequence {first} instead of 0"
            )
        if first > self._lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {first} before sequence {self._lowest_sequence}, "
                "which waits for the verification of the same transaction"
            )


NOT_REQUIRED = Verification(0, -1, supports_epoch_bump=False, now_ms=0)
"""Passed with every batch when `transaction.partition.verification.enable` is false. It checks nothing."""
