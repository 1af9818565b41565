"""Instances in the simulation: made by the operator, used by clients of their own, through listeners of their own.

    Tenant          one life of an instance: its definition, its clients, and a history of its own
    TenantClient    a client behind the instance's listener; looks at every answer for what is another's
    Stranger        asks for the names and ids of others, which must not exist

Two instances live as long as the run. Both have a topic `orders` and a group `app`, limits, and records, offsets and
client ids that begin with a mark of their own (`acme<1>`), so that a record in the wrong place is found. Each has a
history of its own, judged by the rules of every cluster. `tenancy` has what the operator does to them, and a third
instance that is made and deleted, again and again.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import ErrorCode
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.types import TopicPartition
from tests.simulation.clients import REQUEST_TIMEOUT_MS, Client, Committer, Producer, Reader
from tests.simulation.frames import Caller
from tests.simulation.history import History, Leak

if TYPE_CHECKING:
    from tests.simulation.tenancy import Tenancy

R = TypeVar("R", bound=Message)

TOPIC, GROUP, FILLER = "orders", "app", "filler"
PATIENCE_MS = 2 * REQUEST_TIMEOUT_MS
"""Clients of instances wait for longer: their connections may be held for the limit."""
FILLER_PARTITION = -200
"""How a history calls the first partition of the topic that is only there to fill the storage."""

OUT_OF_REACH = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
"""What any name is answered with while the controller cannot be asked."""

_OPERATORS = (b"events", b"__consumer_offsets", b"__transaction_state", b"__share_group_state")


class Tenant:
    """One life of an instance."""

    def __init__(self, tenancy: "Tenancy", name: str, port: int, life: int = 1) -> None:
        self.tenancy, self.name, self.port = tenancy, name, port
        self.mark = f"{name}<{life}>"
        """What every record, offset and client id of its clients begins with."""
        self.id = ""
        """Its cluster id, as the operator was told."""
        self.history = History()
        self.workers: list[Producer | Reader | Committer | Stranger] = []
        self.committer: Committer | None = None

    def client(self, name: str) -> "TenantClient":
        """A client's host."""
        return TenantClient(self, f"{self.mark}-{name}")

    def begin(self) -> None:
        """Lets its clients work."""
        for number, is_idempotent in enumerate((True, False), 1):
            name = f"{self.mark}p{number}"
            self._start(Producer(self.client(name), name, acks=-1, is_idempotent=is_idempotent, pace_ms=30))
        self._start(Reader(self.client("reader")))
        self.committer = Committer(self.client("committer"), GROUP, self.mark)
        self._start(self.committer)
        self._start(Stranger(Strange(self, f"{self.mark}-stranger")))

    def _start(self, worker: "Producer | Reader | Committer | Stranger") -> None:
        self.workers.append(worker)
        process = worker._client.process
        process.call(process.loop.create_task, worker.run())

    def home(self, key: TopicPartition) -> tuple[History, int] | None:
        """Where what happens to a partition is noted, and how the history calls it."""
        topic = key.topic.removeprefix(f"{self.name}.")
        if topic == TOPIC:
            return self.history, key.partition
        return (self.history, FILLER_PARTITION - key.partition) if topic == FILLER else None

    def found(self, who: str, what: str) -> None:
        """Notes a leak."""
        cluster = self.tenancy.cluster
        cluster.history.leaks.append(Leak(self.name, who, cluster.scheduler.now_us, what))


class TenantClient(Client):
    """A client of an instance, as `Client`, which keeps still for as long as an answer says."""

    def __init__(self, tenant: Tenant, name: str) -> None:
        super().__init__(tenant.tenancy.cluster, name)
        self.tenant = tenant
        self.topic, self.history = TOPIC, tenant.history
        self._still_until_us: dict[int, int] = {}

    async def ask(
        self, broker: int, request: Message, answer: type[R], version: int, timeout_ms: int = PATIENCE_MS
    ) -> R:
        """See `Client.ask`."""
        wait_us = self._still_until_us.get(broker, 0) - self.now_us
        if wait_us > 0:
            await asyncio.sleep(wait_us / 1e6)
        found = await super().ask(broker, request, answer, version, timeout_ms)
        throttle_ms = getattr(found, "throttle_time_ms", 0)
        if throttle_ms:
            self._still_until_us[broker] = self.now_us + throttle_ms * 1000
        return found

    def _connect(self, host: str) -> Caller:
        caller = Caller(self.cluster.network, self.process, self.name, host, self.name, self.tenant.port)
        caller.on_frame = lambda key, frame: self._look(host, key, frame)
        return caller

    def _look(self, host: str, key: ApiKey, frame: bytes) -> None:
        """Looks for what this client must not see, whatever it asked for."""
        foreign = self.foreign()
        if not self.tenant.tenancy.is_of_the_past(host):
            foreign += self.ids_of_former_lives()
        for mark, what in foreign:
            if mark in frame:
                self.tenant.found(self.name, f"an answer of {host} to {key.title} has {what}")

    def foreign(self) -> list[tuple[bytes, str]]:
        """Bytes that must not be in an answer, and what they are."""
        own = self.tenant
        qualified = [(f"{own.name}.".encode(), "a qualified name")]
        others = [(each.encode(), f"the name {each}") for each in own.tenancy.names if each != own.name]
        return qualified + others + [(each, f"{each.decode()}, the operator's") for each in _OPERATORS] + self.secrets()

    def secrets(self) -> list[tuple[bytes, str]]:
        """Those that no answer has, even if the request names another instance."""
        own, tenancy = self.tenant, self.tenant.tenancy
        found = [(each.mark.encode(), f"a mark of {each.mark}") for each in tenancy.lives if each.mark != own.mark]
        found += _ids([each for each in tenancy.lives if each.name != own.name])
        found += [(topic_id, f"the id of a topic of {of.mark}") for topic_id, of in tenancy.topics_of_others(own)]
        if tenancy.cluster_id:
            found.append((tenancy.cluster_id.encode(), "the id of the operator's cluster"))
        return found

    def ids_of_former_lives(self) -> list[tuple[bytes, str]]:
        """The ids of earlier instances of the same name, and of their topics. A broker that was stopped for long may
        not know yet that they are gone."""
        own, tenancy = self.tenant, self.tenant.tenancy
        former = [each for each in tenancy.lives if each.name == own.name and each is not own]
        topics = [(topic_id, of) for topic_id, of in tenancy.topic_ids.items() if of in former]
        return _ids(former) + [(topic_id, f"the id of a topic of {of.mark}") for topic_id, of in topics]


