"""How a broker has the controller ask what it can still serve, when one of its data directories has failed.

    broker       makes /log_dir_event_notification/log_dir_event_N {"version":1,"broker":0,"event":1}
    controller   sees it (`tree_requests`), asks that broker with LeaderAndIsr for all it has, and removes the node
    broker       answers KAFKA_STORAGE_ERROR for each partition that it cannot serve
    controller   elects another leader for these, or none, and tells everybody (`disk_answers`, `leader_manager`)

The same answer to any other LeaderAndIsr, at a start above all, has the same effect; NONE for a partition that was
offline takes that back. Source: Kafka's `KafkaZkClient.propagateLogDirEvent`, `KafkaController`.
"""

from headrace.coordination.admin_nodes import LOG_DIR_EVENTS, encode_log_dir_event
from headrace.coordination.tree import Tree
from headrace.types import BrokerId


async def announce(tree: Tree, broker_id: BrokerId) -> None:
    """Has the controller ask this broker what it can still, or again, serve."""
    await tree.create(f"{LOG_DIR_EVENTS}/log_dir_event_", encode_log_dir_event(broker_id), sequential=True)
