"""`headrace load --follow`: repeats the load job as records arrive, until it is stopped.

    run_load ─▶ many small files? compact them ─▶ wait `pause_s` ─▶ again; without new records Spark is not asked

Each round is a load job with its own commit, and has the same guarantees: a kill at any moment loses and duplicates
nothing, and another driver of the same job may take turns with this one. SIGTERM ends it between two rounds. Ctrl-C
ends it at once (the next run loads the current round). An unreachable broker or a lost race is reported and retried;
only the first round fails, as it should for a wrong address. Each round adds a file or more to the table, so the pause
bounds how many, and `compact_at` small ones are made one. The small ones stay on disk for older versions of the table,
until somebody vacuums it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from headrace.errors import KafkaError
from headrace.lake.compaction import compact
from headrace.lake.delta.delta_table import LoadTable, LostRaceError
from headrace.spark.load.load import LoadJob, LoadResult, run_load

COMPACT_AT = 32
"""Small files: at the default pause about a minute of loads, after which a compaction takes less than a second."""


def follow(
    job: LoadJob,
    pause_s: float,
    end: threading.Event,
    on_load: Callable[[LoadResult], None],
    on_trouble: Callable[[Exception], None],
    compact_at: int = COMPACT_AT,
) -> None:
    """Load until `end` is set. Calls `on_load` after each round that committed, `on_trouble` after each that failed.

    Compacts the table when it has `compact_at` small files; 0 is never. Raises the errors of a load job, but KafkaError
    and LostRaceError only in the first round.
    """
    is_first, compacted = True, 0  # files that the last compaction left small
    while not end.is_set():
        try:
            result = run_load(job)
        except (KafkaError, LostRaceError) as trouble:
            if is_first:
                raise
            on_trouble(trouble)
            end.wait(pause_s)
            continue
        is_first = False
        if result.table_version is not None:
            on_load(result)
            compacted = _compact(job, compact_at, compacted, on_trouble)
        end.wait(pause_s)


def _compact(job: LoadJob, compact_at: int, left: int, on_trouble: Callable[[Exception], None]) -> int:
    """Compacts when so many small files came after the last compaction, which left `left`: what it writes may be small
    as well. Returns how many are left now."""
    table = LoadTable.open(job.table)
    if table is None or not compact_at:
        return left
    left = min(left, table.small_files)
    if table.small_files - left < compact_at:
        return left
    try:
        compact(table)
    except LostRaceError as trouble:
        on_trouble(trouble)
        return left
    after = LoadTable.open(job.table)
    return left if after is None else after.small_files


@contextmanager
def ended_by_sigterm() -> Iterator[threading.Event]:
    """An event that SIGTERM sets; a second one kills. (SIGINT belongs to Spark, which cancels its jobs with it.)"""
    end = threading.Event()
    before = signal.getsignal(signal.SIGTERM)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        end.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield end
    finally:
        signal.signal(signal.SIGTERM, before)
