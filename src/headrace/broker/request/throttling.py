"""Applies the quotas of users and clients to requests.

    a request is answered ─▶ what it used is taken from the buckets of its client ─▶ overdrawn: throttle_time_ms is set,
                                                                                   the connection is held for that time

The answer goes out at once, and nothing further is read from the connection until the time is over (KIP-219), whether
the client waits by itself or not. Which quotas count:

    Produce            the request's bytes, when it is answered; also with acks=0, whose client only the hold delays
    Fetch              the records' bytes. A fetch that is not paid for is answered without records, and costs nothing
    ShareFetch         nothing, as in Apache Kafka, but it takes no more at once than a fetch could
    every request      the time of the event loop until the request is answered or begins to wait, and that of slices
                       (`worked`)
    CreateTopics, DeleteTopics, CreatePartitions    partitions (`mutation_quota`)

Requests of other brokers are exempt. Without quotas a request costs one comparison (`is_active`).

Apache Kafka counts the time of its network and request threads; here one event loop does the work of both, so that 100
percent is the whole broker. Work in the background is not counted: a large batch that a thread checks, a topic created.
Source: Kafka's `KafkaApis`, `RequestHandlerHelper`, `ClientRequestQuotaManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

from headrace.broker.request.in_force import QuotasInForce
from headrace.limits import INT32_MAX
from headrace.metadata.entity_configs import CLIENTS, USERS
from headrace.metadata.quota_nodes import client_entity, user_entity
from headrace.network.connection import Connection
from headrace.network.held import Held
from headrace.protocol.apis import ApiKey
from headrace.quotas.client_quotas import ClientQuotas, QuotaKind
from headrace.quotas.mutations import MutationQuota
from headrace.quotas.token_bucket import INFINITE, TokenBucket

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.config import BrokerConfig
    from headrace.metadata.entity_configs import EntityConfigs
    from headrace.protocol.codec.message import Message
    from headrace.quotas.entities import Entity

log = logging.getLogger(__name__)

_PERCENT_PER_NS = 100 / 1e9


class CountedRequest(Protocol):
    """What the quotas read of a request's context."""

    connection: Connection
    client_id: str | None
    api_key: ApiKey
    api_version: int
    is_counted: bool
    is_of_broker: bool
    request_bytes: int
    mutations: MutationQuota | None

    def local_ns(self) -> int:
        """The time that the event loop has spent on the request."""
        ...


class PlainProduceClient(Protocol):
    """What the quotas read of a plain produce."""

    @property
    def client_id(self) -> str | None:
        """The client's own name for itself."""
        ...


