"""Which brokers lead how many partitions of an instance, through changes of the metadata."""

from collections.abc import Collection

from headrace.broker.instances.flow_placement import Placement
from headrace.metadata.metadata_cache import MetadataCache
from headrace.types import BrokerId
from tests.broker.test_metadata_deltas import A, B, C, told, update

ONE, TWO = BrokerId(1), BrokerId(2)


def placed(*topics: object) -> tuple[MetadataCache, Placement, list[tuple[Collection[str], bool]]]:
    cache = MetadataCache()
    cache.apply(update(*topics))  # type: ignore[arg-type]
    placement, changes = Placement(cache), list[tuple[Collection[str], bool]]()
    placement.on_change(lambda names, is_membership: changes.append((set(names), is_membership)))
    return cache, placement, changes


def test_counts_what_there_is_when_it_is_made_and_what_comes() -> None:
    cache, placement, changes = placed(told("acme.a", A, {0: 1, 1: 2}), told("operators", B, {0: 1}))
    assert placement.led("acme") == {ONE: 1, TWO: 1}
    cache.apply(update(told("acme.b", C, {0: 1})))
    assert placement.led("acme") == {ONE: 2, TWO: 1}
    assert sorted(placement.partitions_led("acme", ONE)) == [("acme.a", 0), ("acme.b", 0)]
    assert changes == [({"acme"}, False)]


def test_follows_leaders_that_move_and_partitions_without_one() -> None:
    cache, placement, _ = placed(told("acme.a", A, {0: 1, 1: 2}))
    cache.apply(update(told("acme.a", A, {0: 2}, epoch=1)))
    assert placement.led("acme") == {TWO: 2}
    cache.apply(update(told("acme.a", A, {1: -1}, epoch=2)))
    assert placement.led("acme") == {TWO: 1}


def test_forgets_deleted_topics_and_counts_recreated_ones_anew() -> None:
    cache, placement, _ = placed(told("acme.a", A, {0: 1, 1: 2}))
    cache.apply(update(told("acme.a", B, {0: 2})))
    assert placement.led("acme") == {TWO: 1}
    cache.apply(update(told("other.a", C, {0: 1}), is_full=True))
    assert placement.led("acme") == {} and placement.led("other") == {ONE: 1}
    assert placement.partitions_led("acme", TWO) == []


def test_tells_when_brokers_come_and_go_and_nothing_of_topics_of_no_instance() -> None:
    cache, placement, changes = placed(told("acme.a", A, {0: 1}))
    cache.apply(update(told("operators", B, {0: 1})))
    assert changes == []
    cache.apply(update(brokers=((1, "one"),)))
    assert changes == [(set(), True)] and set(placement.brokers) == {ONE}
