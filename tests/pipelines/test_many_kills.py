"""Sites of other seeds, ten times as busy, whose brokers, tasks and drivers are killed again and again."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.compare import COMPARISONS
from headrace.pipelines.running import PipelineEnvironment
from headrace.pipelines.site import Site
from headrace.pipelines.topics import create_topics, produce
from tests import rotation
from tests.harness import HeadraceServer
from tests.pipelines.conftest import driver_of, finish_in, reports

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]
DRIVERS = 4


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(3))
def test_results_are_those_of_plain_python(spark: SparkSession, tmp_path: Path, number: int) -> None:
    random = Random(rotation.drawn("kills of pipelines", number))
    site = Site(seed=random.randrange(1 << 30), rate=200)
    events = list(site.events())
    server = HeadraceServer(tmp_path / "data").start()
    try:
        create_topics(server.bootstrap)
        place = PipelineEnvironment(server.bootstrap, tmp_path / "pipelines", random.randrange(4_000, 20_000))
        for part in range(DRIVERS):
            seen = reports(place)
            produce(server.bootstrap, events[len(events) * part // DRIVERS : len(events) * (part + 1) // DRIVERS])
            with driver_of(place) as driver:
                for _ in range(random.randrange(1, 4)):
                    driver.writes(lambda seen=seen: reports(place) > seen)  # type: ignore[misc]
                    if random.random() < 0.5:
                        driver.kill_tasks()
                    else:
                        server.kill()
                        server.restart()
                    seen = reports(place)
        finish_in(spark, place)
        for name, comparison in COMPARISONS.items():
            found, expected = comparison(place, events)
            assert found == expected, f"{name} of {site}"
    finally:
        server.stop()
