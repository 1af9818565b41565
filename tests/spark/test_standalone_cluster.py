"""`headrace load` through spark-submit on a standalone cluster of two worker processes, which have the installed
package alone: no path of this process, no jar, no archive."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

import headrace.spark.load.load_command
from headrace.client.producer.producer import Producer
from headrace.lake.delta.delta_table import LoadTable
from headrace.spark.java import find_java_home
from tests import rotation
from tests.spark.test_load import times_seen

SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
STARTED_WITHIN_S = 120

pytestmark = [pytest.mark.spark, pytest.mark.slow, *rotation.unless_today(0, 5)]


@contextmanager
def process(log: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of the cluster's, until the block ends."""
    with log.open("wb") as output:
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def told(log: Path, pattern: str, running: subprocess.Popen[bytes]) -> str:
    """What a process says about itself."""
    deadline = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline and running.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """The master's address, its directory, and the environment of its processes and of spark-submit."""
    home = tmp_path_factory.mktemp("standalone")
    known = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if key in os.environ}
    environment = {
        **known,
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(home),
        "SPARK_LOCAL_DIRS": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with process(home / "master", f"{DEPLOY}.master.Master", *where, **environment) as master:
        address = told(home / "master", r"spark://127\.0\.0\.1:\d+", master)
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(home / "work"))
        worker = (f"{DEPLOY}.worker.Worker", *where, *size, address)
        with (
            process(home / "worker-1", *worker, **environment) as first,
            process(home / "worker-2", *worker, **environment) as second,
        ):
            for name, running in (("worker-1", first), ("worker-2", second)):
                told(home / name, "Successfully registered with master", running)
            yield address, home, environment


def test_a_load_runs_on_both_workers(
    broker: str, cluster: tuple[str, Path, dict[str, str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    master, home, environment = cluster
    name = f"standalone-{abs(hash(request.node.name))}"
    with Producer(broker) as producer:
        for n in range(60_000):
            value = b'{"n": %d}' % n if n % 1000 else b"no JSON"
            producer.send(name, value, partition=0, timestamp_ms=1764288000000 + n)
    table, letters = tmp_path / "table", tmp_path / "letters"
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", master, "--conf", "spark.executor.memory=700m"]
    script = str(headrace.spark.load.load_command.__file__)
    wanted = [name, "--bootstrap", broker, "--table", str(table), "--min-partitions", "4", "--json"]
    shaped = ["--value-json", "n LONG", "--partition-by", "day", "--dead-letters", str(letters)]
    done = subprocess.run(
        [*submit, script, *wanted, *shaped], env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr
    dead = Counter({(0, offset): 1 for offset in range(0, 60_000, 1000)})
    assert times_seen(letters) == dead
    assert times_seen(table) == Counter({(0, offset): 1 for offset in range(60_000)}) - dead
    snapshot = LoadTable.open(table)
    assert snapshot is not None
    assert {one.values["record_day"] for one in snapshot.live_files} == {"2025-11-28"}
    ran = {path.parent.name for path in (home / "work").glob("app-*/*/stderr")}
    assert len(ran) >= 2, "an executor of each worker"
