"""One module per API: what it serves, what each version added, what is left out, then the handler.

`MODULES` is what the broker serves; ApiVersions and the docs' table are computed from it.
"""

from types import ModuleType

from headrace.broker.handlers import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    update_metadata,
)
from headrace.protocol.apis import ApiKey

MODULES: tuple[ModuleType, ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    api_versions,
    create_topics,
    delete_topics,
    init_producer_id,
    describe_configs,
    alter_configs,
    incremental_alter_configs,
    create_partitions,
    delete_records,
    describe_cluster,
    describe_topic_partitions,
    describe_log_dirs,
    alter_replica_log_dirs,
    offset_for_leader_epoch,
    delete_groups,
    offset_delete,
    leader_and_isr,
    stop_replica,
    update_metadata,
    controlled_shutdown,
    alter_partition,
    allocate_producer_ids,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
)


def advertised() -> tuple[tuple[ApiKey, range], ...]:
    """Each API and the versions that clients are told of: what is served."""
    return tuple((module.API_KEY, module.VERSIONS) for module in MODULES)
