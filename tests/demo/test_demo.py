"""The whole demo, in its quick variant: drivers killed, every record in the table once."""

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.demo.flights import QUICK_FLIGHTS
from tests import rotation


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
@rotation.on_its_day(0, of=3)
def test_the_quick_demo_ends_with_every_flight_once_a_chart_and_what_to_try(tmp_path: Path) -> None:
    output = tmp_path / "demo output"
    command = [sys.executable, "-m", "headrace.demo", "--quick", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("each once") == 3 and "NOT each once" not in done.stdout
    assert done.stdout.count("kill -9") == 3
    assert "Try next" in done.stdout
    assert (output / "delays.png").read_bytes().startswith(b"\x89PNG")
    actions = DeltaTable(str(output / "flights")).get_add_actions(flatten=True)
    assert sum(actions.column("num_records").to_pylist()) == QUICK_FLIGHTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo output"], "nothing beside its own directory"


@pytest.mark.slow
def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    command = [sys.executable, "-m", "headrace.demo", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds other files" in done.stdout.replace("\n", " ")
    from headrace.demo.__main__ import MARKER  # imports all of the demo

    assert not (tmp_path / MARKER).exists()
    assert (tmp_path / "precious").read_text() == "mine"
