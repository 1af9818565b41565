"""Percentiles and alerts of services: what the killed pipeline wrote, the flights, and the live page."""

import json
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headrace.pipelines.compare import compare_operations
from headrace.pipelines.operations import OUTPUT, Alert, cancelled_airport_days, late_airport_hours
from headrace.pipelines.operations_page import LivePage
from headrace.pipelines.topics import values_of
from tests.eventually import eventually
from tests.pipelines.conftest import Survived


@pytest.mark.spark
@pytest.mark.slow
def test_every_window_is_there_once_after_kills_as_plain_python_finds_it(survived: Survived) -> None:
    found, expected = compare_operations(survived.place, survived.events)
    assert found == expected
    assert are_in_order(values_of(survived.bootstrap, OUTPUT))
    changes = [(row["service"], row["change"]) for row in expected if row["change"]]
    assert changes == [("search", "raised"), ("search", "cleared")]


def are_in_order(rows: Iterable[dict[str, Any]]) -> bool:
    """Whether the windows of each service come one after the other."""
    by_service: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_service[row["service"]].append(row["window"])
    return all(before < after for times in by_service.values() for before, after in pairwise(times))


@pytest.mark.spark
@pytest.mark.slow
def test_the_live_page_shows_services_and_escapes_their_names(survived: Survived) -> None:
    page = LivePage(survived.bootstrap)
    try:
        eventually(
            lambda: len(asked(page, "/windows.json")) > 100 and len(json.loads(asked(page, "/windows.json"))) == 4
        )
        assert "<td>search<td>" in asked(page, "/")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            asked(page, "/other")
    finally:
        page.close()


@pytest.mark.spark
@pytest.mark.slow
def test_airports_of_2013_were_late_in_so_many_hours_and_cancelled_on_so_many_days(flights: DataFrame) -> None:
    assert flights.select("origin", "time").distinct().count() == 19_486
    assert late_airport_hours(flights).count() == 818
    assert cancelled_airport_days(flights).count() == 7


def asked(page: LivePage, path: str) -> str:
    with urllib.request.urlopen(page.address + path, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def test_a_service_between_the_levels_changes_nothing() -> None:
    alert = Alert()
    for p95, is_raised in [(250, False), (150, False), (250, False), (201, True), (150, True), (120, True), (120, True),
                           (131, True), (120, True), (129, True), (100, False), (199, False)]:  # fmt: skip
        alert = alert.after(p95)
        assert alert.is_raised == is_raised, p95
