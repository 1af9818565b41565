"""Runners that die by kill -9 at each point of a round, one after the other, on one table."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.harness import child_environment
from tests.lake.killed_lake import ROUND_RECORDS
from tests.lake.lakes import offsets_of, produce, run_once

pytestmark = pytest.mark.slow


def die_at(point: str, broker: str, topic: str, table: Path) -> None:
    command = [sys.executable, "-m", "tests.lake.killed_lake", broker, topic, str(table), point]
    ended = subprocess.run(command, env=child_environment(), capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def test_runners_killed_at_every_point_leave_each_record_once(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 40)
    die_at("AskBounds:1", broker, topic, table)  # the table is there, and empty
    assert offsets_of(table) == Counter()
    die_at("decode:2", broker, topic, table)  # one partition is in a file
    assert list(table.glob("*.parquet"))
    assert offsets_of(table) == Counter()
    die_at("Commit:1", broker, topic, table)  # all files are there
    assert offsets_of(table) == Counter()
    die_at("AskBounds:2", broker, topic, table)  # the commit is there, and nobody was told
    assert sum(offsets_of(table).values()) == ROUND_RECORDS
    die_at("Commit:2", broker, topic, table)
    assert sum(offsets_of(table).values()) == 2 * ROUND_RECORDS
    die_at("Write:2", broker, topic, table)
    assert sum(offsets_of(table).values()) == 3 * ROUND_RECORDS
    run_once(broker, topic, table)
    expected = Counter((partition, offset) for partition in range(2) for offset in range(20))
    assert offsets_of(table) == expected
    doomed = DeltaTable(str(table)).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )
    assert doomed, "files of killed rounds"
    assert offsets_of(table) == expected
