"""Metrics of the log cleaner, under the names of Kafka's `LogCleaner` and `LogCleanerManager`."""

from collections.abc import Iterable
from pathlib import Path

from headrace.broker.metrics.family import Family, gauge, number
from headrace.log.cleaning.cleaner import Cleaner

_CLEANER = "kafka_log_logcleaner"
_MANAGER = "kafka_log_logcleanermanager"


def families(cleaner: Cleaner, directories: Iterable[Path], now_ms: int) -> Iterable[Family]:
    """Returns the dirtiness of the logs, the results of the last cleaning, and the logs that cannot be cleaned."""
    found = cleaner.numbers
    yield number(
        f"{_MANAGER}_max_dirty_percent",
        "The highest percentage of uncleaned bytes of any log.",
        found.max_dirty_percent,
    )
    since_ms = now_ms - found.last_look_ms if found.last_look_ms >= 0 else 0
    yield number(f"{_MANAGER}_time_since_last_run_ms", "Milliseconds since the last check for dirty logs.", since_ms)
    left = cleaner.uncleanable_in(directories)
    for name, text, index in (
        ("partitions_count", "Logs that cannot be cleaned until the next start.", 0),
        ("bytes", "Size in bytes of logs that cannot be cleaned until the next start.", 1),
    ):
        rows = [({"logDirectory": str(directory)}, numbers[index]) for directory, numbers in left.items()]
        yield gauge(f"{_MANAGER}_uncleanable_{name}", text, rows)
    yield number(
        f"{_CLEANER}_cleaner_recopy_percent", "Percentage of bytes that the last cleaning kept.", found.recopy_percent
    )
    yield number(
        f"{_CLEANER}_max_clean_time_secs", "Seconds of the longest cleaning of a log.", found.max_clean_seconds
    )
    yield number(
        f"{_CLEANER}_max_buffer_utilization_percent",
        "Fill of the dedupe buffer in the last cleaning.",
        found.max_map_percent,
    )
    yield number(
        f"{_CLEANER}_max_compaction_delay_secs",
        "The maximum seconds that a record has stayed uncleaned beyond max.compaction.lag.ms.",
        found.max_waited_seconds,
    )
