"""Counts and the ranking of items after kills."""

import pytest

from headrace.pipelines.plain.relevance import scores, windows
from headrace.pipelines.relevance import RANKING, WINDOWS, ranking
from headrace.pipelines.site import Site
from headrace.pipelines.topics import latest_of, values_of
from tests.pipelines.conftest import Survived, milliseconds

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_window_of_an_item_is_there_once_after_kills_as_plain_python_finds_it(survived: Survived) -> None:
    found = values_of(survived.bootstrap, WINDOWS)
    as_rows = [(row["item"], milliseconds(row["window"]), row["shown"], row["clicked"]) for row in found]
    assert sorted(as_rows) == windows(survived.events)


def test_the_ranking_has_the_scores_after_the_last_windows(survived: Survived) -> None:
    found = {item: entry["score"] for item, entry in latest_of(survived.bootstrap, RANKING).items()}
    assert found == pytest.approx(scores(windows(survived.events)))


def test_the_ranking_finds_what_members_like(survived: Survived) -> None:
    site = Site()
    liking = [site.click_rate(int(item.removeprefix("item"))) for item, _ in ranking(survived.bootstrap)]
    assert len(liking) == site.items
    assert sum(liking[:10]) > 4 * sum(liking[-10:])
