"""Log directory events: a broker notifies the controller that one of its log directories has failed.

    broker       creates /log_dir_event_notification/log_dir_event_N {"version":1,"broker":0,"event":1}
    controller   sees it (`zk_tool_requests`), sends that broker LeaderAndIsr for all its replicas, deletes the node
    broker       responds KAFKA_STORAGE_ERROR for each partition that it cannot serve
    controller   elects another leader for these, or none, and sends it (`replica_answers`, `leader_manager`)

A response to any other LeaderAndIsr, such as the first after a start, has the same effect. NONE for an offline
partition brings it back online. Source: Kafka's `KafkaZkClient.propagateLogDirEvent`, `KafkaController`.
"""

from headrace.metadata.admin_nodes import LOG_DIR_EVENTS, encode_log_dir_event
from headrace.metastore.store import MetadataStore
from headrace.types import BrokerId


async def announce(store: MetadataStore, broker_id: BrokerId) -> None:
    """Makes the controller ask this broker which replicas it can serve now."""
    await store.create(f"{LOG_DIR_EVENTS}/log_dir_event_", encode_log_dir_event(broker_id), sequential=True)
