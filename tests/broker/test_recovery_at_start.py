"""A broker that was killed: what its next start reads and says of it, and that it can be told to stop meanwhile."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.log.directories.checkpoints import RECOVERY_POINT, read_offsets
from headrace.log.files import LocalFiles
from headrace.types import TopicPartition
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, child_environment, stop_process, tail
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


SEGMENT_BYTES = 200_000

SERVE_SLOWLY = """
import sys, time
from headrace.log.recovery import recovery_scan
from headrace.log.files import DiskFile

read_into = DiskFile.read_into

def read_slowly(self, buffer, position):
    time.sleep(0.5)
    return read_into(self, buffer, position)

DiskFile.read_into = read_slowly
recovery_scan.WINDOW_BYTES = 1000
from tests.eventually import WITHIN_SECONDS
from headrace.cli.main import main

sys.argv = ["headrace", "serve", "--listen", "127.0.0.1:0", "--data", sys.argv[1]]
sys.exit(main())
"""
"""Reads so slowly that recovering what `fill` left takes minutes."""


def fill(server: HeadraceServer, records: int) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("t", 2) == 0
        for number in range(records):
            assert wire.produce("t", batch([b"x" * 20_000]), partition=number % 2).error_code == 0


def high_watermarks(server: HeadraceServer) -> list[int]:
    with Wire(server.bootstrap) as wire:
        return [wire.fetch("t", 0, partition=partition).high_watermark for partition in (0, 1)]


def test_after_a_kill_the_active_segments_alone_are_read(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", {"log.segment.bytes": str(SEGMENT_BYTES)}).start()
    try:
        fill(server, 102)
        active = {
            TopicPartition("t", number): max((tmp_path / "data" / f"t-{number}").glob("*.log")) for number in (0, 1)
        }
        bases = {partition: int(path.stem) for partition, path in active.items()}
        assert min(bases.values()) > 30, "several segments were rolled"
        eventually(
            lambda: read_offsets(LocalFiles(), tmp_path / "data" / RECOVERY_POINT).items() >= bases.items(),
            "the recovery points to be written",
        )
        server.kill()
        sizes = sum(path.stat().st_size for path in active.values())
        server.restart()
        assert high_watermarks(server) == [51, 51]
        told = re.search(r"recovered logs logs=2 read_bytes=(\d+) seconds=", tail(server.stderr_file))
        assert told is not None, tail(server.stderr_file)
        assert 0 < int(told[1]) <= sizes <= 2 * SEGMENT_BYTES
    finally:
        server.stop()


def test_a_broker_that_recovers_can_be_stopped(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data").start()
    fill(server, 100)
    server.kill()
    log = tmp_path / "slow.stderr"
    with log.open("wb") as stderr:
        slow = subprocess.Popen(
            [sys.executable, "-c", SERVE_SLOWLY, str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=child_environment(),
        )
    try:
        eventually(
            lambda: "recovering logs logs=" in tail(log) or slow.poll() is not None,
            "the recovery to begin",
            state=lambda: tail(log),
        )
        assert slow.poll() is None, tail(log)
        slow.send_signal(signal.SIGTERM)
        output, _ = slow.communicate(timeout=WITHIN_SECONDS)
        assert (slow.returncode, output) == (0, b""), tail(log)
        assert "stopped before it was ready" in tail(log)
    finally:
        stop_process(slow)
    server.restart()
    try:
        assert high_watermarks(server) == [50, 50]
    finally:
        server.stop()
