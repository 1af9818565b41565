"""Measures a start after `kill -9`: the rate of log recovery, and the time until a broker with large logs is ready.

Rate: one thread, and two threads, recover a segment completely (CRCs, indexes, producers) from the page cache. Start:
the log writes the given GiB to the given partitions; a broker on them is killed under load and started again, from the
page cache. One run has segments of 128 MiB, with flushed closed segments, as in a broker. The other has Kafka's default
of 1 GiB and no flushes, so that the broker must read everything.
Prints one object. Usage: python benchmarks/log/recovery.py [--gib 10] [--partitions 20] [--runs 3] [--directory DIR]
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.config import TopicConfig
from headrace.log.directories.checkpoints import RECOVERY_POINT
from headrace.log.filenames import LOG, offset_file
from headrace.log.files import LocalFiles
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producers.producer_snapshot import write_snapshot
from headrace.log.producers.producer_state import Producers
from headrace.log.recovery.recovery import recover_segment
from headrace.log.segment.segment import Segment
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import set_base_offset
from tests.harness import HeadraceServer, tail
from tests.wire import Wire, batch

RATE_BYTES = 512 << 20
VALUE_BYTES = (100, 16 << 10, 1_000_000)
PIECE_BYTES = 8 << 20
FLUSHED_SEGMENT_BYTES = 128 << 20
DEFAULT_SEGMENT_BYTES = 1 << 30
ROUNDS = 5
TOPIC = "recovery"


def write_segment(path: Path, base_offset: int, size: int, value_bytes: int) -> int:
    """A segment's file of about `size` bytes, batches of one record from an idempotent producer; the next offset."""
    records = [Record(0, 1_700_000_000_000, None, os.urandom(value_bytes), ())]
    one = bytes(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
    offset, end = base_offset, base_offset + size // len(one)
    with path.open("wb") as file:
        while offset < end:
            count = min(end - offset, PIECE_BYTES // len(one))
            piece = memoryview(bytearray(one * count))
            for number in range(count):
                set_base_offset(piece[number * len(one) :], offset + number, 0)
            file.write(piece)
            offset += count
    return end


def recover(directory: Path) -> int:
    """Recover the only segment of the directory; returns its bytes."""
    files = LocalFiles()
    size = files.file_size(directory / offset_file(0, LOG))
    segment = Segment(files, directory, 0, TopicConfig(), size=size, now_ms=0)
    if recover_segment(segment, LeaderEpochs(files, directory)).cut_bytes:
        raise SystemExit("what was written is not whole")
    return size


def rates(directory: Path) -> list[dict[str, float]]:
    """MB/s by batch size: the best round of one thread, and of two threads together."""
    found = []
    for value_bytes in VALUE_BYTES:
        places = [directory / f"rate-{number}" for number in range(2)]
        for place in places:
            place.mkdir()
            write_segment(place / offset_file(0, LOG), 0, RATE_BYTES, value_bytes)
        best: dict[int, float] = {}
        for count in (1, 2) * ROUNDS:
            with ThreadPoolExecutor(count) as pool:
                began = time.perf_counter()
                size = sum(pool.map(recover, places[:count]))
                best[count] = max(best.get(count, 0), size / (time.perf_counter() - began) / 1e6)
        found.append({"value_bytes": value_bytes, "mb_per_second": round(best[1]), "by_two_threads": round(best[2])})
        for place in places:
            shutil.rmtree(place)
    return found


def fill(data: Path, partitions: int, size: int, segment_bytes: int) -> None:
    """Gives every partition of the topic so much log, with what a roll leaves behind. The broker has to be down."""
    for number in range(partitions):
        directory = data / f"{TOPIC}-{number}"
        for path in directory.glob("0*"):
            path.unlink()
        offset, left = 0, size // partitions
        while left > 0:
            part = min(left, segment_bytes - (1 << 20))
            write_snapshot(LocalFiles(), directory, Producers(offset))
            offset = write_segment(directory / offset_file(offset, LOG), offset, part, VALUE_BYTES[number % 2])
            left -= part


def kill_under_load(server: HeadraceServer, partitions: int, seconds: float) -> None:
    """Produces to all partitions, and kills the broker in the middle of it."""
    over = threading.Event()

    def produce(wire: Wire) -> None:
        number = 0
        while not over.is_set():
            try:
                wire.produce(TOPIC, batch([b"x" * 1_000] * 10), partition=number % partitions)
            except OSError:
                return
            number += 1

    with Wire(server.bootstrap) as wire:
        producing = threading.Thread(target=produce, args=(wire,))
        producing.start()
        time.sleep(seconds)
        server.kill()
        over.set()
        producing.join()


def starts(data: Path, partitions: int, size: int, segment_bytes: int, runs: int) -> dict[str, object]:
    """Starts after kills under load. A warm-up puts the files into the page cache and, as a broker that ran for long,
    has closed segments flushed and written down."""
    settings = {"log.segment.bytes": str(segment_bytes)}
    server = HeadraceServer(data, settings).start()
    with Wire(server.bootstrap) as wire:
        if error := wire.create_topic(TOPIC, partitions):
            raise SystemExit(f"{TOPIC} could not be made: error {error}")
    server.kill()
    fill(data, partitions, size, segment_bytes)
    seconds, cpu_seconds, read_bytes, reading = [], [], [], []
    for run in range(runs + 1):
        began = time.perf_counter()
        server.start()
        took = time.perf_counter() - began
        told = re.findall(r"logs are recovered logs=\d+ read_bytes=(\d+) seconds=([0-9.]+)", tail(server.stderr_file))
        if run:
            assert server.process is not None
            used = psutil.Process(server.process.pid).cpu_times()
            seconds.append(took)
            cpu_seconds.append(used.user + used.system)
            read_bytes.append(int(told[-1][0]))
            reading.append(float(told[-1][1]))
        wait_for_flushes(data, server, partitions)
        kill_under_load(server, partitions, 1)
    total = sum(path.stat().st_size for path in data.glob(f"{TOPIC}-*/*.log"))
    return {
        "segment_bytes": segment_bytes,
        "log_gib": round(total / (1 << 30), 2),
        "partitions": partitions,
        "read_gib": [round(each / (1 << 30), 2) for each in read_bytes],
        "ready_s": [round(each, 2) for each in seconds],
        "ready_s_median": round(statistics.median(seconds), 2),
        "of_that_recovery_s": reading,
        "cpu_s": [round(each, 2) for each in cpu_seconds],
    }


def wait_for_flushes(data: Path, server: HeadraceServer, partitions: int) -> None:
    """Until the recovery points are those of the active segments."""
    last = {number: max(data.glob(f"{TOPIC}-{number}/*.log")) for number in range(partitions)}
    while True:
        checkpoint = data / RECOVERY_POINT
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        points = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} ")}
        if all(points.get(number, 0) >= int(path.stem) for number, path in last.items()):
            return
        time.sleep(0.5)


def main() -> None:
    """Runs both parts and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", help="where there is room; the system's for temporary files if not given")
    wanted = parser.parse_args()
    size = int(wanted.gib * (1 << 30))
    with tempfile.TemporaryDirectory(dir=wanted.directory) as name:
        directory = Path(name)
        free = shutil.disk_usage(directory).free
        if free < size + (4 << 30):
            raise SystemExit(f"{directory} has {free >> 30} GiB free, which is too little for {wanted.gib} GiB of log")
        result: dict[str, object] = {"load_average": os.getloadavg()[0], "cores": os.cpu_count()}
        result["rate"] = rates(directory)
        for title, segment_bytes in (("closed", FLUSHED_SEGMENT_BYTES), ("all_active", DEFAULT_SEGMENT_BYTES)):
            data = directory / title
            result[title] = starts(data, wanted.partitions, size, segment_bytes, wanted.runs)
            shutil.rmtree(data)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
