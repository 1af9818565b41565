"""What the operator does to instances while faults happen, and how they must be once everything was healed.

create, alter, delete     by AlterInstances, asked of every broker until the controller decides
LONG_LIVED                two instances; their limits change, and one is deleted and brought back within its grace
Lodger                    a third one: made, used, deleted with its data, and made again under the same name, when
                          nothing of the life before may be left
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.instances.definition import Instance, InstanceState, decode_instance
from headrace.instances.names import instance_of
from headrace.metadata import znodes
from headrace.metadata.stored_instances import INSTANCES
from headrace.metastore.store import Create, Delete, Op, Set
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.simulation.clients import Client, Producer
from tests.simulation.history import History
from tests.simulation.tenants import FILLER, GROUP, TOPIC, Tenant, TenantClient

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

LONG_LIVED = ("acme", "zeta")
LODGER = "temp"
FIRST_PORT = 10_001
LONG_GRACE_MS = 600_000
"""Longer than a run: the instance is brought back."""

CREATE, ALTER, DELETE = range(3)
RATES = (600, 800, 1000)
"""Limits in, in bytes/s, below what the producers have to send. Those out are twice as high."""
RECORD_BYTES = 400
FILLERS_MAX = 40
ROOM_TRIES = 60
"""Tenths of a second until room that was made is there: retention looks every other second."""


class Tenancy:
    """All instances of a run."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        plan = cluster.plan
        self.names: tuple[str, ...] = (*LONG_LIVED, LODGER) if plan.instances else ()
        self.lives: list[Tenant] = []
        """Every life of every instance so far."""
        self.long_lived: dict[str, Tenant] = {}
        self.definitions: dict[str, Instance] = {}
        """As the metadata store has them."""
        self.limits: dict[str, list[tuple[int, Instance]]] = {}
        """When each definition was written."""
        self.topic_ids: dict[bytes, Tenant] = {}
        """Of topics of instances, those that are gone too, with the life that they belong to."""
        self.cluster_id = ""
        self.is_stopping = False
        self._lodger: Lodger | None = None
        self._is_operator_done = False

    # ---- what there is

    def topics_of_others(self, own: Tenant) -> list[tuple[bytes, Tenant]]:
        """The ids of topics that an instance must never see, with the instance that has them."""
        return [(topic_id, of) for topic_id, of in self.topic_ids.items() if of.name != own.name]

    def is_of_the_past(self, host: str) -> bool:
        """Whether a broker may not have heard of the last changes of instances: it has lost its session."""
        return self.cluster.flow_watch.was_gone(host)

    def home(self, key: TopicPartition) -> tuple[History, int] | None:
        """Where what happens to a partition is noted; None for the topics of an instance that comes and goes."""
        tenant = self.long_lived.get(instance_of(key.topic))
        return None if tenant is None else tenant.home(key)

    def partitions(self) -> list[TopicPartition]:
        """The partitions of the instances that live as long as the run."""
        numbers = range(self.cluster.plan.partitions)
        return [
            TopicPartition(f"{name}.{topic}", number)
            for name in self.long_lived
            for topic in (TOPIC, FILLER)
            for number in numbers
        ]

    def written(self, ops: Sequence[Op]) -> None:
        """Something was written into the metadata store."""
        for op in ops:
            match op:
                case Create(path, data) | Set(path, data) if path.startswith(INSTANCES + "/"):
                    found = decode_instance(data)
                    self.definitions[found.name] = found
                    self.limits.setdefault(found.name, []).append((self.cluster.scheduler.now_us, found))
                    self.note(f"{found.name}: {found.state.value}, {found.bytes_in} bytes/s in, {found.bytes_out} out")
                case Delete(path) if path.startswith(INSTANCES + "/"):
                    self.definitions.pop(path.rpartition("/")[2], None)
                    self.note(f"{path.rpartition('/')[2]} is gone")
                case Create(path, data) if path == znodes.CLUSTER_ID:
                    self.cluster_id = json.loads(data)["id"]
                case Create(path, data) if path.startswith(znodes.TOPICS + "/") and path.count("/") == 3:
                    topic = path.rpartition("/")[2]
                    owner = next((each for each in reversed(self.lives) if each.name == instance_of(topic)), None)
                    if owner is not None:
                        self.note(f"topic {topic} is made, of {owner.mark}")
                        self.topic_ids[znodes.decode_topic(topic, data).id] = owner

    def note(self, what: str) -> None:
        self.cluster.timeline.note("instances", what)

    # ---- the run

    async def make(self) -> bool:
        """Makes the instances that live as long as the run, with their topics, before there are faults."""
        plan, operator = self.cluster.plan, self.cluster.admin
        chance = operator.chance
        for number, name in enumerate(LONG_LIVED):
            tenant = Tenant(self, name, FIRST_PORT + number)
            self.lives.append(tenant)
            self.long_lived[name] = tenant
            self.cluster.history.of_instances[name] = tenant.history
            fields: dict[str, object] = {"port": tenant.port, "burst_seconds": chance.choice((0.3, 1.0))}
            if name == LONG_LIVED[1] and plan.instance_capacity:
                fields["capacity"] = plan.instance_capacity * plan.replicas
            if not await self._create(tenant, fields):
                return False
            client = tenant.client("maker")
            for topic in (TOPIC, FILLER):
                if not await self.create_topic(client, topic, plan.partitions):
                    return False
            if "capacity" in fields:
                await self._fill(client, plan.instance_capacity * 4 // 10)
            rate = chance.choice(RATES)
            await self.ask(operator, name, ALTER, {"bytes_in": rate, "bytes_out": 2 * rate})
        return True

    def begin(self) -> None:
        """Lets clients and operator work."""
        for tenant in self.long_lived.values():
            tenant.begin()
        if self.long_lived:
            self._start(Client(self.cluster, "operator"), self._operate)
            client = Client(self.cluster, "lodgers")
            self._lodger = Lodger(self, client, FIRST_PORT + len(LONG_LIVED))
            self._start(client, self._lodger.run)

    def _start(self, client: Client, work) -> None:  # type: ignore[no-untyped-def]
        client.process.call(lambda: client.process.loop.create_task(work(client)))

    def stop(self) -> None:
        """Lets them end what they are at."""
        self.is_stopping = True
        for tenant in self.long_lived.values():
            for worker in tenant.workers:
                worker.is_stopping = True

    @property
    def has_ended(self) -> bool:
        """Whether the operator is done, and the instance that comes and goes is gone."""
        return not self.long_lived or (self._is_operator_done and self._lodger is not None and self._lodger.has_ended)

    def grace_left_us(self) -> int:
        """How long the grace period of the instance that comes and goes still lasts, by the controller's clock.

        It ends at a time of day, which the controller of that moment has computed. The clock of a later controller, or
        its own after it was set back, reaches it late, but by no more than clocks are apart: what is beyond that is not
        allowed.
        """
        lodger, controller = self.definitions.get(LODGER), self.cluster.controller()
        if lodger is None or lodger.deleted_at_ms is None or controller is None or controller.process is None:
            return 0
        left_ms = lodger.deleted_at_ms - controller.process.now_ms()
        return max(0, min(left_ms, self.cluster.nemesis.clocks_apart_ms)) * 1000

    def left(self) -> Iterator[str]:
        """What is not as it must be, once there was time enough."""
        if not self._is_operator_done:
            yield "the operator's request has no answer"
        for name in self.long_lived:
            found = self.definitions.get(name)
            if found is None or found.state is not InstanceState.ACTIVE:
                yield f"{name} is {found.state.value if found is not None else 'gone'}"
        if self._lodger is not None and not self._lodger.has_ended:
            yield f"{LODGER} is not gone: {self._lodger.state}"

    async def _operate(self, client: Client) -> None:
        """Changes limits, and deletes an instance that is brought back."""
        chance, deleted = client.chance, False
        while not self.is_stopping:
            name = chance.choice(LONG_LIVED)
            if chance.random() < 0.25 and not deleted:
                deleted = True
                await self.ask(client, name, DELETE, {"with_data": True, "grace_ms": LONG_GRACE_MS})
                await client.pause(200, 1500)
                await self._restore(client, name)
            else:
                rate = chance.choice(RATES)
                await self.ask(client, name, ALTER, {"bytes_in": rate, "bytes_out": 2 * rate})
            await client.pause(1000, 4000)
        for name in LONG_LIVED:
            await self._restore(client, name)
        self._is_operator_done = True

    async def _restore(self, client: Client, name: str) -> None:
        while await self.ask(client, name, ALTER, {"state": "active"}) is not ErrorCode.NONE:
            await client.pause(100, 300)

    async def last_writes(self, tenant: Tenant) -> bool:
        """Writes to every partition of an instance; one whose storage is full has to make room first. Whether all were
        taken."""
        client = tenant.client("last")
        if self.definitions[tenant.name].capacity is not None:
            await client.chance.choice((self._delete_topic, self._delete_records, self._shorten_retention))(client)
            await self._raise_capacity(client, tenant.name)
        producer = Producer(client, f"{tenant.mark}last", acks=-1, is_idempotent=True, pace_ms=0)
        producer.delivery_timeout_us = 30_000_000
        return all([await producer.send(number, 1) for number in range(client.partitions)])

    async def _raise_capacity(self, client: TenantClient, name: str) -> None:
        """Has the operator raise a capacity that is too small for the other topic alone: brokers that no controller
        reaches may take more than there is room for."""
        capacity = self.definitions[name].capacity
        assert capacity is not None
        for _ in range(ROOM_TRIES):
            if self.cluster.flow_watch.held(name) < capacity * 3 // 4:
                return
            await client.pause(100, 100)
        while await self.ask(self.cluster.admin, name, ALTER, {"capacity": 2 * capacity}) is not ErrorCode.NONE:
            await client.pause(100, 300)

    async def _delete_topic(self, client: TenantClient) -> None:
        request = m.DeleteTopicsRequest(topic_names=[FILLER], timeout_ms=5000)
        await client.ask(client.anyone()[0], request, m.DeleteTopicsResponse, 5)

    async def _delete_records(self, client: TenantClient) -> None:
        for number in range(client.partitions):
            part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=number, offset=-1)
            topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=FILLER, partitions=[part])
            request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
            for broker in client.anyone():  # all but the leader refuse
                await client.ask(broker, request, m.DeleteRecordsResponse, 2)

    async def _shorten_retention(self, client: TenantClient) -> None:
        config = m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="1")
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name=FILLER, configs=[config]
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])
        await client.ask(client.anyone()[0], request, m.IncrementalAlterConfigsResponse, 1)

    # ---- requests of the operator

    async def ask(self, client: Client, name: str, action: int, document: Mapping[str, object]) -> ErrorCode:
        """Has the controller create, alter or delete an instance; NONE, or the last error."""
        wanted = m.AlterInstancesRequest.Alteration(name=name, action=action, document=json.dumps(document))
        request = m.AlterInstancesRequest(timeout_ms=3000, validate_only=False, alterations=[wanted])
        code = ErrorCode.NOT_CONTROLLER
        for number in client.anyone():
            try:
                answer = await client.ask(number, request, m.AlterInstancesResponse, 0, 3000)
            except PeerUnreachable:
                continue
            code = ErrorCode(answer.error_code or answer.results[0].error_code)
            if code is ErrorCode.NONE:
                self._told(name, json.loads(answer.results[0].document)["id"])
            if code is not ErrorCode.NOT_CONTROLLER:
                break
        client.note(f"{('creates', 'alters', 'deletes')[action]} {name}: {document}: {code.name}")
        return code

    def _told(self, name: str, instance_id: str) -> None:
        tenant = next(each for each in reversed(self.lives) if each.name == name)
        tenant.id = tenant.id or instance_id

    async def _create(self, tenant: Tenant, fields: Mapping[str, object]) -> bool:
        for _ in range(20):
            code = await self.ask(self.cluster.admin, tenant.name, CREATE, fields)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_RESOURCE):
                return True
            await self.cluster.admin.pause(100, 200)
        return False

    async def create_topic(self, client: TenantClient, name: str, partitions: int, tries: int = 30) -> bool:
        """Has an instance's client create a topic."""
        plan = self.cluster.plan
        settings = {"min.insync.replicas": str(plan.min_insync_replicas), "segment.index.bytes": "16384"}
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=plan.replicas,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=each, value=value) for each, value in settings.items()
            ],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        for _ in range(tries):
            try:
                answer = await client.ask(client.anyone()[0], request, m.CreateTopicsResponse, 7)
            except PeerUnreachable:
                await client.pause(100, 200)
                continue
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            client.note(f"creates {name}: {code.name} {answer.topics[0].error_message}")
            await client.pause(100, 200)
        return False

    async def _fill(self, client: TenantClient, size: int) -> None:
        """Writes so many bytes into a topic that nobody reads."""
        client.topic, client.history = FILLER, History()
        producer = Producer(
            client, f"{client.tenant.mark}{'x' * RECORD_BYTES}", acks=-1, is_idempotent=False, pace_ms=0
        )
        for number in range(min(size // RECORD_BYTES, FILLERS_MAX)):
            await producer.send(number % client.partitions, 1)


class Lodger:
    """An instance that is made, used, deleted with its data, and made again."""

    def __init__(self, tenancy: Tenancy, operator: Client, port: int) -> None:
        self._tenancy, self._operator, self._port = tenancy, operator, port
        self._life = 0
        self.has_ended = False
        self.state = "nothing"

    async def run(self, _client: Client) -> None:
        """Until it is told to stop; the last life ends, too."""
        while not self._tenancy.is_stopping:
            self._life += 1
            tenant = Tenant(self._tenancy, LODGER, self._port, self._life)
            self._tenancy.lives.append(tenant)
            self.state = f"life {self._life}: is made"
            await self._until(CREATE, {"port": self._port}, ErrorCode.DUPLICATE_RESOURCE)
            self.state = f"life {self._life}: is used"
            await self._use(tenant)
            grace_ms = self._operator.chance.choice((0, 300))
            self.state = f"life {self._life}: is deleted"
            gone = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.POLICY_VIOLATION)  # it is REMOVING already
            await self._until(DELETE, {"with_data": True, "grace_ms": grace_ms}, *gone)
            self.state = f"life {self._life}: is removed"
            while LODGER in self._tenancy.definitions:
                await self._operator.pause(100, 300)
            await self._operator.pause(0, self._operator.chance.choice((0, 1500)))
        self.has_ended = True

    async def _until(self, action: int, document: Mapping[str, object], *enough: ErrorCode) -> None:
        while await self._tenancy.ask(self._operator, LODGER, action, document) not in (ErrorCode.NONE, *enough):
            await self._operator.pause(100, 300)

    async def _use(self, tenant: Tenant) -> None:
        """Finds nothing of the life before; writes some records, and commits an offset."""
        client = tenant.client("user")
        try:
            await self._find_nothing(client)
            if await self._tenancy.create_topic(client, TOPIC, 1, tries=10):
                await self._work(client)
        except PeerUnreachable:
            pass
        client.hang_up()

    async def _find_nothing(self, client: TenantClient) -> None:
        answered: set[int] = set()
        for broker in client.anyone() * 7:
            try:
                found = await client.ask(broker, m.MetadataRequest(topics=None), m.MetadataResponse, 8)
            except PeerUnreachable:
                await client.pause(50, 200)  # its listeners open
                continue
            for each in () if self._tenancy.is_of_the_past(f"broker-{broker}") else found.topics:
                client.tenant.found(client.name, f"topic {each.name}, before it made one")
            answered.add(broker)
            if len(answered) == len(self._tenancy.cluster.brokers):
                break
        offset = await self._committed(client)
        if offset >= 0:
            client.tenant.found(client.name, f"offset {offset} of its group, before it committed one")

    async def _work(self, client: TenantClient) -> None:
        client.partitions = 1
        name = f"{client.tenant.mark}p"
        producer = Producer(client, name, acks=-1, is_idempotent=True, pace_ms=0)
        producer.delivery_timeout_us = 3_000_000
        for _ in range(3):
            await producer.send(0, 2)
        coordinator = await self._coordinator(client)
        if coordinator >= 0:
            one = m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=self._life, committed_metadata=client.tenant.mark
            )
            topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[one])
            request = m.OffsetCommitRequest(
                group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
            )
            await client.ask(coordinator, request, m.OffsetCommitResponse, 8)

    async def _coordinator(self, client: TenantClient) -> int:
        request = m.FindCoordinatorRequest(key=GROUP, key_type=0)
        found = await client.ask(client.anyone()[0], request, m.FindCoordinatorResponse, 3)
        return -1 if found.error_code else found.node_id

    async def _committed(self, client: TenantClient) -> int:
        coordinator = await self._coordinator(client)
        if coordinator < 0:
            return -1
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        request = m.OffsetFetchRequest(group_id=GROUP, topics=[topic])
        found = await client.ask(coordinator, request, m.OffsetFetchResponse, 7)
        offsets = [each.committed_offset for told in found.topics for each in told.partitions]
        return max(offsets, default=-1)
