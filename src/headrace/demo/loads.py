"""Runs `headrace load` in subprocesses, to the end or until they are killed at a chosen point."""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from headrace.demo.flights import VALUE_SCHEMA
from headrace.demo.killed_load import CrashPoint
from headrace.lake.delta.delta_table import LoadTable


@dataclass(frozen=True, slots=True)
class Loads:
    """The demo's load job: one topic into one table."""

    bootstrap: str
    topic: str
    table: Path
    work: Path

    def command(self) -> list[str]:
        """The command line, as a user would type it."""
        job = ["headrace", "load", self.topic, "--bootstrap", self.bootstrap, "--table", str(self.table)]
        return [*job, "--value-json", VALUE_SCHEMA]

    def run(self) -> dict[str, object]:
        """Load to the end; what `--json` printed. RuntimeError with its complaint when it fails."""
        done = self._start(None)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(self.command())} failed:\n{done.stderr[-3000:]}")
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def run_and_be_killed(self, point: CrashPoint) -> None:
        """Start a load whose driver is killed with SIGKILL at `point`; RuntimeError when it survives."""
        done = self._start(point)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"a load to be killed at {point} ended with {done.returncode}:\n{done.stderr[-3000:]}")

    def _start(self, point: CrashPoint | None) -> "subprocess.CompletedProcess[str]":
        # What killed drivers leave of Spark's scratch files goes where the demo removes it.
        environment = {**os.environ, "TMPDIR": str(self.work), "SPARK_LOCAL_DIRS": str(self.work)}
        program, load, *arguments = self.command()
        entry = [program, load] if point is None else ["headrace.demo.killed_load", point]
        command = [sys.executable, "-m", *entry, *arguments, "--json"]
        return subprocess.run(command, env=environment, cwd=self.work, capture_output=True, text=True, check=False)


def table_state(table: Path) -> tuple[int, int]:
    """The version of the Delta table and the rows that its log counts; (-1, 0) when there is none."""
    snapshot = LoadTable.open(table)
    return (snapshot.version, snapshot.rows) if snapshot else (-1, 0)


def orphan_files(table: Path) -> int:
    """How many Parquet files lie in the table's directory that no commit names: what killed drivers left."""
    snapshot = LoadTable.open(table)
    named = set(snapshot.files) if snapshot else set()
    return sum(path not in named for path in table.rglob("*.parquet") if "_delta_log" not in path.parts)
