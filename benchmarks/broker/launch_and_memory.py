"""Measures the time from launch to the first acknowledged record, and the resident memory idle and after 3 GB.

headrace and Apache Kafka are measured in turns, and never run at the same time. Each start uses a data directory that
already has the topic, like a restart. Apache Kafka has the heap of its own start script, 1 GB. The 3 GB are produced in
batches of 1 MB to one partition with acks=all. Reports medians of the starts, and one load. Apache Kafka needs Java and
Maven; without them headrace is measured alone.

    python benchmarks/broker/launch_and_memory.py [--rounds 5] [--gigabytes 3] [--json]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from tests.harness import child_environment, free_ports, stop_process
from tests.peers import kafka
from tests.wire import Wire, batch

TOPIC = "launch"
IDLE_SECONDS = 5.0
PATIENCE_SECONDS = 120
BATCH_BYTES = 1_000_000

Command = Callable[[int], list[str]]


class Start(NamedTuple):
    """From the launch to the first acknowledged record."""

    first_record_s: float


class Memory(NamedTuple):
    """Resident memory of a broker."""

    idle_mib: float
    loaded_mib: float


def headrace(data: Path) -> Command:
    """The command line that starts headrace on a port."""
    return lambda port: [
        sys.executable, "-m", "headrace", "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data / "data"),
    ]  # fmt: skip


def apache_kafka(data: Path) -> Command:
    """The command line that starts Apache Kafka on a port; formats its directory once."""
    data.mkdir()
    properties = data / "server.properties"
    (controller_port,) = free_ports(1)

    def written(port: int) -> None:
        text = kafka.PROPERTIES.format(port=port, controller_port=controller_port, directory=data)
        properties.write_text(text)

    written(1)
    kafka.run_tool("kafka.tools.StorageTool", "format", "-t", kafka.CLUSTER_ID, "-c", str(properties), logs=data)

    def command(port: int) -> list[str]:
        written(port)
        return [*kafka.java_command(data, "-Xms1g", "-Xmx1g"), "kafka.Kafka", str(properties)]

    return command


def launched(command: Command, log: Path) -> tuple[subprocess.Popen[bytes], int, float]:
    """Launch a broker. Returns its process, its port, and the seconds until the first acknowledged record."""
    (port,) = free_ports(1)
    line = command(port)
    records = batch([b"x" * 100])
    started = time.perf_counter()
    with log.open("ab") as output:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=child_environment()
        )
    while time.perf_counter() - started < PATIENCE_SECONDS and process.poll() is None:
        with suppress(OSError), Wire(f"127.0.0.1:{port}") as wire:
            while process.poll() is None:
                if wire.produce(TOPIC, records).error_code == 0:
                    return process, port, time.perf_counter() - started
                with suppress(OSError):
                    wire.create_topic(TOPIC)
                time.sleep(0.01)
        time.sleep(0.01)
    stop_process(process)
    raise RuntimeError(f"no record was acknowledged: {line}")


def resident_mib(process: subprocess.Popen[bytes]) -> float:
    """The resident memory of a process."""
    return float(psutil.Process(process.pid).memory_info().rss) / (1 << 20)


def loaded_mib(process: subprocess.Popen[bytes], port: int, gigabytes: float) -> float:
    """The resident memory of a broker after it has received this many bytes."""
    records = batch([b"x" * 1000] * (BATCH_BYTES // 1010))
    with Wire(f"127.0.0.1:{port}") as wire:
        for _ in range(int(gigabytes * 1e9 / len(records))):
            if wire.produce(TOPIC, records).error_code:
                raise RuntimeError("a batch was refused")
    return resident_mib(process)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[Start]] = {}
    memory: dict[str, list[Memory]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        found = {"headrace": headrace(root / "headrace")}
        if kafka.missing_tools() is None:
            found["Apache Kafka"] = apache_kafka(root / "kafka")
        for name, command in found.items():  # makes the topic
            stop_process(launched(command, root / f"{name}.log")[0])
        for number in range(options.rounds):
            for name, command in found.items():
                process, port, took_s = launched(command, root / f"{name}.log")
                try:
                    rounds.setdefault(name, []).append(Start(took_s))
                    if number == options.rounds - 1:
                        time.sleep(IDLE_SECONDS)
                        idle_mib = resident_mib(process)
                        memory[name] = [Memory(idle_mib, loaded_mib(process, port, options.gigabytes))]
                finally:
                    stop_process(process)
    report({"launch": summarise(rounds), "resident memory": summarise(memory)}, as_json=options.json)


if __name__ == "__main__":
    main()
