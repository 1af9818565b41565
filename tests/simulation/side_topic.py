"""A second topic, which an operator deletes and makes anew under the same name, and adds partitions to.

Each life of the topic has producers and a history of its own. The last one's is judged as that of any topic: what its
producers did not send is a phantom, and so is a record of an earlier life.
"""

from typing import TYPE_CHECKING, TypeVar

from headrace.errors import ErrorCode
from headrace.metadata import znodes
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.types import TopicPartition
from tests.simulation.clients import Client, Producer
from tests.simulation.history import History

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

R = TypeVar("R", bound=Message)

SIDE = "side"
PARTITIONS_MAX = 3
LAST_TRIES = 5


class SideTopic:
    """The topic, and its operator."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._life, self._working = 0, 0
        self._producers: list[Producer] = []
        self.history = History()
        """What the producers of this life did."""
        self.took: set[int] = set()
        """The partitions that took a write after everything was healed."""
        self.is_stopping = self.has_ended = False

    def begin(self) -> None:
        """Lets the operator work, until it is told to stop."""
        self._client = Client(self._cluster, "side-operator")
        process = self._client.process
        process.call(process.loop.create_task, self._run())

    def partitions(self) -> list[TopicPartition]:
        """Its partitions, as the metadata store has them; none while it is being deleted."""
        store = self._cluster.ensemble.store
        node = store.find(znodes.topic(SIDE))
        if node is None or store.find(znodes.delete_topic(SIDE)) is not None:
            return []
        return [TopicPartition(SIDE, number) for number in sorted(znodes.decode_topic(SIDE, node.data).partitions)]

    async def _run(self) -> None:
        client = self._client
        while not self.is_stopping:
            await self._make()
            for _ in range(client.chance.randrange(1, 4)):
                await client.pause(50, 900)
                if client.chance.random() < 0.3:
                    await self._grow()
            if not self.is_stopping:
                await self._delete()
            await self._stop_producers()  # what they still send must not come into the next life
        if not self.partitions():
            await self._make()
            await self._stop_producers()
        await self._write_to_all()
        self.has_ended = True

    async def _make(self) -> None:
        client, plan = self._client, self._cluster.plan
        settings = {"min.insync.replicas": str(plan.min_insync_replicas)}
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=SIDE,
            num_partitions=client.chance.choice((1, 2)),
            replication_factor=plan.replicas,
            configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=each, value=settings[each]) for each in settings],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=2000)
        while not self.partitions():
            answer = await self._ask(request, m.CreateTopicsResponse, 5)
            if answer is not None:
                client.note(f"makes {SIDE}: {ErrorCode(answer.topics[0].error_code).name}")
            await client.pause(0, 200)
        self._life += 1
        self.history = History()
        self._start(
            Producer(self._new_client("producer"), f"{SIDE}{self._life}p", acks=-1, is_idempotent=True, pace_ms=60)
        )

    def _new_client(self, what: str) -> Client:
        client = Client(self._cluster, f"{SIDE}-{self._life}-{what}")
        client.topic, client.history, client.partitions = SIDE, self.history, max(1, len(self.partitions()))
        return client

    def _start(self, producer: Producer) -> None:
        producer.delivery_timeout_us = 1_500_000
        self._producers = [producer]
        self._working += 1
        process = producer.client.process
        process.call(process.loop.create_task, self._work(producer))

    async def _work(self, producer: Producer) -> None:
        await producer.run()
        self._working -= 1

    async def _stop_producers(self) -> None:
        for producer in self._producers:
            producer.is_stopping = True
        while self._working:
            await self._client.pause(10, 20)

    async def _grow(self) -> None:
        count = len(self.partitions())
        if not 0 < count < PARTITIONS_MAX:
            return
        wanted = m.CreatePartitionsRequest.CreatePartitionsTopic(name=SIDE, count=count + 1, assignments=None)
        request = m.CreatePartitionsRequest(topics=[wanted], timeout_ms=2000)
        answer = await self._ask(request, m.CreatePartitionsResponse, 1)
        if answer is not None:
            self._client.note(f"adds a partition to {SIDE}: {ErrorCode(answer.results[0].error_code).name}")
        for producer in self._producers:
            producer.client.partitions = max(1, len(self.partitions()))

    async def _delete(self) -> None:
        request = m.DeleteTopicsRequest(topic_names=[SIDE], timeout_ms=2000)
        while True:
            answer = await self._ask(request, m.DeleteTopicsResponse, 5)
            if answer is not None:
                code = ErrorCode(answer.responses[0].error_code)
                self._client.note(f"deletes {SIDE}: {code.name}")
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    return
            await self._client.pause(50, 300)

    async def _write_to_all(self) -> None:
        """Writes to each partition, some times if need be."""
        producer = Producer(self._new_client("last"), f"{SIDE}{self._life}last", acks=-1, is_idempotent=True, pace_ms=0)
        for key in self.partitions():
            for _ in range(LAST_TRIES):
                if await producer.send(key.partition, 1):
                    self.took.add(key.partition)
                    break

    async def _ask(self, request: Message, answer: type[R], version: int) -> R | None:
        """The answer of the controller; None without one."""
        client = self._client
        controller = self._cluster.controller()
        if controller is not None:
            try:
                return await client.ask(controller.number, request, answer, version, 3000)
            except PeerUnreachable:
                pass
        await client.pause(20, 200)
        return None
