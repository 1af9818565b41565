"""`headrace load` with a driver that is killed at one of the three moments that could lose or double rows.

    python -m headrace.demo.killed_load POINT <arguments of headrace load>

    tasks           while Spark tasks write their files
    before-commit   all files are written, none is in the table
    after-commit    rows and progress are in the table, nobody was told

Killed means SIGKILL to the JVM and to this process: no handler runs, nothing is cleaned up.
"""

import os
import signal
import sys
import threading
import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.load import load_command
from headrace.spark.load.load import LoadStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CrashPoint(StrEnum):
    """The named moments."""

    TASKS = "tasks"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"


_STEPS = {
    CrashPoint.TASKS: LoadStep.PLANNED,
    CrashPoint.BEFORE_COMMIT: LoadStep.WRITTEN,
    CrashPoint.AFTER_COMMIT: LoadStep.COMMITTED,
}


def kill_at(point: CrashPoint, step: LoadStep, directory: Path, spark: "SparkSession") -> None:
    """Kill this driver if the step is the one of `point`; for the tasks, as soon as one has opened a file."""
    if step is not _STEPS[point]:
        return
    jvm_pid = _jvm_pid(spark)
    if point is CrashPoint.TASKS:
        threading.Thread(target=_kill_at_first_file, args=(directory, jvm_pid), daemon=True).start()
    else:
        _kill_driver(jvm_pid)


def _kill_at_first_file(directory: Path, jvm_pid: int | None) -> None:
    unfinished = directory / "_temporary"
    while not any(unfinished.rglob("*.parquet")):
        time.sleep(0.002)
    _kill_driver(jvm_pid)


def _kill_driver(jvm_pid: int | None) -> None:
    if jvm_pid is not None:
        os.kill(jvm_pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _jvm_pid(spark: "SparkSession") -> int | None:
    """The process of the local JVM, which is killed with us; None when Spark was started elsewhere."""
    process = getattr(getattr(spark.sparkContext, "_gateway", None), "proc", None)
    return None if process is None else int(process.pid)


if __name__ == "__main__":
    sys.exit(load_command.main(sys.argv[2:], partial(kill_at, CrashPoint(sys.argv[1]))))
