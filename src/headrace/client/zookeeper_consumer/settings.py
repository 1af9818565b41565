"""The settings of a consumer connector, with Kafka 0.8.2's names and defaults, and underscores for dots.

rebalance_max_retries    left out: a rebalance is retried until it succeeds
"""

from dataclasses import dataclass

from headrace.client.consumer.fetching import FETCH_SIZES, FetchSizes
from headrace.client.operations.admin import EARLIEST, LATEST
from headrace.client.zookeeper_consumer.rebalance import RANGE, STRATEGIES
from headrace.errors import InvalidConfig

ZOOKEEPER, KAFKA = "zookeeper", "kafka"
RESETS = {"smallest": EARLIEST, "largest": LATEST, "earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """The settings of a consumer connector."""

    auto_offset_reset: str = "largest"
    """Where to read a partition without an offset, or whose offset is gone: `smallest` or `largest`."""
    auto_commit_enable: bool = True
    auto_commit_interval_ms: int = 60_000
    offsets_storage: str = ZOOKEEPER
    dual_commit_enabled: bool = True
    """With `offsets_storage="kafka"`: commit to ZooKeeper as well, and resume at the greater of both offsets."""
    partition_assignment_strategy: str = RANGE
    exclude_internal_topics: bool = True
    rebalance_backoff_ms: int = 2_000
    consumer_timeout_ms: int = -1
    """An iteration ends when no record arrives for so long; -1: never. It can be begun again."""
    handover_timeout_ms: int = 500
    """How long a rebalance waits for a stream's thread to finish its record, before another consumer reads it again."""
    zookeeper_session_timeout_ms: int = 6_000
    zookeeper_connection_timeout_ms: int = 6_000
    sizes: FetchSizes = FETCH_SIZES

    def check(self) -> None:
        """Raises InvalidConfig, which names the setting."""
        _one_of("auto_offset_reset", self.auto_offset_reset, tuple(RESETS))
        _one_of("offsets_storage", self.offsets_storage, (ZOOKEEPER, KAFKA))
        _one_of("partition_assignment_strategy", self.partition_assignment_strategy, STRATEGIES)
        for name in (
            "auto_commit_interval_ms",
            "rebalance_backoff_ms",
            "zookeeper_session_timeout_ms",
            "zookeeper_connection_timeout_ms",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"{name}={getattr(self, name)!r}: expected a positive number of milliseconds")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidConfig(f"{name}={value!r}: expected {' or '.join(known)}")
