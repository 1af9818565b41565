"""`headrace load --follow`: the load job again and again, as records come, until it is told to end.

    run_load ─▶ something new: at once again │ nothing new: in `pause_s`, asking the brokers alone, not Spark

Each round is a load job of its own, with its own commit, so everything that holds for one holds here: killed at any
moment nothing is lost or doubled, and another driver of the same job may take turns with this one. SIGTERM ends it
between two rounds, Ctrl-C at once (the round at hand is loaded by the next run). A broker that cannot be reached, or a
race that was lost, is told and tried again; only in the first round is it the end, as a wrong address should be. Each
round adds one file or more to the table, so a pause of some seconds is kinder to those who read it than none.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from headrace.errors import KafkaError
from headrace.spark.delta_table import LostRaceError
from headrace.spark.load import LoadJob, LoadResult, run_load


def follow(
    job: LoadJob,
    pause_s: float,
    end: threading.Event,
    on_load: Callable[[LoadResult], None],
    on_trouble: Callable[[Exception], None],
) -> None:
    """Load until `end` is set; `on_load` hears of each round that committed, `on_trouble` of each that failed.

    Raises what a load job raises, but a KafkaError or LostRaceError only from the first round.
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
