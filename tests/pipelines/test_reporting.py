"""Reports over lake tables: after kills, and made again from a point in time."""

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.pipelines.compare import compare_reporting, rows_of
from headrace.pipelines.reporting import REPORTS, run_hour
from headrace.pipelines.running import PipelineEnvironment
from headrace.pipelines.site import START, SiteEvent
from headrace.pipelines.topics import create_topics, produce
from tests.conftest import StartHeadrace
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NEXT_HOUR = START.replace(minute=0) + timedelta(hours=1)


def test_the_reports_are_those_of_plain_python_after_kills(survived: Survived) -> None:
    found, expected = compare_reporting(survived.place, survived.events)
    assert found == expected
    assert len({hour for hour, *_ in found}) == 2


def test_a_re_run_from_a_point_in_time_has_the_same_rows_from_then_on(
    spark: SparkSession, survived: Survived, tmp_path: Path
) -> None:
    run_hour(spark, survived.bootstrap, tmp_path, since=NEXT_HOUR)
    since_ms = int(NEXT_HOUR.timestamp() * 1000)
    for name in REPORTS:
        again, first = (
            [row for row in rows_of(directory / name) if row[0] >= since_ms]
            for directory in (tmp_path, survived.place.of("reporting"))
        )
        assert again == first and again
    assert DeltaTable(tmp_path / "site.views").version() < 3  # made once, not in all the rounds of the first tables


def test_a_second_hour_without_news_changes_no_row(spark: SparkSession, survived: Survived) -> None:
    tables = survived.place.of("reporting")
    before = {name: rows_of(tables / name) for name in REPORTS}
    loaded = DeltaTable(tables / "site.views").version()
    run_hour(spark, survived.bootstrap, tables)
    assert {name: rows_of(tables / name) for name in REPORTS} == before
    assert DeltaTable(tables / "site.views").version() == loaded


def test_an_hour_with_clicks_alone_has_no_rate_and_topics_may_be_empty(
    spark: SparkSession, headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    place = PipelineEnvironment(headrace_server().bootstrap, tmp_path)
    create_topics(place.bootstrap)
    time_ms = int(START.timestamp() * 1000)
    member = {"id": "1", "time_ms": time_ms, "member": "m1", "country": "FR"}
    click = {"id": "2", "time_ms": time_ms, "member": "m1", "item": "item1"}
    events = [SiteEvent("site.members", "m1", member, time_ms), SiteEvent("site.clicks", "m1", click, time_ms)]
    produce(place.bootstrap, events)
    run_hour(spark, place.bootstrap, place.of("reporting"))
    found, expected = compare_reporting(place, events)
    assert found == expected and found[0][-1] is None
    assert not (place.of("reporting") / "site.views").exists()
