"""Producer ids, unique in the cluster for all time: each broker takes a block of 1,000 from the tree at a time.

A block that a broker took and did not use up when it stopped is lost, which 2^63 ids allow.
Our brokers take them from the tree themselves; those of Apache Kafka ask the controller (AllocateProducerIds).
Source: Kafka's `ZkProducerIdManager`.
"""

import asyncio

from headrace.coordination import paths
from headrace.coordination.tree import BadVersion, SessionLost, Tree
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT64_MAX
from headrace.types import BrokerId, ProducerId

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out producer ids in the name of one broker."""

    def __init__(self, tree: Tree, broker_id: BrokerId) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._fetching = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id that nobody has had. Raises `KafkaError` when there are none left, and one to be tried again when the
        session ended under way."""
        async with self._fetching:
            if self._next > self._last:
                _, self._next, self._last = await take_block(self._tree, self._broker_id)
            self._next += 1
            return ProducerId(self._next - 1)


async def take_block(tree: Tree, broker_id: BrokerId) -> paths.ProducerIdBlock:
    """The next block, in the name of a broker. Raises `KafkaError` as `ProducerIds.next`."""
    while True:
        try:
            node = await tree.get(paths.PRODUCER_ID_BLOCK)
            first = paths.decode_producer_ids(node.data).last + 1 if node.data else 0
            last = first + BLOCK_SIZE - 1
            if last > INT64_MAX:
                raise KafkaError("every producer id has been handed out")
            block = paths.ProducerIdBlock(broker_id, first, last)
            await tree.set(paths.PRODUCER_ID_BLOCK, paths.encode_producer_ids(block), node.version)
        except BadVersion:
            continue  # another broker took this one
        except SessionLost:  # it may have been taken, and is lost then
            raise KafkaError("the session ended", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
        return block
