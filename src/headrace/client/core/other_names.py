"""Settings of other clients that have none here, and what to give instead. For errors alone.

Names are in Python's style, as kafka-python and aiokafka have them; librdkafka's and Java's have dots for underscores.
"""

from typing import Final

_VERSIONS = "versions are negotiated: leave it out"
_RETRIES = "a producer repeats until delivery_timeout_ms has passed"
_LOGGING = "the client writes to Python's logging, under the name headrace"
_METRICS = "call metrics() of the producer or consumer"
_PARTITIONS = "keys choose partitions as Java's default partitioner does; or give `partition` to send"
_DELIVERY = "give on_delivery to send, or use the Delivery that it returns"
_REBALANCE = "give on_assigned, on_revoked and on_lost to subscribe"
_COMMITTED = "commit raises its error; an interceptor's on_commit sees each commit"
_STORED = "enable_auto_commit commits what poll returned before; with it off, commit(record) commits up to a record"
_AHEAD = "a consumer has one fetch ahead of what it returned, of fetch_max_bytes at most"
_SYSTEM = "the operating system chooses: leave it out"
_REMAINS = "connections remain open; one that breaks is opened again: leave it out"

SAME: Final = {
    "auto_commit_enable": "enable.auto.commit",
    "compression_codec": "compression.type",
    "fetch_message_max_bytes": "max.partition.fetch.bytes",
    "fetch_wait_max_ms": "fetch.max.wait.ms",
    "max_batch_size": "batch.size",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "message_timeout_ms": "delivery.timeout.ms",
    "metadata_broker_list": "bootstrap.servers",
    "queue_buffering_max_ms": "linger.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
    "reconnect_backoff_max_ms": "retry.backoff.max.ms",
    "reconnect_backoff_ms": "retry.backoff.ms",
    "request_required_acks": "acks",
    "socket_timeout_ms": "request.timeout.ms",
    "topic_metadata_refresh_interval_ms": "metadata.max.age.ms",
}
"""Settings that are Kafka's by another name."""

ELSEWHERE: Final = {
    "allow_auto_create_topics": "consumers create none; for producers the brokers' auto.create.topics.enable decides",
    "api_version": _VERSIONS,
    "api_version_auto_timeout_ms": _VERSIONS,
    "api_version_fallback_ms": _VERSIONS,
    "api_version_request": _VERSIONS,
    "batch_num_messages": "batch.size bounds a batch, in bytes",
    "broker_address_family": "addresses of both families are tried: leave it out",
    "broker_version_fallback": _VERSIONS,
    "check_crcs": "checksums are always checked: leave it out",
    "connections_max_idle_ms": _REMAINS,
    "consumer_timeout_ms": "poll has a timeout; an iteration does not end by itself",
    "debug": _LOGGING,
    "default_topic_config": "give its settings beside the others",
    "delivery_report_only_error": "on_delivery of send gets the error, or None",
    "dr_cb": _DELIVERY,
    "dr_msg_cb": _DELIVERY,
    "enable_auto_offset_store": _STORED,
    "enable_gapless_guarantee": "enable.idempotence keeps the order of what is delivered",
    "enable_partition_eof": "lag() and end_offsets() say where partitions end",
    "enable_ssl_certificate_verification": "certificates are always verified: ssl.truststore.location says who signs",
    "error_cb": "errors are raised by the call that meets them, or are the Delivery's",
    "fetch_error_backoff_ms": "retry.backoff.ms is the pause after an error",
    "log_cb": _LOGGING,
    "log_level": _LOGGING,
    "logger": _LOGGING,
    "loop": "this is the client for threads: use headrace.client.aio, which runs on the loop that awaits it",
    "message_max_bytes": "the topic's max.message.bytes bounds what is sent, batch.size what is sent together",
    "message_send_max_retries": _RETRIES,
    "metric_reporters": _METRICS,
    "metrics_recording_level": _METRICS,
    "oauth_cb": "sasl.oauthbearer.* says where tokens are from",
    "offset_commit_cb": _COMMITTED,
    "offset_store_method": _STORED,
    "on_assign": _REBALANCE,
    "on_commit": _COMMITTED,
    "on_delivery": _DELIVERY,
    "on_lost": _REBALANCE,
    "on_revoke": _REBALANCE,
    "partitioner": _PARTITIONS,
    "partitioner_class": _PARTITIONS,
    "queue_buffering_max_kbytes": "buffer.memory bounds what waits, in bytes",
    "queue_buffering_max_messages": "buffer.memory bounds what waits, in bytes",
    "queued_max_messages_kbytes": _AHEAD,
    "queued_min_messages": _AHEAD,
    "rebalance_cb": _REBALANCE,
    "receive_buffer_bytes": _SYSTEM,
    "retries": _RETRIES,
    "send_buffer_bytes": _SYSTEM,
    "socket_keepalive_enable": _SYSTEM,
    "socket_nagle_disable": "small requests are never held back: leave it out",
    "socket_receive_buffer_bytes": _SYSTEM,
    "socket_send_buffer_bytes": _SYSTEM,
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "sticky_partitioning_linger_ms": "records without a key change their partition once a batch: leave it out",
    "throttle_cb": _METRICS,
}
"""Settings without an equal, and what there is instead."""


def advice(name: str) -> str:
    """What to give instead of a setting of another client, in the style of its name; empty for other names."""
    plain = name.replace(".", "_")
    if plain in SAME:
        same = SAME[plain]
        return f"here it is {same if '.' in name else same.replace('.', '_')}"
    return ELSEWHERE.get(plain, "")
