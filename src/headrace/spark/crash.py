"""Where tests and the demo kill a load job: the three moments that could lose or double rows.

    HEADRACE_LOAD_CRASH=tasks           while Spark tasks write their files
    HEADRACE_LOAD_CRASH=before-commit   all files are written, none is in the table
    HEADRACE_LOAD_CRASH=after-commit    rows and progress are in the table, nobody was told

Killed means SIGKILL to the JVM and to this process: no handler runs, nothing is cleaned up.
"""

import os
import signal
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

CRASH_VARIABLE: Final = "HEADRACE_LOAD_CRASH"


class CrashPoint(StrEnum):
    """The named moments."""

    TASKS = "tasks"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"


def chosen_crash_point() -> CrashPoint | None:
    """What the environment asks for; ValueError when it names no crash point."""
    name = os.environ.get(CRASH_VARIABLE)
    return CrashPoint(name) if name else None


def crash_here(point: CrashPoint, jvm_pid: int | None) -> None:
    """Kill this driver when the environment asks for it at this point."""
    if chosen_crash_point() is point:
        _kill_driver(jvm_pid)


def crash_while_tasks_write(load_directory: Path, jvm_pid: int | None) -> None:
    """Kill this driver as soon as a task has opened a file below `load_directory`, if asked for. Returns at once."""
    if chosen_crash_point() is CrashPoint.TASKS:
        threading.Thread(target=_kill_at_first_file, args=(load_directory, jvm_pid), daemon=True).start()


def _kill_at_first_file(load_directory: Path, jvm_pid: int | None) -> None:
    unfinished = load_directory / "_temporary"
    while not any(unfinished.rglob("*.parquet")):
        time.sleep(0.002)
    _kill_driver(jvm_pid)


def _kill_driver(jvm_pid: int | None) -> None:
    if jvm_pid is not None:
        os.kill(jvm_pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
