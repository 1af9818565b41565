"""Producer ids: each broker takes blocks of 1,000 ids, unique in the cluster for all time, from the metadata store.

The unused ids of a block are lost when its broker stops; 2^63 ids allow that. headrace's brokers take blocks from the
metadata store themselves; Apache Kafka's brokers ask the controller (AllocateProducerIds).
Source: Kafka's `ZkProducerIdManager`.
"""

import asyncio

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT64_MAX
from headrace.metadata import znodes
from headrace.metastore.store import BadVersion, MetadataStore, SessionLost
from headrace.types import BrokerId, ProducerId

BLOCK_SIZE = 1000


class ProducerIds:
    """Allocates producer ids for one broker."""

    def __init__(self, store: MetadataStore, broker_id: BrokerId) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._fetching = asyncio.Lock()

    async def next(self) -> ProducerId:
        """A new producer id. Raises `KafkaError` if none is left; a retriable one if the session ended meanwhile."""
        async with self._fetching:
            if self._next > self._last:
                _, self._next, self._last = await take_block(self._store, self._broker_id)
            self._next += 1
            return ProducerId(self._next - 1)


async def take_block(store: MetadataStore, broker_id: BrokerId) -> znodes.ProducerIdBlock:
    """Takes the next block for a broker. Raises `KafkaError` as `ProducerIds.next`."""
    while True:
        try:
            node = await store.get(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_ids(node.data).last + 1 if node.data else 0
            last = first + BLOCK_SIZE - 1
            if last > INT64_MAX:
                raise KafkaError(f"no producer ids are left: {znodes.PRODUCER_ID_BLOCK} has reached the largest id")
            block = znodes.ProducerIdBlock(broker_id, first, last)
            await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(block), node.version)
        except BadVersion:
            continue  # another broker took this one
        except SessionLost:  # the block may have been taken; its ids are lost then
            raise KafkaError(
                "the session with the metadata store ended; try again", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            ) from None
        return block
