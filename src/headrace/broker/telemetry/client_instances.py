"""Client instances: each client that asked for subscriptions, what it is asked to push, and when it last did.

    get     the client's id, or a new one; its subscription, at most once per push interval
    push    at once after a get, then once per push interval; with the subscription's id; nothing after `terminating`

A subscription's id is computed from what it asks for and from the client's id, so every broker computes the same. An
instance is forgotten when it has been silent for three push intervals, at least a minute; beyond `INSTANCES_MAX` the
longest silent one is. A client that connects again begins anew. An instance belongs to the principal, the address and
the client id that came with its id first: others cannot push as this client, nor keep it from pushing. Pure.
Source: Kafka's `ClientMetricsManager`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from headrace.broker.telemetry.subscriptions import (
    CLIENT_ID,
    INSTANCE_ID,
    SOURCE_ADDRESS,
    TelemetrySubscription,
    WantedMetrics,
    wanted_from,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.uuids import to_text
from headrace.records.codecs.crc import crc32c

INSTANCES_MAX = 16_384
"""As in Apache Kafka."""

EXPIRY_MS_MIN = 60_000
_NO_ID, _METADATA_TOPIC_ID = bytes(16), bytes(15) + b"\x01"
_CODECS = range(5)  # none, gzip, snappy, lz4, zstd


class Peer(Protocol):
    """The connection of a client."""

    principal: str

    @property
    def is_closed(self) -> bool: ...


class ClientInstance:
    """One client, with what it is asked to push."""

    __slots__ = (
        "attributes", "id", "is_terminating", "last_error", "last_get_ms", "last_push_ms", "last_seen_ms", "owner",
        "peer", "subscription_id", "version", "wanted",
    )  # fmt: skip

    def __init__(
        self, id: bytes, attributes: Mapping[str, str], wanted: WantedMetrics, version: int, peer: Peer
    ) -> None:
        self.id, self.attributes, self.wanted, self.version, self.peer = id, attributes, wanted, version, peer
        self.owner = _owner(attributes, peer)
        text = f"{','.join(wanted.metrics)} {wanted.interval_ms}".encode()
        self.subscription_id = _as_int32(crc32c(text) ^ crc32c(id))
        self.last_get_ms = self.last_push_ms = self.last_seen_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    @property
    def expiry_ms(self) -> int:
        """How long the instance may be silent."""
        return max(EXPIRY_MS_MIN, 3 * self.wanted.interval_ms)

    def check_get(self, now_ms: int) -> None:
        """Notes a GetTelemetrySubscriptions. Raises THROTTLING_QUOTA_EXCEEDED before the push interval is over, unless
        the last error told the client to ask again."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            raise self._too_early()

    def check_push(
        self, now_ms: int, *, subscription_id: int, codec: int, size: int, max_size: int, ends: bool
    ) -> None:
        """Notes a PushTelemetry. Raises `KafkaError`, with the code of Apache Kafka, if it is refused."""
        if self.is_terminating:
            raise KafkaError(f"client {self.name} said that its last push was the last one", ErrorCode.INVALID_REQUEST)
        may_push = self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.wanted.interval_ms
        if may_push:
            self.last_push_ms = now_ms
        elif not ends:
            raise self._too_early()
        if subscription_id != self.subscription_id:
            raise KafkaError(f"client {self.name} has another subscription", ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in _CODECS:
            raise KafkaError(f"{codec} is no compression type", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size > max_size:
            raise KafkaError(
                f"{size} bytes are more than telemetry.max.bytes={max_size}", ErrorCode.TELEMETRY_TOO_LARGE
            )

    @property
    def name(self) -> str:
        """The id as text."""
        return to_text(self.id)

    def _too_early(self) -> KafkaError:
        what = f"client {self.name} sent a request before its push interval of {self.wanted.interval_ms} ms was over"
        return KafkaError(what, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class ClientInstances:
    """Every client instance of this broker, and the subscriptions."""

    def __init__(self, *, on_forget: Callable[[bytes], None], new_id: Callable[[], bytes]) -> None:
        """`on_forget` is called with the id of each instance that is forgotten."""
        self._on_forget, self._new_id = on_forget, new_id
        self._subscriptions: dict[str, TelemetrySubscription] = {}
        self._version = 0
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()  # the longest silent first
        self.throttled = self.unknown_subscriptions = 0

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._instances.values())

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, id: bytes) -> bool:
        return id in self._instances

    @property
    def subscriptions(self) -> Mapping[str, TelemetrySubscription]:
        """The subscriptions by name."""
        return self._subscriptions

    def subscribe(self, name: str, subscription: TelemetrySubscription | None) -> None:
        """Sets a subscription; None removes it. Clients get it with their next request."""
        if subscription is None:
            if self._subscriptions.pop(name, None) is None:
                return
        else:
            self._subscriptions[name] = subscription
        self._version += 1

    def instance(self, id: bytes, attributes: Mapping[str, str], peer: Peer, now_ms: int) -> ClientInstance:
        """The instance of a client, new if it is not known, its subscription changed, or its connection is another.
        Raises INVALID_REQUEST if the id is another client's."""
        if id == _NO_ID:
            id = self._new_id()
        self.forget_expired(now_ms, look_at=2)
        found = self._instances.get(id)
        if found is not None and found.owner != _owner(attributes, peer):
            raise KafkaError("the client instance id is another client's", ErrorCode.INVALID_REQUEST)
        if found is None or found.version < self._version or (found.peer is not peer and found.peer.is_closed):
            known = {**attributes, INSTANCE_ID: to_text(id)}
            found = ClientInstance(id, known, wanted_from(self._subscriptions.values(), known), self._version, peer)
            if id not in self._instances and len(self._instances) >= INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
            self._instances[id] = found
        self._instances.move_to_end(id)
        found.last_seen_ms = now_ms
        return found

    def forget_expired(self, now_ms: int, look_at: int = INSTANCES_MAX) -> None:
        """Forgets instances that were silent for too long, among the `look_at` longest silent ones."""
        silent = [each for each, _ in zip(self._instances.values(), range(look_at), strict=False)]
        for each in silent:
            if now_ms - each.last_seen_ms > each.expiry_ms:
                self._forget(each.id)

    def _forget(self, id: bytes) -> None:
        del self._instances[id]
        self._on_forget(id)


def _owner(attributes: Mapping[str, str], peer: Peer) -> tuple[str, str | None, str | None]:
    return peer.principal, attributes.get(SOURCE_ADDRESS), attributes.get(CLIENT_ID)


def is_reserved(id: bytes) -> bool:
    """Whether no client may have this id."""
    return id in (_NO_ID, _METADATA_TOPIC_ID)


def _as_int32(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
