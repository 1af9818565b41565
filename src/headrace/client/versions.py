"""Which version of each API this client speaks with a broker.

ApiVersions says what the broker serves; the highest version that both sides know is used. The bounds below are this
client's: from what Kafka 0.11 serves (record batches v2 need Produce 3 and Fetch 4) up to the last version before one
that this client has no use for.

    Produce, Fetch <= 12            from 13 on topics are named by id only
    OffsetCommit <= 8, OffsetFetch <= 7     from OffsetFetch 8 on several groups share a request
    FindCoordinator <= 3            from 4 on several keys share a request
    ElectLeaders >= 1               0 knows no unclean election
"""

from collections.abc import Mapping

from headrace.errors import UnsupportedVersion
from headrace.protocol.apis import ApiKey

SPOKEN: Mapping[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 8),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_COMMIT: (2, 8),
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
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
}


class BrokerVersions:
    """The version ranges that one broker advertised."""

    __slots__ = ("_broker", "_served")

    def __init__(self, broker: str, served: Mapping[int, tuple[int, int]]) -> None:
        self._broker = broker
        self._served = served

    def choose(self, api_key: int, newest: int | None = None) -> int:
        """The highest common version, at most `newest`. UnsupportedVersion names the broker and both ranges."""
        low, high = SPOKEN[api_key]
        served = self._served.get(api_key)
        name = ApiKey(api_key).name
        if served is None:
            raise UnsupportedVersion(f"broker {self._broker} does not serve {name}")
        version = min(high if newest is None else min(high, newest), served[1])
        if version < max(low, served[0]):
            raise UnsupportedVersion(
                f"broker {self._broker} serves {name} {served[0]}-{served[1]}, this client speaks {low}-{high}"
            )
        return version

    def serves(self, api_key: int) -> bool:
        """Whether the broker advertised the API at all."""
        return api_key in self._served
