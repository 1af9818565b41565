"""The collector's thresholds while much is built, and after it."""

import gc

import pytest

from headrace.rare_collections import ALLOCATIONS, HIDDEN_AFTER, Lasting, rare_collections


def test_collections_are_rare_for_a_while() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="stop"), rare_collections():
        assert gc.get_threshold()[0] == ALLOCATIONS
        with rare_collections():
            pass
        assert gc.get_threshold()[0] == ALLOCATIONS
        raise ValueError("stop")
    assert gc.get_threshold() == before


def test_the_thresholds_of_before_come_back_in_whatever_order_they_end() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    for each in (first, second):
        each.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == ALLOCATIONS
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_collector_without_a_threshold_stays_so() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_what_is_made_in_great_number_is_hidden_from_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: hidden.append("all"))
    lasting = Lasting()
    for _ in range(HIDDEN_AFTER - 1):
        lasting.made()
    assert not hidden, "a process of few partitions is left as it is"
    for _ in range(HIDDEN_AFTER + 1):
        lasting.made()
    assert len(hidden) == 2
