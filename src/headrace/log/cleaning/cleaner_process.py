"""The cleaner process: runs compaction outside the broker, and the broker's interface to it.

    broker                                                    `python -m headrace.log.cleaning.cleaner_process`
    ProcessWorker.plan(job)       ── {"plan": {…}} ─▶         Compaction.plan
                                  ◀─ {"done": {…}} ──
    ProcessWorker.clean(group)    ── {"clean": […]} ─▶        Compaction.clean
                                  ◀─ {"failed": kind, "why": …} ──

Requests and responses are lines of JSON over the process's stdin and stdout. In a thread, reading gigabytes of records
would delay the event loop, which must wait for the interpreter's lock. Another process does not, and frees the memory
of its keys when it ends. It runs at a lower priority than the broker. It ends at once when its stdin is closed, also if
the broker was killed, and after some idle minutes.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from headrace.errors import CorruptMessage
from headrace.log.cleaning.compaction import CleanedGroup, CleaningJob, CleaningPlan, CleaningStopped, Compaction
from headrace.log.files import LocalFiles

NICENESS = 10
IDLE_SECONDS = 300.0
_DAMAGE = "damage"
_DISK = "disk"
_BUG = "bug"


class ProcessDied(Exception):
    """The cleaner process ended in the middle of its work."""


class ProcessWorker:
    """The broker's side. The first job starts the process, which ends at `stop` or after some idle minutes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    def plan(self, job: CleaningJob) -> CleaningPlan:
        """Begin a job. Raises CorruptMessage, OSError, ProcessDied, CleaningStopped."""
        return CleaningPlan(**self._ask({"plan": job._asdict()}))

    def clean(self, group: list[int]) -> CleanedGroup:
        """Clean the next group of the plan. Raises the errors of `plan`."""
        return CleanedGroup(**self._ask({"clean": group}))

    def stop(self) -> None:
        """Kill the process. A call that waits for it raises CleaningStopped. Any thread."""
        with self._lock:
            self._is_stopped = True
            process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._close(process)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._is_stopped:
                raise CleaningStopped
            if self._process is not None and "plan" in question and self._process.poll() is not None:
                self._close(self._process)  # it ended after its idle time
                self._process = None
            process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        line = b""
        with suppress(BrokenPipeError, ValueError):  # ValueError: closed by `stop`
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended(process)
        answer: dict[str, Any] = json.loads(line)
        if "failed" not in answer:
            found: dict[str, Any] = answer["done"]
            return found
        match answer["failed"]:
            case "damage":
                raise CorruptMessage(answer["why"])
            case "disk":
                raise OSError(answer["why"])
        raise RuntimeError(answer["why"])

    def _ended(self, process: subprocess.Popen[bytes]) -> Exception:
        with self._lock:
            if self._is_stopped:
                return CleaningStopped()
            self._process = None
        process.kill()
        code = process.wait()
        self._close(process)
        return ProcessDied(f"the cleaning process ended with {code}")

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _start() -> subprocess.Popen[bytes]:
    """Start the process. Raises OSError."""
    home = str(Path(__file__).parents[3])
    paths = [home, os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [home]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace.log.cleaning.cleaner_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # so that a Ctrl-C reaches only the broker
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


# Inside the process


def answer(worker: Compaction, line: bytes) -> dict[str, Any]:
    """Process one request line of the broker, and return the response."""
    asked: dict[str, Any] = json.loads(line)
    try:
        if "plan" in asked:
            return {"done": worker.plan(_job_of(asked["plan"]))._asdict()}
        return {"done": worker.clean(asked["clean"])._asdict()}
    except CorruptMessage as error:
        return {"failed": _DAMAGE, "why": error.message}
    except OSError as error:
        return {"failed": _DISK, "why": str(error)}
    except Exception as error:
        return {"failed": _BUG, "why": f"{type(error).__name__}: {error}"}


def _job_of(found: dict[str, Any]) -> CleaningJob:
    """The job of a decoded request. JSON objects have strings for keys, which become integers again."""
    found["sizes"] = {int(base): size for base, size in found["sizes"].items()}
    found["producers"] = {int(producer): (last[0], last[1]) for producer, last in found["producers"].items()}
    return CleaningJob(**found)


def serve(questions: IO[bytes], answers: IO[bytes], idle_seconds: float = IDLE_SECONDS) -> None:
    """Answer requests until the input ends, or none comes for `idle_seconds`. Ends the process."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in questions:
            lines.put(line)
        os._exit(0)  # the broker is gone: this process must not write to its directories any more

    threading.Thread(target=listen, daemon=True).start()
    worker = Compaction(LocalFiles())
    with suppress(queue.Empty):
        while True:
            said = json.dumps(answer(worker, lines.get(timeout=idle_seconds)))
            answers.write(said.encode() + b"\n")
            answers.flush()
    os._exit(0)  # the listening thread would delay an ordinary exit


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)
