"""What the load command shows beside its result: a progress bar on a terminal, and sizes.

The bar counts Spark's tasks. It asks the driver's status, so there is none with Spark Connect.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.client.operations.admin import Admin
from headrace.errors import KafkaError
from headrace.spark.load.load import LoadJob
from headrace.spark.source.cluster_access import connect
from headrace.spark.source.options import parse_options
from headrace.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY_S: Final = 0.5


def bytes_of(job: LoadJob, ranges: Sequence[OffsetRange]) -> int:
    """About how many bytes of the brokers' logs the ranges are; 0 if the brokers do not tell."""
    with connect(parse_options(job.source_options), waits_for_brokers=False) as cluster:
        admin = Admin(cluster)
        try:
            sizes: dict[TopicPartition, int] = {}
            for directory in admin.describe_log_dirs():
                for partition, size in directory.partition_bytes.items():
                    sizes[partition] = max(size, sizes.get(partition, 0))  # replicas
            wanted = {TopicPartition(one.topic, one.partition): one for one in ranges}
            bounds = admin.watermarks(wanted)
        except KafkaError:  # no right to describe the cluster
            return 0
    return sum(
        round(sizes.get(partition, 0) * one.size / max(1, int(bounds[partition][1]) - int(bounds[partition][0])))
        for partition, one in wanted.items()
    )


def size_text(size: int) -> str:
    """A number of bytes for people."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


@contextmanager
def shown_progress(*, is_wanted: bool) -> Iterator[None]:
    """Shows the tasks of the session's running stages on stderr, if it is a terminal."""
    if not is_wanted or not sys.stderr.isatty():
        yield
        return
    end = threading.Event()
    thread = threading.Thread(target=_show, args=(end,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _show(end: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("loading"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=None)
        while not end.wait(_EVERY_S):
            context = _context()
            if context is not None:
                done, total = tasks_of(context)
                progress.update(bar, completed=done, total=total or None)


def _context() -> "SparkContext | None":
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def tasks_of(context: "SparkContext") -> tuple[int, int]:
    """The tasks of the running stages that are done, and all of them."""
    tracker = context.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in found if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
