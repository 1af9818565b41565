"""One broker and one simulated site for all tests here, whose pipelines were killed on the way.

A driver runs all pipelines over the first half of the events. When each has written something, the broker is killed
with SIGKILL and started again. The other half is sent, and as soon as the driver writes on, it is killed with its JVM
and all workers. The shared session continues from the same checkpoints, to the end of the topics. So each test here
compares the result after both kills.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.client.operations.admin import Admin
from headrace.pipelines.flights import produce_flights, read_flights
from headrace.pipelines.running import PIPELINES, STATE_STORE, finish
from headrace.pipelines.site import TOPICS, Event, Site
from headrace.pipelines.topics import RESULTS, create_topics, produce
from headrace.types import TopicPartition
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.spark import shared_classes
from tests.spark.conftest import spark

__all__ = ["spark"]

PER_BATCH = 4000


class Survived(NamedTuple):
    """The broker with the pipelines' results, and the events that they have read."""

    bootstrap: str
    events: list[Event]


@pytest.fixture(scope="session")
def survived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survived]:
    """Pipelines that were killed, and then finished."""
    directory = tmp_path_factory.mktemp("pipelines")
    server = HeadraceServer(directory / "data").start()
    before = {name: spark.conf.get(name) for name in STATE_STORE}
    try:
        events = list(Site(rate=20).events())
        create_topics(server.bootstrap)
        half = len(events) // 2
        produce(server.bootstrap, chain(poison(events[0]), events[:half]))
        run_and_kill(server, directory, events[half:])
        for name, value in STATE_STORE.items():
            spark.conf.set(name, value)
        finish(spark, PIPELINES, server.bootstrap, directory / "checkpoints", per_batch=PER_BATCH)
        yield Survived(server.bootstrap, events)
    finally:
        for name, given in before.items():
            spark.conf.set(name, str(given))
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def flights(spark: SparkSession, survived: Survived) -> Iterator[DataFrame]:
    """The flights of 2013, read from a topic once."""
    produce_flights(survived.bootstrap)
    kept = read_flights(spark, survived.bootstrap).cache()
    yield kept
    kept.unpersist()


def poison(some: Event) -> Iterator[Event]:
    """What no pipeline may take for an event, or fail at."""
    wrong: list[dict[str, Any]] = [{}, {"time_ms": 2**63 - 1}, {"time_ms": some.arrival_ms + 10**9}, {"time_ms": "now"}]
    for topic in TOPICS:
        for number, fields in enumerate(wrong):
            yield Event(topic, some.key, {"id": f"wrong-{number}", **fields}, some.arrival_ms)


def run_and_kill(server: HeadraceServer, directory: Path, events: list[Event]) -> None:
    """Run all pipelines; kill the broker and start it again; send these events, and kill the driver."""
    shared_classes.use()
    options = ["--bootstrap", server.bootstrap, "--checkpoints", str(directory / "checkpoints")]
    command = [sys.executable, "-m", "headrace.pipelines", "run", *PIPELINES, *options, "--per-batch", str(PER_BATCH)]
    scratch = {"TMPDIR": str(directory), "SPARK_LOCAL_DIRS": str(directory)}
    log_file = directory / "driver.log"
    with log_file.open("wb") as log:
        driver = subprocess.Popen(
            command, env={**os.environ, **scratch}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        eventually(lambda: driver.poll() is not None or is_written(server), "output", state=log_file.read_text)
        assert driver.poll() is None, log_file.read_text()
        server.kill()
        server.restart()
        seen = written(server)
        produce(server.bootstrap, events)
        eventually(lambda: driver.poll() is not None or written(server) != seen, "more output after the outage")
        assert driver.poll() is None, log_file.read_text()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def is_written(server: HeadraceServer) -> bool:
    return all(written(server).values())


def written(server: HeadraceServer) -> dict[str, int]:
    """How many records each result has."""
    with Admin(server.bootstrap) as admin:
        topics = {topic.name: topic.partitions for topic in admin.list_topics() if topic.name in RESULTS}
        places = [TopicPartition(name, number) for name, parts in topics.items() for number in range(len(parts))]
        ends = admin.watermarks(places)
    return {name: sum(ends[place][1] for place in places if place.topic == name) for name in topics}


def milliseconds(text: str) -> int:
    """A time as milliseconds since 1970."""
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
