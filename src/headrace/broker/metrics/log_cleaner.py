"""What the log cleaner tells of itself, under the names of Kafka's `LogCleaner` and `LogCleanerManager`."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, gauge, number
from headrace.log.cleaner import Cleaner

_CLEANER = "kafka_log_logcleaner"
_MANAGER = "kafka_log_logcleanermanager"


def families(cleaner: Cleaner, now_ms: int) -> Iterable[Family]:
    """How dirty the logs are, what the last cleaning did, and which logs cannot be cleaned."""
    found = cleaner.numbers
    yield number(f"{_MANAGER}_max_dirty_percent", "New bytes of the dirtiest compacted log.", found.max_dirty_percent)
    since_ms = now_ms - found.last_look_ms if found.last_look_ms >= 0 else 0
    yield number(f"{_MANAGER}_time_since_last_run_ms", "Since dirty logs were last looked for.", since_ms)
    left = cleaner.uncleanable_by_directory()
    for name, text, index in (
        ("partitions_count", "Logs that are left uncleaned until the next start.", 0),
        ("bytes", "Their bytes.", 1),
    ):
        rows = [({"logDirectory": str(directory)}, numbers[index]) for directory, numbers in left.items()]
        yield gauge(f"{_MANAGER}_uncleanable_{name}", text, rows)
    yield number(f"{_CLEANER}_cleaner_recopy_percent", "What stayed in the last cleaning.", found.recopy_percent)
    yield number(f"{_CLEANER}_max_clean_time_secs", "The longest cleaning of one log.", found.max_clean_seconds)
    yield number(
        f"{_CLEANER}_max_buffer_utilization_percent", "How full the last map of keys was.", found.max_map_percent
    )
    yield number(
        f"{_CLEANER}_max_compaction_delay_secs",
        "How much longer than max.compaction.lag.ms a record has waited.",
        found.max_waited_seconds,
    )
