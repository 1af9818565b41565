"""`headrace serve --workers 3` as an operator meets it: one cluster on one host, with real clients."""

import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, child_environment, free_ports, free_range, tail, unused

pytestmark = pytest.mark.slow  # processes of its own
WORKERS = 3


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[HeadraceServer]:
    server = HeadraceServer(
        tmp_path_factory.mktemp("workers") / "data",
        {"headrace.metrics.listen": f"127.0.0.1:{metrics_port}"},
        arguments=("--workers", str(WORKERS)),
        listen=f"127.0.0.1:{free_range(WORKERS)}",
    )
    yield server.start()
    server.stop()


def children(server: HeadraceServer) -> dict[int, int]:
    """The process of each worker."""
    assert server.process is not None
    found = {}
    for pid in Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # it has ended
            continue
        if number := re.search(rb"\0HEADRACE_WORKER=(\d+)\0", b"\0" + environment):
            found[int(number[1])] = int(pid)
    return found


def create(server: HeadraceServer) -> str:
    """A new topic of three partitions with a replica on each worker."""
    topic = unused("t")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 3, config={"min.insync.replicas": "2"})])[topic].result(WITHIN_SECONDS)
    return topic


def is_whole(server: HeadraceServer, topic: str) -> bool:
    """Whether every partition has a leader and three replicas in sync, by the answer of each worker."""
    for address in server.bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address})
        found = admin.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
        if len(found) != 3 or any(each.leader < 0 or len(each.isrs) != 3 for each in found.values()):
            return False
    return True


class Writer:
    """An idempotent producer on a thread. Each value is a number, delivered once or told as failed."""

    def __init__(self, server: HeadraceServer, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._topic, self.delivered = topic, 0
        self.failed: list[object] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        eventually(lambda: self.delivered > 0, "the first record")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(WITHIN_SECONDS) == 0

    def _write(self) -> None:
        number = 0
        while not self._over.is_set():
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._told)
            number += 1
            self._producer.poll(0.002)

    def _told(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.delivered += 1


def values(server: HeadraceServer, topic: str) -> list[int]:
    """All values, in order of partition and offset."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    found, ended = [], 0
    while ended < 3:
        message = consumer.poll(WITHIN_SECONDS)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(int(message.value() or b"-1"))
    consumer.close()
    return found


def test_the_workers_are_one_cluster_with_replicas(workers: HeadraceServer) -> None:
    topic = create(workers)
    eventually(lambda: is_whole(workers, topic), "three replicas in sync")
    found = AdminClient({"bootstrap.servers": workers.bootstrap}).list_topics(topic, timeout=WITHIN_SECONDS)
    assert {f"{each.host}:{each.port}" for each in found.brokers.values()} == set(workers.bootstrap.split(","))
    assert sorted(found.brokers) == [0, 1, 2]


def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(workers: HeadraceServer) -> None:
    topic = create(workers)
    eventually(lambda: is_whole(workers, topic), "three replicas in sync")
    before = children(workers)
    with Writer(workers, topic) as writer:
        os.kill(before[1], signal.SIGKILL)
        eventually(lambda: children(workers).get(1) not in (None, before[1]), "another process")
        eventually(lambda: is_whole(workers, topic), "three replicas in sync again")
    assert writer.failed == []
    assert sorted(values(workers, topic)) == list(range(writer.delivered))
    assert {number: pid for number, pid in children(workers).items() if number != 1} == {0: before[0], 2: before[2]}


def test_sighup_restarts_one_worker_after_the_other_and_nothing_is_lost(workers: HeadraceServer) -> None:
    topic = create(workers)
    eventually(lambda: is_whole(workers, topic), "three replicas in sync")
    before = children(workers)
    assert workers.process is not None
    said = tail(workers.stderr_file, 1 << 20).count("all workers have been restarted")
    with Writer(workers, topic) as writer:
        workers.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: tail(workers.stderr_file, 1 << 20).count("all workers have been restarted") == said + 1,
            "the end of the rolling restart",
            within_s=3 * WITHIN_SECONDS,
        )
    assert writer.failed == []
    assert sorted(values(workers, topic)) == list(range(writer.delivered))
    after = children(workers)
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())


def test_one_page_has_the_metrics_of_all_workers(workers: HeadraceServer, metrics_port: int) -> None:
    def page() -> dict[str, object]:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=WITHIN_SECONDS) as answer:
            return {each.name: each for each in text_string_to_metric_families(answer.read().decode())}

    families = page()
    memory = families["process_resident_memory_bytes"].samples  # type: ignore[attr-defined]
    assert {each.labels["worker"] for each in memory} == {"0", "1", "2"}
    up = families["headrace_worker_up"].samples  # type: ignore[attr-defined]
    assert [each.value for each in up] == [1, 1, 1]


def test_each_line_of_the_log_tells_its_worker(workers: HeadraceServer) -> None:
    log = tail(workers.stderr_file, 1 << 20)
    assert set(re.findall(r" worker=(\d)$", log, re.MULTILINE)) == {"0", "1", "2"}


def test_the_workers_stop_when_their_supervisor_is_killed_and_the_next_one_finds_everything(
    headrace_server: StartHeadrace,
) -> None:
    server = headrace_server(arguments=("--workers", "2"), listen=f"127.0.0.1:{free_range(2)}")
    topic = unused("t")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(WITHIN_SECONDS)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"kept")
    assert producer.flush(WITHIN_SECONDS) == 0
    processes = children(server).values()
    server.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "the workers to stop")
    assert refusal([*server.command()[:-2]]) == (
        f"headrace serve: data directory {server.data} was made by --workers: start it with --workers, or name another "
        "directory"
    )
    server.listen = f"127.0.0.1:{free_range(2)}"
    server.start()
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(WITHIN_SECONDS)
    assert message is not None and message.value() == b"kept"
    consumer.close()
    assert server.stop() == 0
    assert "Traceback" not in tail(server.stderr_file, 1 << 20)


def refusal(command: list[str]) -> str:
    """The one line with which a server that must not start says why."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=child_environment()
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = (line for line in done.stderr.splitlines() if " INFO " not in line)
    return line


def test_a_setting_that_the_workers_refuse_ends_the_supervisor_with_their_status(tmp_path: Path) -> None:
    taken = free_ports(1)[0]
    server = HeadraceServer(
        tmp_path / "data", {"log.dirs": "/proc/none"}, ("--workers", "2"), listen=f"127.0.0.1:{taken}"
    )
    command = server.command()
    del command[command.index("--data") : command.index("--data") + 2]
    assert "/proc/none" in refusal(command)
