"""Throttling of an instance's clients on this broker: the instance's rates, on top of the quotas of its users.

It takes the place of `Throttling` for the connections of one instance, with the same methods. What it counts:

    in     the bytes of Produce requests, when they come; also with acks=0, whose client only the hold delays. What is
           stored beyond that counts when it is appended: a topic's settings may ask for batches to be decompressed, or
           converted, and a kilobyte can be a hundred megabytes then
    out    the bytes of records in Fetch responses, before they are sent, and in ShareFetch responses, afterwards: what
           was acquired cannot be taken back

    groups what has something written about a group, if what comes in is limited: a commit may have 4 KiB of metadata
           for each partition, and a client that commits again and again writes as much as one that produces

Nothing else counts. Each of the three has a `FlowGate`, so that none waits for another. The rates of in and out follow
the leases; that of groups is the one of in that is in force here, and `GROUP_BYTES_MIN` at least: more than they need.
A produce that is refused because the storage is full counts at F, so that clients which try again and again do not get
the broker for free.

The quotas of users and client ids are those of the cluster, by qualified names: `User:acme.alice`, client `acme.app`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.instances.flow_gate import FlowGate, Who
from headrace.broker.request.throttling import CountedRequest, PlainProduceClient, Throttling
from headrace.instances.definition import WhenFull
from headrace.instances.flow.leases import UNLIMITED
from headrace.instances.flow.meter import BucketMeter, Metered
from headrace.network.held import Held
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header
from headrace.protocol.plain_produce import read_plain_produce

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.instances.flow_rates import FlowRates
    from headrace.broker.partitions.partition import Partition
    from headrace.instances.definition import Instance
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.network.connection import Connection
    from headrace.protocol.codec.message import Message
    from headrace.protocol.messages import ProduceRequest
    from headrace.protocol.plain_produce import PlainProduce
    from headrace.quotas.client_quotas import ClientQuotas, QuotaKind
    from headrace.quotas.mutations import MutationQuota

NOTHING = Metered(0.0, 0.0)
HEARTBEATS = frozenset((ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT))
ABOUT_GROUPS = HEARTBEATS | {ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
"""The requests of which the groups' coordinators write what they bring."""
GROUP_BYTES_MIN = 1 << 20
HEARTBEAT_BYTES_MAX = 1024
"""A smaller heartbeat has nothing written, and does not wait."""
FULL_HOLD_S = 1.0
"""How long a producer is held whose produce full storage has refused, if the instance says so."""


