"""Three writers of one table that compact it, killed at random, over a broker that is killed too, and transactions."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.client.consumer.fetched_batches import ReadOptions
from headrace.client.consumer.fetching import READ_COMMITTED
from headrace.client.consumer.reader import read_range
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.errors import KafkaError
from tests.harness import HeadraceServer, child_environment, stop_process
from tests.lake.lakes import offsets_of, opened

pytestmark = [pytest.mark.soak, pytest.mark.slow]

SECONDS = 40
PARTITIONS, WRITERS = 4, 3
QUICK_GROUPS = {
    f"group.consumer.{bound}{name}.ms": value
    for bound in ("", "min.")
    for name, value in (("session.timeout", "1500"), ("heartbeat.interval", "300"))
}


def produce_until(end: threading.Event, bootstrap: str, number: int) -> None:
    """Transactions, some of them aborted, of objects whose fields become more. Begins anew after each failure."""
    chance, count = random.Random(number), 0
    while not end.is_set():
        try:
            patient = ClientSettings(waits_for_brokers=True)
            with Producer(bootstrap, transactional_id=f"p{number}", client=patient) as producer:
                producer.init_transactions()
                while not end.wait(0.01):
                    producer.begin()
                    for _ in range(chance.randrange(1, 30)):
                        value: dict[str, object] = {"n": count, "p": number}
                        if chance.random() < 0.01:
                            value[f"f{chance.randrange(30)}"] = chance.choice([1, "x", 1.5])
                        producer.send("t", json.dumps(value).encode(), partition=chance.randrange(PARTITIONS))
                        count += 1
                    if chance.random() < 0.2:
                        producer.abort()
                    else:
                        producer.commit()
        except KafkaError:
            end.wait(0.2)


def committed(bootstrap: str) -> Counter[tuple[object, object]]:
    """The offsets that readers of committed records see."""
    found: Counter[tuple[object, object]] = Counter()
    with Cluster(bootstrap) as cluster:
        admin, options = Admin(cluster), ReadOptions(isolation_level=READ_COMMITTED)
        marks = admin.watermarks(admin.partitions_of("t"), isolation_level=READ_COMMITTED)
        for partition, (start, end) in marks.items():
            for columns in read_range(cluster, partition, start, end, options):
                found.update((partition.partition, offset) for offset in columns.offsets)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_killed_the_table_has_each_committed_record_once(tmp_path: Path, seed: int) -> None:
    chance, end = random.Random(seed), threading.Event()
    server = HeadraceServer(tmp_path / "data", QUICK_GROUPS)
    with ExitStack() as stack:
        stack.callback(server.stop)
        bootstrap = server.start().bootstrap
        with Admin(bootstrap) as admin:
            admin.create_topic("t", PARTITIONS)
        table = tmp_path / "table"
        assert main(["lake", "add", "t", "--table", str(table), "--schema", "infer", "-b", bootstrap]) == 0
        command = [sys.executable, "-m", "headrace", "lake", "run", "t", "-b", bootstrap]
        command += ["--linger", "100ms", "--compact-at", "6", "--vacuum-hours", "1"]

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, env=child_environment(), stdout=subprocess.DEVNULL)
            stack.callback(lambda: process.poll() is None and stop_process(process))
            return process

        producers = [threading.Thread(target=produce_until, args=(end, bootstrap, each)) for each in range(2)]
        for thread in producers:
            thread.start()
        stack.callback(end.set)
        writers = [start() for _ in range(WRITERS)]
        over = time.monotonic() + SECONDS
        while time.monotonic() < over:
            time.sleep(chance.uniform(0.2, 2.5))
            index, what = chance.randrange(WRITERS), chance.random()
            if what < 0.1:
                server.kill()
                server.restart()
                continue
            writers[index].kill() if what < 0.9 else writers[index].terminate()
            writers[index].wait()
            writers[index] = start()
        end.set()
        for thread in producers:
            thread.join()
        for process in writers:
            stop_process(process)
        assert main(["lake", "run", "t", "--once", "-b", bootstrap]) == 0
        expected = committed(bootstrap)
        assert len(expected) > 1000
        assert offsets_of(table) == expected
        assert opened(table).rows == len(expected)
