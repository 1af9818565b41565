"""One broker and one simulated site for all tests here, whose pipelines were killed on the way.

A driver runs three pipelines, others each day, over the first part of the events. When each has written something, the
broker is killed with SIGKILL and started again. The rest is sent, the processes of all running tasks are killed, and as
soon as the driver writes on, it is killed with its JVM and all workers. The shared session continues from the same
checkpoints and tables, to the end of the topics, and runs the other two pipelines from their beginning. So each test
here compares the result after the three kills, on three days of five. How large the first part is, and how the stream
is cut into batches, is another each day; the result must be the same. `make soak` has other sites as well, and more
kills, of all pipelines (`test_many_kills.py`).
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.operations.admin import Admin
from headrace.pipelines.flights import produce_flights, read_flights
from headrace.pipelines.running import PIPELINES, REPORTING, STATE_STORE, PipelineEnvironment, finish
from headrace.pipelines.site import TOPICS, Site, SiteEvent
from headrace.pipelines.topics import RESULTS, create_topics, produce
from headrace.types import TopicPartition
from tests import rotation
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.spark import shared_classes
from tests.spark.conftest import spark

__all__ = ["spark"]

BUSY_SECONDS = 300.0
"""Five pipelines start some thirty processes, which take minutes where others compute as well."""
PER_BATCH = 3000 + rotation.drawn("pipelines", 0) % 3000
FIRST_PART = 0.4 + rotation.drawn("pipelines", 1) % 20 / 100


KILLED = [PIPELINES[(rotation.day() + 2 * number) % len(PIPELINES)] for number in range(3)]
"""Two streams at least, so that tasks run."""


class Survived(NamedTuple):
    """The place of the pipelines' results, and the events that they have read."""

    place: PipelineEnvironment
    events: list[SiteEvent]

    @property
    def bootstrap(self) -> str:
        return self.place.bootstrap


@pytest.fixture(scope="session")
def survived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    """Pipelines that were killed, and then finished."""
    directory = tmp_path_factory.mktemp("pipelines")
    server = HeadraceServer(directory / "data").start()
    try:
        events = list(Site(rate=20).events())
        create_topics(server.bootstrap)
        first = int(len(events) * FIRST_PART)
        produce(server.bootstrap, chain(poison(events[0]), events[:first]))
        place = PipelineEnvironment(server.bootstrap, directory / "pipelines", PER_BATCH)
        run_and_kill(server, place, events[first:])
        finish_in(spark, place)
        yield Survived(place, events)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def finish_in(spark: SparkSession, place: PipelineEnvironment) -> None:
    """Let all pipelines read to the end of their topics in the shared session."""
    before = {name: spark.conf.get(name) for name in STATE_STORE}
    try:
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        finish(spark, PIPELINES, place)
    finally:
        for name, given in before.items():
            spark.conf.set(name, str(given))


@pytest.fixture(scope="session")
def flights(spark: SparkSession, survived: Survived) -> DataFrame:
    """The flights of 2013, read from a topic once, and cached until Spark stops."""
    produce_flights(survived.bootstrap)
    return read_flights(spark, survived.bootstrap).cache()


def poison(some: SiteEvent) -> Iterator[SiteEvent]:
    """What no pipeline may take for an event, or fail at."""
    wrong: list[dict[str, Any]] = [{}, {"time_ms": 2**63 - 1}, {"time_ms": some.arrival_ms + 10**9}, {"time_ms": "now"}]
    for topic in TOPICS:
        for number, fields in enumerate(wrong):
            yield SiteEvent(topic, some.key, {"id": f"wrong-{number}", **fields}, some.arrival_ms)


def run_and_kill(server: HeadraceServer, place: PipelineEnvironment, events: list[SiteEvent]) -> None:
    """Run pipelines; kill the broker and start it again; send these events; kill tasks; kill the driver."""
    with driver_of(place, KILLED) as driver:
        driver.writes(lambda: all(written(place).values()) and (REPORTING not in KILLED or reports(place) > 0))
        server.kill()
        server.restart()
        seen = written(place)
        produce(server.bootstrap, events)
        driver.kill_tasks()
        driver.writes(lambda: written(place) != seen)


@dataclass(frozen=True)
class Driver:
    """A process that runs pipelines."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def writes(self, has_written: Callable[[], bool]) -> None:
        """Wait for output."""
        eventually(
            *(lambda: self.check() and has_written(), "output"),
            within_s=BUSY_SECONDS, every_s=0.2, state=self.log.read_text,
        )  # fmt: skip

    def kill_tasks(self) -> None:
        """Kill the Python processes of tasks, the children of the daemon of workers, until a task fails of it.

        Processes that plan are children of other daemons. Killed as often, they would let no query begin.
        """
        eventually(
            lambda: self._kill() and "Exception in task" in self.log.read_text(), "a task that died", every_s=0.2
        )

    def _kill(self) -> bool:
        self.check()
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                parent = process.parent()
                if parent is not None and parent.cmdline()[-2:] == ["pyspark.daemon", "pyspark.worker"]:
                    process.kill()
        return True

    def check(self) -> bool:
        """It must live."""
        assert self.process.poll() is None, self.log.read_text()
        return True


@contextmanager
def driver_of(place: PipelineEnvironment, pipelines: Collection[str] = PIPELINES) -> Iterator[Driver]:
    """Pipelines in a process of their own, which is killed in the end, with its JVM and all workers."""
    shared_classes.use()
    home = place.directory.parent
    options = ["--bootstrap", place.bootstrap, "--directory", str(place.directory)]
    options += ["--per-batch", str(place.per_batch), "--every", "1"]
    command = [sys.executable, "-m", "headrace.pipelines", "run", *pipelines, *options]
    scratch = {"TMPDIR": str(home), "SPARK_LOCAL_DIRS": str(home)}
    log_file = home / "driver.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **scratch}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield Driver(process, log_file)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reports(place: PipelineEnvironment) -> int:
    """How often the reports were made."""
    return len(list((place.of("reporting") / "top_items" / "_delta_log").glob("*.json")))


def written(place: PipelineEnvironment) -> dict[str, int]:
    """How many records each result has of the pipelines that are killed."""
    results = {name for name in RESULTS if name.partition(".")[0] in KILLED}
    with Admin(place.bootstrap) as admin:
        topics = {topic.name: topic.partitions for topic in admin.list_topics() if topic.name in results}
        places = [TopicPartition(name, number) for name, parts in topics.items() for number in range(len(parts))]
        ends = admin.watermarks(places)
    return {name: sum(ends[each][1] for each in places if each.topic == name) for name in topics}
