"""Chooses the version of each API that this client uses with a broker.

The client uses the highest version that both sides support; the broker returns its versions in ApiVersions. The bounds
below are this client's: from the versions of Kafka 0.11 (record batches v2 need Produce 3 and Fetch 4) up to the last
version that is useful to this client.

    Produce, Fetch <= 12            from 13 on topics are named by id only
    OffsetCommit <= 9, OffsetFetch <= 7     from OffsetFetch 8 on several groups share a request
    FindCoordinator <= 3            from 4 on several keys share a request
    AddPartitionsToTxn <= 3         4 and 5 are for brokers
    ElectLeaders >= 1               0 knows no unclean election
"""

from collections.abc import Mapping

from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.negotiation import common_version

SPOKEN: Mapping[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 8),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (0, 7),
    ApiKey.DELETE_TOPICS: (0, 5),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.WRITE_TXN_MARKERS: (0, 2),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.ALTER_INSTANCES: (0, 0),
    ApiKey.DESCRIBE_INSTANCES: (0, 0),
    ApiKey.DESCRIBE_INSTANCE_FLOW: (0, 0),
}


_TRANSACTION_VERSION = "transaction.version"


class BrokerVersions:
    """The version ranges that one broker advertised."""

    __slots__ = ("_broker", "_served", "transaction_version")

    def __init__(
        self, broker: str, served: Mapping[int, tuple[int, int]], features: Mapping[str, int] | None = None
    ) -> None:
        self._broker = broker
        self._served = served
        self.transaction_version: int = (features or {}).get(_TRANSACTION_VERSION, 0)
        """The cluster's level of `transaction.version`."""

    @property
    def ranges(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the broker serves."""
        return self._served

    def choose(self, api_key: int, newest: int | None = None) -> int:
        """The highest common version, at most `newest`. UnsupportedVersion names the broker and both ranges."""
        low, high = SPOKEN[api_key]
        spoken = low, high if newest is None else min(high, newest)
        return common_version(self._broker, api_key, spoken, self._served.get(api_key))