class Throttling(QuotasInForce):
    """The quotas of this broker's clients."""

    __slots__ = ("_now", "_window_s", "by_kind", "fetch", "mutation", "produce", "request")

    def __init__(self, config: BrokerConfig, now: Callable[[], float]) -> None:
        """`now`: the event loop's time."""
        super().__init__()
        self._now = now
        self._window_s = config.quota_window_size_seconds
        rate_s = (config.quota_window_num - 1) * config.quota_window_size_seconds
        mutation_s = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        self.produce = ClientQuotas(QuotaKind.PRODUCE, lambda: rate_s, now)
        self.fetch = ClientQuotas(QuotaKind.FETCH, lambda: rate_s, now)
        self.request = ClientQuotas(QuotaKind.REQUEST, lambda: rate_s, now)
        self.mutation = ClientQuotas(QuotaKind.CONTROLLER_MUTATION, lambda: mutation_s, now)
        self.by_kind = {each.kind: each for each in (self.produce, self.fetch, self.request, self.mutation)}

    def follow(self, entities: EntityConfigs) -> None:
        """Applies the quotas in the metadata store, and their changes."""
        entities.on_change(USERS, lambda name, configs: self._set(user_entity(name), name, configs))
        entities.on_change(CLIENTS, lambda name, configs: self._set(client_entity(name), name, configs))

    def _set(self, entity: Entity | None, name: str, configs: Mapping[str, str]) -> None:
        if entity is None:
            log.warning("quotas of %s are ignored: the name is not that of a user or client", name)
            return
        for kind, quotas in self.by_kind.items():
            rate = _rate(name, kind, configs.get(kind.value))
            if quotas.rates.get(entity) != rate:
                quotas.set_rate(entity, rate)
        self.is_active = any(each.is_active for each in self.by_kind.values())

    # -- requests

    def replied(self, ctx: CountedRequest, message: Message) -> None:
        """Counts a request that is answered with `message`; sets the time for which the client has to wait."""
        if ctx.is_of_broker or ctx.is_counted:
            return
        user, client, now = _user(ctx.connection), ctx.client_id or "", self._now()
        wait_s, quotas = self._request_wait(user, client, ctx.local_ns(), now), self.request
        if ctx.api_key is ApiKey.PRODUCE:
            bucket = self.produce.bucket(user, client)
            if bucket is not None and (by_bytes := bucket.spend(ctx.request_bytes, now)) > wait_s:
                wait_s, quotas = by_bytes, self.produce
        elif ctx.mutations is not None and (by_mutations := ctx.mutations.wait_s(now)) > wait_s:
            wait_s, quotas = by_mutations, self.mutation
        if wait_s:
            wait_ms = self._hold(ctx.connection, quotas, wait_s, now)
            if hasattr(message, "throttle_time_ms"):  # DescribeQuorum has no such field: the hold alone delays
                message.throttle_time_ms = wait_ms

    def produced_plainly(self, connection: Connection, request: PlainProduceClient, size: int) -> int:
        """Counts a plain produce; returns the time for which the client has to wait, in ms."""
        user, client, now = _user(connection), request.client_id or "", self._now()
        now_ns = monotonic_ns()
        wait_s, quotas = self._request_wait(user, client, now_ns - connection.looked_ns, now), self.request
        connection.looked_ns = now_ns
        bucket = self.produce.bucket(user, client)
        if bucket is not None and (by_bytes := bucket.spend(size, now)) > wait_s:
            wait_s, quotas = by_bytes, self.produce
        return self._hold(connection, quotas, wait_s, now) if wait_s else 0

    def not_replied(self, ctx: CountedRequest) -> None:
        """Counts a produce without a response (acks=0)."""
        user, client, now = _user(ctx.connection), ctx.client_id or "", self._now()
        wait_s, quotas = self._request_wait(user, client, ctx.local_ns(), now), self.request
        bucket = self.produce.bucket(user, client)
        if bucket is not None and (by_bytes := bucket.spend(ctx.request_bytes, now)) > wait_s:
            wait_s, quotas = by_bytes, self.produce
        if wait_s:
            self._hold(ctx.connection, quotas, wait_s, now)

    def worked(self, ctx: CountedRequest, elapsed_ns: int) -> None:
        """Counts the time of slices, in which a large request is decoded or a large response is encoded: who is told
        nothing by this response is told by the next one."""
        if not ctx.is_of_broker:
            self._request_wait(_user(ctx.connection), ctx.client_id or "", elapsed_ns, self._now())

    def fetched(self, ctx: CountedRequest, size: int, taken: Sequence[tuple[Partition, int]] = ()) -> int:
        """Counts a fetch with `size` bytes of records. Returns 0, or the time for which the client has to wait, in ms:
        the fetch must then be answered without records."""
        ctx.is_counted = True
        user, client, now = _user(ctx.connection), ctx.client_id or "", self._now()
        wait_s, quotas = self._request_wait(user, client, ctx.local_ns(), now), self.request
        bucket = self.fetch.bucket(user, client)
        if bucket is not None:
            by_bytes = bucket.wait_for(size, now) if size else 0
            if by_bytes > wait_s:
                wait_s, quotas = by_bytes, self.fetch
            elif not wait_s:
                bucket.spend(size, now)
        return self._hold(ctx.connection, quotas, wait_s, now) if wait_s else 0

    def fetch_bytes_max(self, ctx: CountedRequest) -> float:
        """How many bytes a fetch may return: more would never be paid for."""
        bucket = self.fetch.bucket(_user(ctx.connection), ctx.client_id or "")
        return INFINITE if bucket is None else bucket.burst

    def mutation_quota(self, ctx: CountedRequest, *, strict_from: int) -> MutationQuota | None:
        """The quota of a request that creates or deletes partitions; None without one. `strict_from`: the version that
        has THROTTLING_QUOTA_EXCEEDED."""
        bucket = self.mutation.bucket(_user(ctx.connection), ctx.client_id or "")
        if bucket is None:
            return None
        ctx.mutations = MutationQuota(bucket, is_strict=ctx.api_version >= strict_from)
        return ctx.mutations

    def now(self) -> float:
        """The time of the buckets."""
        return self._now()

    def _request_wait(self, user: str, client: str, elapsed_ns: int, now: float) -> float:
        bucket: TokenBucket | None = self.request.bucket(user, client)
        if bucket is None:
            return 0.0
        return min(bucket.spend(elapsed_ns * _PERCENT_PER_NS, now), self._window_s)

    def _hold(self, connection: Connection, quotas: ClientQuotas, wait_s: float, now: float) -> int:
        """Holds the connection; returns the time in ms, rounded as in Kafka."""
        wait_ms = int(min(wait_s * 1000 + 0.5, INT32_MAX))  # infinite at the smallest rates
        if wait_ms:
            quotas.throttled.add(wait_ms)
            connection.hold(Held.THROTTLE, now * 1000 + wait_ms)
        return wait_ms


def _user(connection: Connection) -> str:
    """The name of the connection's principal: `User:alice` -> `alice`."""
    return connection.principal.partition(":")[2]


def _rate(name: str, kind: QuotaKind, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if 0 < rate < INFINITE:
        return rate
    log.warning("%s=%r of %s is ignored: a quota is a number above 0", kind.value, text, name)
    return None
