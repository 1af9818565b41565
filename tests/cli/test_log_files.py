"""`headrace log verify|repair|du` on files, without a broker; and what they say while one runs."""

import json
from pathlib import Path

import pytest

from headrace.log.manager import LogManager
from tests.cli.conftest import Run, run_headrace
from tests.harness import HeadraceServer
from tests.log.support import NOW_MS, PARTITION, append, config
from tests.log.test_verify import flip, places

pytestmark = pytest.mark.slow  # processes of its own


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition, closed."""
    manager = LogManager([tmp_path / "data"], broker_id=1, topic_config=lambda _: config(segment_bytes=1500))
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    log = manager.create(PARTITION, bytes(16), NOW_MS)
    for number in range(30):
        append(log, b"value %d" % number)
    manager.close(NOW_MS)
    return tmp_path / "data"


def rows(out: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_verify_says_that_all_is_good(data: Path) -> None:
    done = run_headrace("log", "verify", str(data))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith(f"{data}: 30 batches in 2 segments, ")
    assert done.stdout.endswith(b"all good\n")


def test_damage_is_told_before_it_is_cut_and_nothing_is_cut_without_a_yes(data: Path, tmp_path: Path) -> None:
    path = data / str(PARTITION) / f"{0:020d}.log"
    position, size, first, last = places(path)[4]
    flip(path, position + 66)
    damaged = path.read_bytes()
    done = run_headrace("log", "verify", "--json", "--deep", str(data))
    assert done.returncode == 1
    [damage] = [row for row in rows(done.stdout) if row["kind"] == "damage"]
    assert damage == {
        "kind": "damage",
        "file": str(path),
        "position": position,
        "size_bytes": size,
        "first_offset": first,
        "last_offset": last,
        "reason": "the batch does not match its CRC",
        "repair_loses": f"offsets {first} to {last}, at most 1 records",
    }
    save = str(tmp_path / "cut")
    for arguments, answer in (["--dry-run"], b""), ([], b"n\n"):
        done = run_headrace("log", "repair", "--save", save, *arguments, str(data), stdin=answer)
        assert b"repair would lose offsets 4 to 4" in done.stdout
        assert path.read_bytes() == damaged
        assert not Path(save).exists()
    done = run_headrace("log", "repair", "--save", save, str(data), stdin=b"y\n")
    assert done.returncode == 0
    assert b"saved " in done.stdout
    assert len(path.read_bytes()) == len(damaged) - size
    assert run_headrace("log", "verify", str(data)).returncode == 0
    assert run_headrace("log", "repair", "--yes", str(data)).stdout == b"found no damage\n"


def test_du_tells_what_partitions_take(data: Path) -> None:
    [usage] = rows(run_headrace("log", "du", "--json", str(data)).stdout)
    assert usage["name"] == str(PARTITION)
    assert usage["segments"] == 2
    assert usage["log_bytes"] == sum(path.stat().st_size for path in (data / str(PARTITION)).glob("*.log"))
    shown = run_headrace("log", "du", "--topics", str(data)).stdout.decode().splitlines()
    assert [line.split()[0] for line in shown[1:]] == [PARTITION.topic, "total"]


def test_a_running_brokers_files_are_verified_but_not_repaired(cli_server: HeadraceServer, headrace: Run) -> None:
    assert headrace("produce", "verified", stdin=b"one\ntwo\n").returncode == 0
    done = headrace("log", "verify", str(cli_server.data))
    assert done.returncode == 0, done.stdout
    refused = headrace("log", "repair", "--yes", str(cli_server.data))
    assert refused.returncode == 1
    assert b"is in use by a running broker" in refused.stderr
    assert b"stop the broker first, or work on a copy" in refused.stderr


def test_what_is_no_log_is_a_usage_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    done = run_headrace("log", "verify", str(tmp_path / "notes.txt"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is not a segment" in done.stderr
    done = run_headrace("log", "verify", str(gone := tmp_path / "gone"))
    assert (done.returncode, done.stderr.decode().lower()) == (
        1,
        f"headrace: {gone}: no such file or directory\n".lower(),
    )
