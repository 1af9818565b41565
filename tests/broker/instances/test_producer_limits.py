"""Which producers of an instance a broker forgets when there are too many."""

from types import SimpleNamespace
from typing import Any

from headrace.broker.instances.producer_limits import ProducerLimits
from headrace.instances.definition import Instance
from headrace.log.producers.producer_state import ProducerEntry, Producers
from headrace.types import TopicPartition

MOST = 100


def partition(number: int, entries: list[ProducerEntry]) -> Any:
    state = Producers()
    state.entries.update({each.producer_id: each for each in entries})
    return SimpleNamespace(key=TopicPartition("acme.t", number), log=SimpleNamespace(producers=state))


async def test_no_more_are_forgotten_than_there_are_too_many_though_all_are_as_old() -> None:
    """A restart gives all producers of a snapshot the times of their last batches, which may be one."""
    partitions = [
        partition(0, [ProducerEntry(number, seen_ms=5) for number in range(80)]),
        partition(1, [ProducerEntry(number, seen_ms=5) for number in range(70)]),
    ]
    instance = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", producers_max=MOST)
    limits = ProducerLimits(SimpleNamespace(get={"acme": instance}.get), partitions)  # type: ignore[arg-type]
    await limits._look()
    left = sum(len(each.log.producers.entries) for each in partitions)
    assert left == MOST * 0.9
    await limits._look()
    assert sum(len(each.log.producers.entries) for each in partitions) == left


async def test_the_oldest_are_forgotten_and_none_with_an_open_transaction() -> None:
    entries = [ProducerEntry(number, seen_ms=number) for number in range(150)]
    entries[0].open_since = 7
    only = partition(0, entries)
    instance = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", producers_max=MOST)
    limits = ProducerLimits(SimpleNamespace(get={"acme": instance}.get), [only])  # type: ignore[arg-type]
    await limits._look()
    assert set(only.log.producers.entries) == {0, *range(61, 150)}


def test_a_producer_that_has_written_since_is_kept() -> None:
    state = Producers()
    state.entries[1] = ProducerEntry(1, seen_ms=6)
    assert not state.forget(1, 5) and not state.forget(2, 5)
    assert state.forget(1, 6)
    assert state.entries == {}
