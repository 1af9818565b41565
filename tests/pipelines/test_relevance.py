"""Counts and the ranking of items after kills."""

import pytest

from headrace.pipelines.compare import compare_relevance
from headrace.pipelines.relevance import ranking
from headrace.pipelines.site import Site
from tests.pipelines.conftest import Survived

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_window_of_an_item_is_there_once_after_kills_and_the_ranking_has_the_scores_after_the_last(
    survived: Survived,
) -> None:
    found, expected = compare_relevance(survived.place, survived.events)
    assert found == expected


def test_the_ranking_finds_what_members_like(survived: Survived) -> None:
    site = Site()
    liking = [site.click_rate(int(item.removeprefix("item"))) for item, _ in ranking(survived.bootstrap)]
    assert len(liking) == site.items
    assert sum(liking[:10]) > 4 * sum(liking[-10:])
