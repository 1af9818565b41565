"""The feeds of members after kills."""

import pytest

from headrace.pipelines.news_feed import FEEDS
from headrace.pipelines.plain.news_feed import feeds
from headrace.pipelines.topics import latest_of
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_client_reads_back_every_feed_after_kills_as_plain_python_finds_it(survived: Survived) -> None:
    expected = feeds(survived.events)
    found = {member: feed for member, feed in latest_of(survived.bootstrap, FEEDS).items() if feed}
    assert found == expected
    assert len(expected) > 100 and max(map(len, expected.values())) == 20