def _ids(tenants: Iterable[Tenant]) -> list[tuple[bytes, str]]:
    return [(each.id.encode(), f"the id of {each.mark}") for each in tenants if each.id]


class Strange(TenantClient):
    """A client that names what is another's: answers repeat it."""

    asked_id = b""
    """The topic id that an answer may repeat."""

    def foreign(self) -> list[tuple[bytes, str]]:
        return [each for each in self.secrets() if each[0] != self.asked_id]


class Stranger:
    """Asks again and again for what is not its instance's. All of it must not exist."""

    def __init__(self, client: Strange) -> None:
        self._client = client
        self.is_stopping = False

    async def run(self) -> None:
        """Until it is told to stop."""
        client, own = self._client, self._client.tenant
        probes = (self._metadata, self._by_id, self._offsets, self._records, self._ends, self._deletion, self._cluster)
        while not self.is_stopping:
            others = [each for each in own.tenancy.names if each != own.name]
            try:
                await client.chance.choice(probes)(client.anyone()[0], client.chance.choice(others))
            except PeerUnreachable:
                pass
            await client.pause(100, 400)

    def _expect(self, what: str, code: int, *allowed: ErrorCode) -> None:
        if ErrorCode(code) not in allowed:
            self._client.tenant.found(self._client.name, f"{what} is answered with {ErrorCode(code).name}")

    async def _metadata(self, broker: int, other: str) -> None:
        names = [f"{other}.{TOPIC}", "events", f"{self._client.tenant.name}.{TOPIC}"]
        topics = [m.MetadataRequest.MetadataRequestTopic(name=each) for each in names]
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for each in (await self._client.ask(broker, request, m.MetadataResponse, 8)).topics:
            self._expect(f"Metadata of {each.name}", each.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _by_id(self, broker: int, _other: str) -> None:
        ids = [topic_id for topic_id, _ in self._client.tenant.tenancy.topics_of_others(self._client.tenant)]
        if not ids:
            return
        self._client.asked_id = asked = self._client.chance.choice(ids)
        topic = m.MetadataRequest.MetadataRequestTopic(topic_id=asked, name=None)
        request = m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        for each in (await self._client.ask(broker, request, m.MetadataResponse, 12)).topics:
            self._expect("Metadata by another's topic id", each.error_code, ErrorCode.UNKNOWN_TOPIC_ID)
        self._client.asked_id = b""

    async def _offsets(self, broker: int, other: str) -> None:
        named_group, named_topic = f"{other}.{GROUP}", f"{other}.{TOPIC}"
        for group, of in ((named_group, TOPIC), (GROUP, named_topic), (named_group, named_topic)):
            topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=of, partition_indexes=[0])
            request = m.OffsetFetchRequest(group_id=group, topics=[topic])
            found = await self._client.ask(broker, request, m.OffsetFetchResponse, 7)
            for each in (part for told in found.topics for part in told.partitions):
                if each.committed_offset >= 0:
                    self._client.tenant.found(self._client.name, f"group {group} has an offset in {of}")

    async def _records(self, broker: int, other: str) -> None:
        wanted = m.FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1 << 20
        )
        topic = m.FetchRequest.FetchTopic(topic=f"{other}.{TOPIC}", partitions=[wanted])
        request = m.FetchRequest(replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        found = await self._client.ask(broker, request, m.FetchResponse, 11)
        for each in (part for told in found.responses for part in told.partitions):
            self._expect(f"Fetch of {other}", each.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _ends(self, broker: int, other: str) -> None:
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=f"{other}.{TOPIC}", partitions=[wanted])
        request = m.ListOffsetsRequest(replica_id=-1, topics=[topic])
        found = await self._client.ask(broker, request, m.ListOffsetsResponse, 7)
        for each in (part for told in found.topics for part in told.partitions):
            self._expect(f"ListOffsets of {other}", each.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _deletion(self, broker: int, other: str) -> None:
        request = m.DeleteTopicsRequest(topic_names=[f"{other}.{TOPIC}"], timeout_ms=1000)
        found = await self._client.ask(broker, request, m.DeleteTopicsResponse, 5)
        for each in found.responses:
            self._expect(
                f"DeleteTopics of {other}", each.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *OUT_OF_REACH
            )

    async def _cluster(self, broker: int, _other: str) -> None:
        own = self._client.tenant
        found = await self._client.ask(broker, m.DescribeClusterRequest(), m.DescribeClusterResponse, 0)
        if found.cluster_id != own.id:
            own.found(self._client.name, f"the cluster id {found.cluster_id}, and not {own.id}")
        for each in found.brokers:
            if each.port != own.port:
                own.found(self._client.name, f"port {each.port} of broker {each.broker_id}")
