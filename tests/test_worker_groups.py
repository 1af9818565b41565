"""Tests of one group run in one worker of `make test`, so that what they share starts once."""

import subprocess
import sys
from pathlib import Path

import pytest

GROUP = """
import pytest

@pytest.mark.xdist_group("server")
@pytest.mark.parametrize("number", range(8))
def test_of_a_group(number, worker_id):
    with open("workers", "a") as file:
        file.write(worker_id + "\\n")
"""


@pytest.mark.slow
def test_a_group_of_tests_stays_in_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(GROUP)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "test_group.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = (tmp_path / "workers").read_text().split()
    assert (len(workers), len(set(workers))) == (8, 1)
