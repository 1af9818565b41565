"""Two live sites and one batch site: mirrors bring both to the third, where the reports are made.

    east ──mirror──┐
                   ├─▶ batch ──▶ lake tables ──▶ reports
    west ──mirror──┘

A mirror is killed with SIGKILL while it runs, and so are the batch site's broker and a live one. The mirrors that are
started again go on, and the reports are those of plain Python over the events of both sites.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.operations.admin import Admin
from headrace.pipelines.compare import compare_reporting
from headrace.pipelines.reporting import TABLES, run_hour
from headrace.pipelines.running import PipelineEnvironment
from headrace.pipelines.site import Site, SiteEvent
from headrace.pipelines.topics import count_of, create_topics, produce, records_of
from tests import rotation
from tests.eventually import eventually
from tests.harness import HeadraceServer, child_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SITES = {"east": Site(seed=2, rate=10), "west": Site(seed=3, rate=10)}


@contextmanager
def mirroring(source: HeadraceServer, target: HeadraceServer, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A mirror of the reports' topics, killed in the end."""
    command = [sys.executable, "-m", "headrace", "mirror", "--name", name, "--from", source.bootstrap]
    options = ["--to", target.bootstrap, "--interval-ms", "50", *TABLES]
    process = subprocess.Popen([*command, *options], env=child_environment(), stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, HeadraceServer]]:
    """The brokers of the three sites."""
    with ExitStack() as stack:
        started = {}
        for name in (*SITES, "batch"):
            started[name] = HeadraceServer(tmp_path / name).start()
            stack.callback(started[name].stop)
        yield started


def mirrored(server: HeadraceServer) -> int:
    """How many records the batch site has of the reports' topics; 0 before there are such topics."""
    with Admin(server.bootstrap) as admin:
        known = {topic.name for topic in admin.list_topics()}
    return sum(1 for topic in known & set(TABLES) for _ in records_of(server.bootstrap, topic))


@rotation.on_its_day(0, of=2)
def test_the_reports_of_the_batch_site_have_each_event_of_both_live_sites_once_after_kills(
    spark: SparkSession, servers: dict[str, HeadraceServer], tmp_path: Path
) -> None:
    events: dict[str, list[SiteEvent]] = {name: list(site.events()) for name, site in SITES.items()}
    batch = servers["batch"]
    for name, some in events.items():
        create_topics(servers[name].bootstrap)
        produce(servers[name].bootstrap, some[: len(some) // 2])
    place = PipelineEnvironment(batch.bootstrap, tmp_path / "pipelines")
    with mirroring(servers["west"], batch, "west"):
        with mirroring(servers["east"], batch, "east"):
            eventually(lambda: mirrored(batch), "records at the batch site")
        batch.kill()
        batch.restart()
        servers["west"].kill()
        servers["west"].restart()
        for name, some in events.items():
            produce(servers[name].bootstrap, some[len(some) // 2 :])
        run_hour(spark, place.bootstrap, place.of("reporting"))  # while records arrive: a part of them
        sent = sum(count_of(servers[name].bootstrap, TABLES) for name in SITES)
        with mirroring(servers["east"], batch, "east"):
            eventually(lambda: mirrored(batch) >= sent, "all records", state=lambda: str(mirrored(batch)))
    run_hour(spark, place.bootstrap, place.of("reporting"))
    found, expected = compare_reporting(place, [*events["east"], *events["west"]])
    assert found == expected
    assert mirrored(batch) == sent
