"""Measures what connections cost that end nowhere, at each stage before their client is known.

    bytes     of the broker's memory that one connection takes
    p99 ms    of one-record produces of another client over a plain listener: while the connections come, while they are
              there, and while the broker closes them at their deadline; beside those of a second broker that has no
              such connections, in turns, on the same machine; `times` is the quotient

Goal: at most 3 times. Connections come from another process as fast as it can. Stages of TLS are measured with fewer
connections: the broker keeps 1,000 handshakes that have begun, and the client's side is slow.

    python benchmarks/broker/half_open.py [--connections 10000] [--stage NAME] [--json]
"""

import argparse
import json
import math
import multiprocessing
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.request_load import produce_frame
from tests.broker.half_open import SASL_STAGES, TLS_STAGES, Ports, settings
from tests.broker.siege import memory_bytes
from tests.harness import HeadraceServer, free_ports, receive_frame
from tests.wire import Wire

TOPIC = "half-open"
TIMEOUT_S = 20.0
CALM_S, THERE_S = 2.0, 4.0
TLS_CONNECTIONS_MAX = 800


class Producer:
    """Another client, whose produces are timed, at the broker with the connections and at the one without."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._socks = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        self._frame = produce_frame(TOPIC)

    def p99_ms(self, seconds: float, until: Connection | None = None) -> list[float]:
        """Of both brokers, for so long, or until the other process says something."""
        times: list[list[float]] = [[] for _ in self._socks]
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not (until is not None and until.poll()):
            for sock, its in zip(self._socks, times, strict=True):
                begun = time.monotonic()
                sock.sendall(self._frame)
                receive_frame(sock)
                its.append(time.monotonic() - begun)
            time.sleep(0.0005)
        return [statistics.quantiles(each, n=100)[98] * 1000 if len(each) > 1 else math.nan for each in times]


def _hold(stage: str, count: int, ports: Ports, directory: Path, says: Connection) -> None:
    """Opens the connections, says so, and says when the broker has closed the last one."""
    begin = {**SASL_STAGES, **TLS_STAGES}[stage]
    begin(ports, directory).close()
    begun = time.monotonic()
    held = [begin(ports, directory) for _ in range(count)]
    says.send(time.monotonic() - begun)
    for sock in held:
        with suppress(OSError):
            while sock.recv(1 << 16):
                pass
    says.send("closed")


def measured(
    stage: str, count: int, server: HeadraceServer, ports: Ports, other: HeadraceServer, directory: Path
) -> dict[str, float]:
    """One stage."""
    producer = Producer([ports.plain, other.port])
    producer.p99_ms(CALM_S)
    before = memory_bytes(server)
    says, said = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_hold, args=(stage, count, ports, directory, said))
    process.start()
    found = {"connections": float(count)}
    phases = {"coming": producer.p99_ms(600, says)}
    found["opened in s"] = says.recv()
    phases["there"] = producer.p99_ms(THERE_S, says)
    found["bytes"] = (memory_bytes(server) - before) / count
    phases["closing"] = producer.p99_ms(600, says)
    process.join()
    for phase, (own, others) in phases.items():
        found |= {f"{phase} p99 ms": own, f"{phase}, other broker": others, f"{phase}, times": own / others}
    return found


def main() -> None:
    """Prints a line for each stage, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--stage", action="append", choices=[*SASL_STAGES, *TLS_STAGES])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(options.connections, most - 500)
    results = {}
    for stage in options.stage or [*SASL_STAGES, *TLS_STAGES]:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            ports = Ports(*free_ports(3))
            own = settings(directory, ports, int(TIMEOUT_S * 1000))
            server = HeadraceServer(directory / "data", own, listen=None).start()
            other = HeadraceServer(directory / "other").start()
            try:
                for port in (ports.plain, other.port):
                    with Wire(f"127.0.0.1:{port}") as wire:
                        wire.create_topic(TOPIC)
                some = count if stage in SASL_STAGES or stage == "before the hello of TLS" else TLS_CONNECTIONS_MAX
                results[stage] = measured(stage, min(count, some), server, ports, other, directory)
            finally:
                server.stop()
                other.stop()
        if not options.json:
            print(f"{stage:36}", *(f"{name} {value:.4g};" for name, value in results[stage].items()), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
