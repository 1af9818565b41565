"""The settings of a producer, and the checks of those that depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.core.checked_settings import CheckedSettings
from headrace.client.producer.accumulator import Limits
from headrace.client.producer.encoded_batches import SendPolicy
from headrace.errors import InvalidConfig
from headrace.records.codecs.compression import Codec

ACKS: Mapping[int | str, int] = {"all": -1, -1: -1, 0: 0, 1: 1, "0": 0, "1": 1, "-1": -1}
IDEMPOTENT_IN_FLIGHT_MAX = 5


class ProducerSettings(CheckedSettings, kind="producer"):
    """The settings of a producer, by any of their names. Raises InvalidConfig for a value out of range."""

    acks: int | str = "all"
    compression: str = "none"
    compression_level: int | None = None
    idempotence: bool | None = None
    """None: yes, where acks=all allows it."""
    linger_ms: float = 5
    batch_bytes: int = 256 << 10
    request_bytes: int = 8 << 20
    buffer_memory_bytes: int = 64 << 20
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    transactional_id: str | None = None
    """The name under which the producer's transactions survive it: a new producer with the same name ends them."""
    transaction_timeout_ms: int = 60_000
    key_serializer: Any = None
    value_serializer: Any = None
    interceptors: Any = None
    """Objects, or classes, with any of `on_send`, `on_acknowledgement` and `close`; see `producer.interceptors`."""
    metrics_push: bool = False

    @property
    def resource(self) -> Callable[[], Mapping[str, str | None]] | None:
        """The producer's attributes in a push of its metrics; None if nothing is pushed."""
        return (lambda: {"transactional_id": self.transactional_id}) if self.metrics_push else None

    @property
    def limits(self) -> Limits:
        """The limits of batches, requests and waiting times."""
        return Limits(self.batch_bytes, self.linger_ms / 1000, self.request_bytes, self.delivery_timeout_ms / 1000)

    def policy(self, request_timeout_ms: int) -> SendPolicy:
        """The checked settings of the sender. InvalidConfig names the wrong setting."""
        acks = ACKS.get(self.acks)
        if acks is None:
            raise InvalidConfig(f"acks={self.acks!r}: expected 0, 1 or 'all'")
        idempotent = acks == -1 if self.idempotence is None else self.idempotence
        if idempotent and acks != -1:
            raise InvalidConfig(f"acks={self.acks!r} cannot be idempotent: set acks='all' or idempotence=False")
        if idempotent and self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            raise InvalidConfig(f"max_in_flight={self.max_in_flight}: at most 5 is allowed with idempotence")
        if self.transactional_id is not None and not (self.transactional_id and idempotent):
            raise InvalidConfig(
                f"transactional_id={self.transactional_id!r}: a name is needed, and acks='all' with idempotence"
            )
        try:
            codec = Codec[self.compression.upper()]
        except KeyError:
            names = ", ".join(known.name.lower() for known in Codec)
            raise InvalidConfig(f"compression={self.compression!r}: expected one of {names}") from None
        return SendPolicy(acks, codec, self.compression_level, idempotent, self.max_in_flight, request_timeout_ms)
