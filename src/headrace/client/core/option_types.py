"""The settings that can be given by name to a client, for type checkers and editors.

Kafka's names in Python's style, and ours. `options` has the table that these follow; a test compares them.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict

from headrace.client.serializers.context import DeserializerLike, SerializerLike
from headrace.client.serializers.errors import RecordDeserializationError


class ClientOptions(TypedDict, total=False):
    """The settings of every client."""

    client_id: str
    socket_connection_setup_timeout_ms: int
    connect_timeout_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    bootstrap_servers: str | Sequence[str]
    security_protocol: str
    ssl_truststore_location: str
    ssl_truststore_certificates: str
    ssl_keystore_location: str
    ssl_key_password: str
    sasl_mechanism: str
    sasl_jaas_config: str


class ProducerOptions(ClientOptions, total=False):
    """The settings of a producer."""

    acks: int | str
    compression_type: str
    compression: str
    compression_level: int | None
    enable_idempotence: bool | None
    idempotence: bool | None
    linger_ms: float
    batch_size: int
    batch_bytes: int
    max_request_size: int
    request_bytes: int
    buffer_memory: int
    buffer_memory_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
    max_in_flight: int
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: SerializerLike | None
    value_serializer: SerializerLike | None
    interceptor_classes: object
    interceptors: object
    enable_metrics_push: bool
    metrics_push: bool


class ConsumerOptions(ClientOptions, total=False):
    """The settings of a consumer."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    assignors: str | Sequence[str]
    client_rack: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    max_poll_records: int
    fetch_max_wait_ms: int
    max_wait_ms: int
    fetch_min_bytes: int
    min_bytes: int
    fetch_max_bytes: int
    max_bytes: int
    max_partition_fetch_bytes: int
    partition_max_bytes: int
    key_deserializer: DeserializerLike | None
    value_deserializer: DeserializerLike | None
    interceptor_classes: object
    interceptors: object
    enable_metrics_push: bool
    metrics_push: bool
    deserialization_exception_handler: Callable[[RecordDeserializationError], object] | None
    on_deserialization_error: Callable[[RecordDeserializationError], object] | None


class ShareConsumerOptions(ClientOptions, total=False):
    """The settings of a share consumer."""

    group_id: str
    client_rack: str | None
    max_poll_records: int
    fetch_max_wait_ms: int
    max_wait_ms: int
    fetch_min_bytes: int
    min_bytes: int
    fetch_max_bytes: int
    max_bytes: int
    share_acknowledgement_mode: str
    acknowledgement_mode: str
    share_acquire_mode: str
    acquire_mode: str
