"""The requests to the transaction coordinator, and their answers."""

from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.types import NO_PRODUCER


class TransactionProducer(NamedTuple):
    """A producer id and epoch."""

    producer_id: int = NO_PRODUCER
    epoch: int = -1


class InitProducer(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: TransactionProducer | None = None
    """The id and epoch of a producer that continues after an error."""
    is_two_phase: bool = False
    keeps_prepared: bool = False


class Initial(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer: TransactionProducer = TransactionProducer()


class Ended(NamedTuple):
    """The answer to EndTxn: the producer id and epoch of the next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
