"""Crawlers, API abuse, spamming and log-in attacks: verdicts and the rate limiter's list after kills; two aircraft."""

import pytest
from pyspark.sql import DataFrame

from headrace.pipelines.abuse import API_ABUSER, ATTACKER, CRAWLERS, PATIENT_ATTACKER, SPAMMER
from headrace.pipelines.compare import compare_security
from headrace.pipelines.plain.security import blocked, verdicts
from headrace.pipelines.rate_limiter import RateLimiter
from headrace.pipelines.security import left_again_too_soon
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_verdict_is_there_once_after_kills_as_plain_python_finds_it(survived: Survived) -> None:
    found, expected = compare_security(survived.place, survived.events)
    assert found == expected
    assert {verdict[:2] for verdict in expected[0]} == {
        *(("crawler", ip) for ip in CRAWLERS),
        ("api", API_ABUSER),
        ("spam", SPAMMER),
        ("login", ATTACKER),
    }


def test_the_rate_limiter_blocks_abuse_for_ten_minutes_and_nobody_else(survived: Survived) -> None:
    expected = blocked(verdicts(survived.events))
    first_ms = min(entry["until_ms"] for entry in expected.values())
    with RateLimiter(survived.bootstrap) as limiter:
        while len(limiter.blocked(first_ms - 1)) < len(expected):
            limiter.refresh(timeout_ms=500)
        assert limiter.is_blocked(ATTACKER, first_ms - 1) and not limiter.is_blocked(PATIENT_ATTACKER, first_ms - 1)
        assert len(limiter.blocked(first_ms)) == len(expected) - 1
        assert limiter.blocked(max(entry["until_ms"] for entry in expected.values())) == []


def test_aircraft_of_2013_were_in_two_places_so_often(flights: DataFrame) -> None:
    found = [row.is_same for row in left_again_too_soon(flights).collect()]
    assert (found.count(True), found.count(False)) == (17, 3)