class InstanceThrottling:
    """The flow of one instance through this broker. `is_active` is always true."""

    __slots__ = (
        "_instance", "_is_full", "_loop", "_metadata", "_prefix", "_rates", "_reported_at", "_tuned", "_users",
        "bytes_in", "bytes_out", "gate_groups", "gate_in", "gate_out", "is_active", "last_in", "last_out", "meter_in",
        "meter_out",
    )  # fmt: skip

    def __init__(
        self,
        instance: Instance,
        users: Throttling,
        rates: FlowRates,
        metadata: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        *,
        is_full: Callable[[], bool],
        reported_at: Callable[[], float],
    ) -> None:
        """`is_full`: whether the instance's storage is. `reported_at`: when the last report was made."""
        self.is_active = True
        self.bytes_in = self.bytes_out = 0
        """What was counted since the broker started."""
        self.gate_in: FlowGate | None = None
        self.gate_out: FlowGate | None = None
        self.gate_groups: FlowGate | None = None
        self._instance, self._users, self._rates, self._loop = instance, users, rates, loop
        self._prefix = instance.name + "."
        self._is_full, self._reported_at, self._metadata = is_full, reported_at, metadata
        self.meter_in, self.meter_out = BucketMeter(reported_at()), BucketMeter(reported_at())
        self.last_in = self.last_out = NOTHING
        """What flowed in the last interval."""
        self._tuned = -1

    @property
    def is_holding(self) -> bool:
        """Whether connections are held."""
        return any(each is not None and each.waiting_count for each in self.gates.values())

    @property
    def gates(self) -> Mapping[str, FlowGate | None]:
        """The gates, by what they let through."""
        return {"in": self.gate_in, "out": self.gate_out, "groups": self.gate_groups}

    def set_instance(self, instance: Instance) -> None:
        """Takes the instance as it is now defined."""
        self._instance, self._tuned = instance, -1

    def close(self) -> None:
        """Lets go of all connections."""
        gates = self.gates.values()
        self.gate_in = self.gate_out = self.gate_groups = None
        for gate in gates:
            if gate is not None:
                gate.close()

    # ---- rates

    def tune(self) -> None:
        """Brings the gates to the rates that are in force."""
        if self._tuned == self._rates.generation:
            return
        self._tuned = self._rates.generation
        name = self._instance.name
        rates = self._rates.rates(name)
        rate_in = self._rates.fair(name).rate_in if self._is_full() else rates.rate_in
        before = self.gates
        self.gate_in, self.meter_in = self._tuned_gate(self.gate_in, self.meter_in, rate_in, Held.FLOW_IN)
        self.gate_out, self.meter_out = self._tuned_gate(self.gate_out, self.meter_out, rates.rate_out, Held.FLOW_OUT)
        of_groups = rates.rate_in if rates.rate_in == UNLIMITED else max(rates.rate_in, GROUP_BYTES_MIN)
        self.gate_groups, _ = self._tuned_gate(self.gate_groups, self.meter_in, of_groups, Held.FLOW_GROUPS)
        for name, now in self.gates.items():
            was = before[name]
            if was is not None and now is None:
                was.close()

    def _tuned_gate(
        self, gate: FlowGate | None, meter: BucketMeter, rate: float, held: Held
    ) -> tuple[FlowGate | None, BucketMeter]:
        if rate == UNLIMITED:
            if gate is None:
                return None, meter
            return None, BucketMeter(self._reported_at())
        burst = rate * self._instance.burst_seconds
        if gate is None:
            gate = FlowGate(held, rate, burst, self._loop, metered_since=self._reported_at())
        else:
            gate.retune(rate, burst)
        return gate, gate.meter

    def take_metered(self) -> tuple[Metered, Metered]:
        """What flowed since the last call, in and out."""
        now = self._loop.time()
        self.last_in, self.last_out = self.meter_in.take(now), self.meter_out.take(now)
        return self.last_in, self.last_out

    # ---- what `Throttling` does

    @property
    def by_kind(self) -> dict[QuotaKind, ClientQuotas]:
        """The quotas of users, by kind."""
        return self._users.by_kind

    def now(self) -> float:
        """The time of the buckets."""
        return self._loop.time()

    def replied(self, ctx: CountedRequest, message: Message) -> None:
        """Counts a request that is answered with `message`; sets the time for which the client has to wait."""
        if self._users.is_active:
            self._users.replied(_Named(ctx, self._prefix), message)
        if ctx.is_counted:
            return
        if ctx.api_key is ApiKey.PRODUCE:
            wait_ms = getattr(ctx, "told_ms", 0)
        elif ctx.api_key is ApiKey.SHARE_FETCH:
            wait_ms = self._took(ctx, message)
        elif ctx.api_key in ABOUT_GROUPS:
            wait_ms = self._wrote(ctx)
        else:
            return
        if wait_ms > message.throttle_time_ms:  # type: ignore[attr-defined]
            message.throttle_time_ms = wait_ms  # type: ignore[attr-defined]

    def produce_came(self, ctx: CountedRequest, request: ProduceRequest) -> int:
        """Counts a Produce before it is handled, so that others that its client has sent already are not handled before
        this one is paid for. Returns the time for which the client has to wait, in ms; its answer tells it."""
        partitions = (
            self._partition(topic.name or topic.topic_id, each.index)
            for topic in request.topic_data
            for each in topic.partition_data
        )
        return self._produced(ctx.connection, ctx.client_id, ctx.request_bytes, partitions)

    def stored_more(self, ctx: CountedRequest, size: int) -> int:
        """Counts what a produce has stored beyond its own size. Returns the time for which the client has to wait."""
        return self._produced(ctx.connection, ctx.client_id, size, ())

    def postpones(self, connection: Connection, api_key: int, frame: memoryview) -> bool:
        """Whether a request that is paid for afterwards has to wait for its turn. The connection then keeps it, or is
        closed."""
        self.tune()
        if api_key == ApiKey.PRODUCE:
            gate = self.gate_in
        elif api_key == ApiKey.SHARE_FETCH:
            gate = self.gate_out
        else:
            gate = None if _says_nothing_new(api_key, len(frame)) else self.gate_groups
        if gate is None or gate.is_open_to(connection):
            return False
        plain = read_plain_produce(frame) if api_key == ApiKey.PRODUCE else None
        client_id = read_request_header(frame)[0].client_id if plain is None else plain.client_id
        partitions = () if plain is None else (self._partition(each.topic, each.index) for each in plain.batches)
        gate.postpone(connection, len(frame), Who(client_id or "", partitions))
        return True

    def produced_plainly(self, connection: Connection, request: PlainProduce, size: int) -> int:
        """Counts a plain produce; returns the time for which the client has to wait, in ms."""
        wait_ms = 0
        if self._users.is_active:
            wait_ms = self._users.produced_plainly(connection, _NamedPlain(request, self._prefix), size)
        partitions = (self._partition(each.topic, each.index) for each in request.batches)
        return max(wait_ms, self._produced(connection, request.client_id, size, partitions))

    def not_replied(self, ctx: CountedRequest) -> None:
        """Counts a produce without a response (acks=0)."""
        if self._users.is_active:
            self._users.not_replied(_Named(ctx, self._prefix))

    def worked(self, ctx: CountedRequest, elapsed_ns: int) -> None:
        """Counts the time of slices."""
        if self._users.is_active:
            self._users.worked(_Named(ctx, self._prefix), elapsed_ns)

    def fetched(self, ctx: CountedRequest, size: int, taken: Sequence[tuple[Partition, int]]) -> int:
        """Counts a fetch with `size` bytes of records, from the partitions in `taken`. Returns 0, or the time for which
        the client has to wait, in ms: the fetch must then be answered without records."""
        ctx.is_counted = True
        self.tune()
        gate, wait_ms = self.gate_out, 0
        if gate is not None and size:
            partitions = (self._partition(*each.key) for each, _ in taken)
            wait_ms = gate.ask(ctx.connection, size, Who(ctx.client_id or "", partitions))
        if self._users.is_active:
            # What the instance does not let through is not counted for its user either, but the time is.
            of_user_ms = self._users.fetched(_Named(ctx, self._prefix), 0 if wait_ms else size)
            if of_user_ms and not wait_ms and gate is not None:
                gate.take_back(size)
            wait_ms = max(wait_ms, of_user_ms)
        if not wait_ms:
            self.bytes_out += size
            if gate is None and size:
                self.meter_out.count(size, 0.0, self._loop.time())
        return wait_ms

    def fetch_bytes_max(self, ctx: CountedRequest) -> float:
        """How many bytes a fetch may return: more would never be paid for."""
        self.tune()
        most = UNLIMITED if self.gate_out is None else self.gate_out.fetch_bytes_max
        return min(most, self._users.fetch_bytes_max(_Named(ctx, self._prefix))) if self._users.is_active else most

    def mutation_quota(self, ctx: CountedRequest, *, strict_from: int) -> MutationQuota | None:
        """The quota of a request that creates or deletes partitions; None without one."""
        ctx.mutations = self._users.mutation_quota(_Named(ctx, self._prefix), strict_from=strict_from)
        return ctx.mutations

    # ---- inside

    def _produced(self, connection: Connection, client_id: str | None, size: int, partitions: Iterable[str]) -> int:
        self.tune()
        self.bytes_in += size
        gate = self.gate_in
        if gate is None:
            self.meter_in.count(size, 0.0, self._loop.time())
            wait_ms = 0
        else:
            wait_ms = gate.spend(connection, size, Who(client_id or "", partitions))
        if self._instance.when_full is WhenFull.THROTTLE and self._is_full():
            connection.hold(Held.THROTTLE, (self._loop.time() + FULL_HOLD_S) * 1000)
            wait_ms = max(wait_ms, int(FULL_HOLD_S * 1000))
        return wait_ms

    def _took(self, ctx: CountedRequest, message: Message) -> int:
        """Counts a ShareFetch, which is answered with its records."""
        size, partitions = 0, []
        for topic in message.responses:  # type: ignore[attr-defined]
            for each in topic.partitions:
                records = each.records
                found = (len(records) if isinstance(records, bytes) else records.size) if records else 0
                if found:
                    size += found
                    partitions.append(self._partition(topic.topic_id, each.partition_index))
        if not size:
            return 0
        self.tune()
        self.bytes_out += size
        if self.gate_out is None:
            self.meter_out.count(size, 0.0, self._loop.time())
            return 0
        return self.gate_out.spend(ctx.connection, size, Who(ctx.client_id or "", partitions))

    def _wrote(self, ctx: CountedRequest) -> int:
        """Counts a request about a group, which is answered."""
        self.tune()
        gate = self.gate_groups
        if gate is None or _says_nothing_new(ctx.api_key, ctx.request_bytes):
            return 0
        return gate.spend(ctx.connection, ctx.request_bytes, Who(ctx.client_id or "", ()))

    def _partition(self, topic: str | bytes, number: int) -> str:
        """A partition as the instance's clients name it."""
        name = topic if isinstance(topic, str) else self._metadata.snapshot.names_by_id.get(topic, topic.hex())
        return f"{name.removeprefix(self._prefix)}-{number}"


