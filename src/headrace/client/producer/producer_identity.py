"""The producer of a batch, by which a broker drops repeated batches and knows transactions."""

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """The producer id and epoch of an idempotent producer's batches."""

    producer_id: int = -1
    epoch: int = -1
