"""`make pipelines`, over a quieter site than its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines.pictures import PICTURES
from tests import rotation
from tests.harness import child_environment
from tests.spark import shared_classes


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("day", [pytest.param(0, marks=rotation.unless_today(0, of=5))])
def test_everything_is_as_plain_python_finds_it(tmp_path: Path, day: int) -> None:
    shared_classes.use()
    output = tmp_path / "output"
    command = [sys.executable, "-m", "headrace.pipelines", "all", "--rate", "20", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(), timeout=500)
    assert done.returncode == 0, done.stdout + (output / "spark.log").read_text()[-3000:]
    assert done.stderr == ""
    assert done.stdout.count("as plain Python finds it") == len(PICTURES)
    for name in PICTURES:
        assert f"{name} " in done.stdout and (output / f"{name}.svg").exists()
    assert "818 hours of an airport" in done.stdout
