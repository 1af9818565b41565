"""Measures TLS: headrace beside Apache Kafka, in turns, with the same certificate and cipher suite.

    --key               of the certificate: RSA-2048, whose signature is most of a handshake, or ECDSA P-256, which
                        `headrace certificates` makes

    produce, consume    Kafka's performance tools with 1 KiB records over TLS 1.3, TLS_AES_256_GCM_SHA384
    handshakes          new connections per second from two processes, without resumption
    storm               p99 of one-record produces over TLS while 1,000 clients begin their handshakes at once, and
                        without them; `times` is the quotient. The clients have what processor time the broker leaves
                        (SCHED_IDLE), like clients of other machines, which take none of the broker's
    storm, same cores   the same with clients of the broker's own priority, also with their storm at the other broker,
                        which costs the machine as much

Goals: produce and consume at least 1.2 times Apache Kafka, their broker CPU at most 0.6 times, handshakes at least as
many, the storm's p99 at most 3 times the calm one. Reports medians of the rounds. Needs Java and Maven.

    python benchmarks/broker/tls.py [--rounds 5] [--scale 1.0] [--key rsa] [--only storm] [--json]
"""

import argparse
import json
import multiprocessing
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import listening_process
from benchmarks.request_load import produce_frame
from headrace.network.tls.contexts import client_context
from tests.certificates import identity, write_pem, write_trust
from tests.harness import HeadraceServer, free_ports, receive_frame
from tests.peers import kafka
from tests.wire import Wire

SUITE = "TLS_AES_256_GCM_SHA384"
TOPIC, SMALL_TOPIC = "tls", "tls-small"
RECORD_BYTES, RECORDS = 1024, 500_000
STORM_CLIENTS, STORM_SECONDS, HANDSHAKE_SECONDS = 1000, 5.0, 4.0
RSA_BITS = {"rsa": 2048, "ec": 0}
_PRODUCED = re.compile(r"([\d.]+) records/sec")


class Peer(NamedTuple):
    """A measured broker."""

    name: str
    port: int
    """Of its TLS listener."""
    process: psutil.Process

    def cpu_s(self) -> float:
        """The processor time that it has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def peers(directory: Path, key_type: str) -> Iterator[list[Peer]]:
    """headrace, and Apache Kafka if it can run, with the same certificate."""
    key = write_pem(directory / "broker.pem", identity(rsa_bits=RSA_BITS[key_type]))
    write_trust(directory / "ca.pem")
    ssl_settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key), "ssl.enabled.protocols": "TLSv1.3"}
    with ExitStack() as stack:
        plain, ours, theirs = free_ports(3)
        listen = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{ours}"
        server = HeadraceServer(directory / "headrace", settings=ssl_settings, listen=listen).start()
        stack.callback(server.stop)
        assert server.process is not None
        found = [Peer("headrace", ours, psutil.Process(server.process.pid))]
        ports = {"headrace": plain}
        if kafka.missing_tools() is None:
            settings = {
                **kafka.SHARED_SETTINGS,
                **ssl_settings,
                "listeners": f"PLAINTEXT://127.0.0.1:{{port}},SSL://127.0.0.1:{theirs},"
                "CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},SSL://127.0.0.1:{theirs}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            }
            address = stack.enter_context(kafka.run_kafka(directory / "kafka", settings=settings))
            ports["Apache Kafka"] = int(address.rpartition(":")[2])
            found.append(Peer("Apache Kafka", theirs, listening_process(theirs)))
        for peer in found:
            with Wire(f"127.0.0.1:{ports[peer.name]}") as wire:
                wire.create_topic(TOPIC, 3)
                wire.create_topic(SMALL_TOPIC, 1)
        yield found


def client_properties(directory: Path) -> Path:
    """The properties file of Kafka's tools."""
    path = directory / "client.properties"
    path.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.enabled.protocols=TLSv1.3\n"
        f"ssl.cipher.suites={SUITE}\nssl.truststore.location={directory / 'ca.pem'}\n"
    )
    return path


def produce(directory: Path, count: int, peer: Peer) -> dict[str, float]:
    """ProducerPerformance with default settings and acks=all."""
    before = peer.cpu_s()
    output = _tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", str(count), "--record-size",
        str(RECORD_BYTES), "--throughput", "-1", "--producer.config", str(client_properties(directory)),
        "--producer-props", f"bootstrap.servers=127.0.0.1:{peer.port}", "acks=all",
    )  # fmt: skip
    return {"produce records/s": float(_PRODUCED.findall(output)[-1]), "produce CPU s": peer.cpu_s() - before}


def consume(directory: Path, count: int, peer: Peer) -> dict[str, float]:
    """ConsumerPerformance over the topic. Its rate excludes the time to join the group."""
    before = peer.cpu_s()
    output = _tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", TOPIC, "--num-records", str(count),
        "--bootstrap-server", f"127.0.0.1:{peer.port}", "--group", uuid.uuid4().hex, "--command-config",
        str(client_properties(directory)),
    )  # fmt: skip
    rate = float(output.strip().splitlines()[-1].split(",")[-1])
    return {"consume records/s": rate, "consume CPU s": peer.cpu_s() - before}


def handshakes(directory: Path, peer: Peer) -> dict[str, float]:
    """New connections for some seconds, from two processes."""
    before, started = peer.cpu_s(), time.monotonic()
    with multiprocessing.Pool(2) as pool:
        done = sum(pool.starmap(_shake_hands, [(directory, peer.port, HANDSHAKE_SECONDS)] * 2))
    elapsed = min(time.monotonic() - started, HANDSHAKE_SECONDS)
    return {"handshakes/s": done / elapsed, "CPU ms/handshake": (peer.cpu_s() - before) / max(done, 1) * 1000}


