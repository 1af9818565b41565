"""`headrace topic move` against a broker with two data directories."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import run_headrace
from tests.harness import HeadraceServer

pytestmark = pytest.mark.slow  # processes of its own


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceServer]:
    both = f"{tmp_path / 'first'},{tmp_path / 'second'}"
    made = HeadraceServer(tmp_path / "first", arguments=["--data", both])
    made.start()
    yield made
    made.stop()


def test_a_topic_is_moved_and_its_records_are_there(server: HeadraceServer, tmp_path: Path) -> None:
    def headrace(*arguments: str, stdin: bytes = b"") -> str:
        done = run_headrace(*arguments, stdin=stdin, bootstrap=server.bootstrap)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    headrace("topic", "create", "t", "--partitions", "2")
    headrace("produce", "t", "--partition", "1", stdin=b"a\nb\n")
    target = tmp_path / "second"
    planned = json.loads(headrace("topic", "move", "t", "--dir", str(target), "--dry-run", "--json"))
    assert [(each["partition"], each["to"], each["dry_run"]) for each in planned] == [
        (0, str(target), True),
        (1, str(target), True),
    ]
    assert {each["from"] for each in planned} == {str(tmp_path / "first"), str(target)}  # nothing has happened
    said = headrace("topic", "move", "t", "--dir", str(target)).splitlines()
    assert sorted(line.split()[1] for line in said) == ["is", "moved"]
    assert sorted(each.name for each in target.glob("t-[0-9]")) == ["t-0", "t-1"]
    assert headrace("consume", "t", "--from", "beginning", "--exit").split() == ["a", "b"]


def test_what_makes_no_sense_is_said_in_one_line(server: HeadraceServer, tmp_path: Path) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        done = run_headrace("topic", "move", *arguments, bootstrap=server.bootstrap)
        return done.returncode, done.stderr.decode()

    assert run_headrace("topic", "create", "t", bootstrap=server.bootstrap).returncode == 0
    assert said("none", "--dir", str(tmp_path)) == (
        2,
        "headrace: broker 0 has no replica of topic none in an online data directory\n",
    )
    assert said("t", "--dir", str(tmp_path), "--broker", "7") == (
        2,
        "headrace: broker 7 does not exist; the cluster has brokers 0\n",
    )
    code, line = said("t", "--dir", "/nowhere")
    assert code == 1
    assert "LOG_DIR_NOT_FOUND" in line
    assert line.count("\n") == 1
