"""`headrace load --follow`: repeats the load job as records arrive, until it is stopped.

    run_load ─▶ new records: again at once │ nothing new: again after `pause_s`, a check of the brokers without Spark

Each round is a load job with its own commit, and has the same guarantees: a kill at any moment loses and duplicates
nothing, and another driver of the same job may take turns with this one. SIGTERM ends it between two rounds. Ctrl-C
ends it at once (the next run loads the current round). An unreachable broker or a lost race is reported and retried;
only the first round fails, as it should for a wrong address. Each round adds one file or more to the table, so a pause
of some seconds reduces the number of files for readers.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from headrace.errors import KafkaError
from headrace.spark.load.delta_table import LostRaceError
from headrace.spark.load.load import LoadJob, LoadResult, run_load


def follow(
    job: LoadJob,
    pause_s: float,
    end: threading.Event,
    on_load: Callable[[LoadResult], None],
    on_trouble: Callable[[Exception], None],
) -> None:
    """Load until `end` is set. Calls `on_load` after each round that committed, `on_trouble` after each that failed.

    Raises the errors of a load job, but KafkaError and LostRaceError only in the first round.
    """
    is_first = True
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
        if result.table_version is None:
            end.wait(pause_s)
        else:
            on_load(result)


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
