"""Measures the latency of one 1 KiB record in flight, acks=all, with franz-go: headrace beside Apache Kafka.

The producer waits for each record before it sends the next one. Both brokers run at the same time on this machine, but
receive requests in turns, after `--warm` seconds of load each. Reports medians of the rounds with their spread, and
the ratios of the pairs. Needs Go; Apache Kafka needs Java and Maven.

    python benchmarks/broker/one_in_flight.py [--seconds 4] [--rounds 5] [--warm 60] [--json]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import TOPIC, Peer, peers
from benchmarks.paired import report, summarise

RECORD_BYTES = 1024
HERE = Path(__file__).parent


class Round(NamedTuple):
    """The result of one round."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    broker_cpu_us_per_record: float


def run_round(program: Path, peer: Peer, seconds: float) -> Round:
    """Send one record after the other for `seconds`."""
    before = peer.process.cpu_times()
    command = [str(program), f"127.0.0.1:{peer.port}", TOPIC, str(RECORD_BYTES), str(seconds)]
    output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    after = peer.process.cpu_times()
    count, p50, p99, p999 = map(float, output.split())
    return Round(p50, p99, p999, (after.user + after.system - before.user - before.system) / count * 1e6)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=float, default=60, help="seconds of load on each broker before the rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("go") is None:
        print("not measured: franz-go needs Go")
        return
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "franz")
        subprocess.run(["go", "build", "-C", str(HERE / "franz"), "-o", str(program), "."], check=True)
        with peers() as found:
            rounds: dict[str, list[Round]] = {peer.name: [] for peer in found}
            for peer in found:
                run_round(program, peer, options.warm)
            for _ in range(options.rounds):
                for peer in found:
                    rounds[peer.name].append(run_round(program, peer, options.seconds))
    report({"one record in flight": summarise(rounds)}, as_json=options.json)


if __name__ == "__main__":
    main()