def _says_nothing_new(api_key: int, size: int) -> bool:
    """Whether a request about a group is a heartbeat that changes nothing."""
    return size <= HEARTBEAT_BYTES_MAX and api_key in HEARTBEATS


class _NamedPlain:
    """A plain produce with the client id as the quotas of the cluster name it."""

    __slots__ = ("client_id",)

    def __init__(self, request: PlainProduceClient, prefix: str) -> None:
        self.client_id: str | None = prefix + (request.client_id or "")


class _Named:
    """A request with the client id as the quotas of the cluster name it; all else is the request's own."""

    __slots__ = (
        "_ctx", "api_key", "api_version", "client_id", "connection", "is_counted", "is_of_broker", "mutations",
        "request_bytes",
    )  # fmt: skip

    def __init__(self, ctx: CountedRequest, prefix: str) -> None:
        self._ctx = ctx
        self.client_id: str | None = prefix + (ctx.client_id or "")
        self.connection, self.api_key, self.api_version = ctx.connection, ctx.api_key, ctx.api_version
        self.is_counted, self.is_of_broker = ctx.is_counted, ctx.is_of_broker
        self.request_bytes, self.mutations = ctx.request_bytes, ctx.mutations

    def local_ns(self) -> int:
        """The time that the event loop has spent on the request."""
        return self._ctx.local_ns()
