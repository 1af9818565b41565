"""The feeds of members after kills."""

import pytest

from headrace.pipelines.compare import compare_news_feed
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_client_reads_back_every_feed_after_kills_as_plain_python_finds_it(survived: Survived) -> None:
    found, expected = compare_news_feed(survived.place, survived.events)
    assert found == expected
    assert len(expected) > 100 and max(map(len, expected.values())) == 20