def storm(directory: Path, elsewhere: Peer | None, peer: Peer) -> dict[str, float]:
    """Produces without a storm of handshakes, with one, with one whose clients compete for the cores, and with such a
    one at another broker. The connection that produces is there before."""
    with _connected(directory, peer.port) as connection:
        found = {"calm p99 ms": _p99_ms(connection)}
        storms = [("storm", peer, os.SCHED_IDLE), ("storm, same cores", peer, os.SCHED_OTHER)]
        if elsewhere is not None:
            storms.append(("storm elsewhere, same cores", elsewhere, os.SCHED_OTHER))
        for name, where, policy in storms:
            found[f"p99 ms, {name}"], found[f"handshakes/s, {name}"] = _stormy_p99_ms(
                directory, where.port, policy, connection
            )
            found[f"times, {name}"] = found[f"p99 ms, {name}"] / found["calm p99 ms"]
    return found


def _stormy_p99_ms(directory: Path, port: int, policy: int, connection: ssl.SSLSocket) -> tuple[float, float]:
    """The 99th percentile in a storm, and the storm's handshakes per second."""
    done = multiprocessing.Value("i", 0)
    process = multiprocessing.Process(target=_storm, args=(directory, port, policy, done))
    process.start()
    try:
        p99_ms = _p99_ms(connection)
        return p99_ms, done.value / STORM_SECONDS
    finally:
        process.join()


def _context(directory: Path) -> ssl.SSLContext:
    return client_context({"ssl.truststore.location": str(directory / "ca.pem"), "ssl.enabled.protocols": "TLSv1.3"})


def _shake_hands(directory: Path, port: int, seconds: float) -> int:
    context, ends, done = _context(directory), time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(
            sock, server_hostname="localhost"
        ):  # fmt: skip
            done += 1
    return done


def _storm(directory: Path, port: int, policy: int, done: "Synchronized[int]") -> None:
    """Connects all clients, then lets all of them begin at once, again and again for the seconds of a round."""
    os.sched_setscheduler(0, policy, os.sched_param(0))
    context, ends = _context(directory), time.monotonic() + STORM_SECONDS
    while time.monotonic() < ends:
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(STORM_CLIENTS)]
        wrapped = []
        for sock in connections:
            sock.setblocking(False)
            wrapped.append(context.wrap_socket(sock, server_hostname="localhost", do_handshake_on_connect=False))
        waiting = list(wrapped)
        while waiting and time.monotonic() < ends:
            left = [sock for sock in waiting if not _advanced(sock)]
            done.value += len(waiting) - len(left)
            waiting = left
            time.sleep(0.002)
        for sock in wrapped:
            sock.close()


def _advanced(sock: ssl.SSLSocket) -> bool:
    try:
        sock.do_handshake()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def _connected(directory: Path, port: int) -> Iterator[ssl.SSLSocket]:
    with socket.create_connection(("127.0.0.1", port)) as sock, _context(directory).wrap_socket(
        sock, server_hostname="localhost"
    ) as connection:  # fmt: skip
        yield connection


def _p99_ms(connection: ssl.SSLSocket) -> float:
    """The 99th percentile of produces of one record over one TLS connection."""
    frame, times, ends = produce_frame(SMALL_TOPIC), [], time.monotonic() + STORM_SECONDS
    while (begun := time.monotonic()) < ends:
        connection.sendall(frame)
        receive_frame(connection)
        times.append(time.monotonic() - begun)
        time.sleep(0.001)
    return statistics.quantiles(times, n=100)[-1] * 1000


def _tool(*arguments: str) -> str:
    """The output of a tool that runs in a JVM with default settings."""
    with tempfile.TemporaryDirectory() as logs:
        command = [*kafka.java_command(Path(logs), "-Xmx512m"), *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--key", choices=tuple(RSA_BITS), default="rsa", help="of the brokers' certificate")
    parser.add_argument("--only", choices=("produce", "consume", "handshakes", "storm"), nargs="*", default=())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    count = int(RECORDS * options.scale)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with peers(directory, options.key) as found:
            works: dict[str, Callable[[Peer], dict[str, float]]] = {
                "produce": partial(produce, directory, count),
                "consume": partial(consume, directory, count),
                "handshakes": partial(handshakes, directory),
                # Each in the other's storm, too: what is left of it there is not the broker's.
                "storm": lambda peer: storm(directory, next((each for each in found if each != peer), None), peer),
            }
            rounds: dict[str, dict[str, list[float]]] = {}
            for work in [works[name] for name in options.only or works]:
                for _ in range(options.rounds):
                    for peer in found:
                        for figure, value in work(peer).items():
                            rounds.setdefault(figure, {each.name: [] for each in found})[peer.name].append(value)
    results = {
        figure: {name: statistics.median(values) for name, values in by_name.items()}
        for figure, by_name in rounds.items()
    }
    for figure, by_name in rounds.items():
        ours, theirs = by_name.values()
        pairs = zip(ours, theirs, strict=True)
        results[figure]["ratio"] = statistics.median(mine / max(other, 1e-9) for mine, other in pairs)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'figure':40} {'headrace':>12} {'Apache Kafka':>14} {'ratio':>8}")
    for figure, row in results.items():
        print(f"{figure:40} {row['headrace']:>12.2f} {row['Apache Kafka']:>14.2f} {row['ratio']:>8.2f}")


if __name__ == "__main__":
    main()
