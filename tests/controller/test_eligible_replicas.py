"""Eligible leader replicas: who becomes one, who stays one, and when one leads. `min.insync.replicas` is 2."""

import pytest

from headrace.controller.decisions.elections import (
    elect,
    elect_among,
    elect_for_shutdown,
    elect_preferred,
    leave_isr,
    raise_epoch,
)
from headrace.controller.decisions.eligible_replicas import eligible_after, least_min_insync_replicas, still_eligible
from headrace.metadata import znodes
from headrace.metadata.model import Broker, PartitionLeadership, Replicas
from headrace.types import BrokerId, LeaderEpoch

REPLICAS = Replicas((BrokerId(1), BrokerId(2), BrokerId(3)))
WRITTEN = 100


def live(*names: str) -> dict[BrokerId, Broker]:
    """`2` is headrace, `2!` came back from a crash, `2k` is Apache Kafka."""
    found = {}
    for name in names:
        number = BrokerId(int(name[0]))
        directory = None if name.endswith("k") else f"directory-{number}"
        found[number] = Broker(number, (), epoch=WRITTEN - 1, is_clean=not name.endswith("!"), directory=directory)
    return found


def state(leader: int, isr: str, eligible: str = "") -> PartitionLeadership:
    return PartitionLeadership(
        BrokerId(leader), LeaderEpoch(5), brokers(isr), 1, 7, WRITTEN, eligible=brokers(eligible)
    )


def brokers(digits: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(each)) for each in digits)


def shown(after: PartitionLeadership | None) -> str:
    if after is None:
        return "keep"
    return f"{after.leader} of {''.join(map(str, after.isr))}, eligible {''.join(map(str, after.eligible)) or 'none'}"


@pytest.mark.parametrize(
    ("before", "alive", "expected"),
    [
        (state(1, "123"), live("1", "2"), "1 of 12, eligible none"),
        (state(1, "12"), live("1", "3"), "1 of 1, eligible 2"),
        (state(1, "123"), live("1"), "1 of 1, eligible 23"),
        (state(1, "1", "23"), live("1", "2"), "keep"),
        (state(1, "1", "23"), live("1", "2!", "3"), "1 of 1, eligible 3"),
        (state(1, "1", "2"), live("2", "3"), "2 of 2, eligible 1"),
        (state(1, "1", "2"), live("3"), "-1 of 1, eligible 2"),
        (state(-1, "1", "2"), live("3"), "keep"),
        (state(1, "1", "2"), live("1!", "2"), "2 of 2, eligible none"),
        (state(1, "1", "2"), live("1!", "3"), "-1 of 2, eligible none"),
        (state(1, "1", "2"), live("1!", "2!"), "1 of 1, eligible none"),
        (state(1, "1", "23"), live("1!", "2!"), "-1 of 3, eligible none"),
        (state(-1, "1", "23"), live("3", "2!"), "3 of 3, eligible 1"),
        (state(1, "1", "2"), live("2k", "3"), "-1 of 1, eligible 2"),
        (state(1, "12"), live("1k", "3"), "1 of 1, eligible none"),
    ],
)
def test_elections(before: PartitionLeadership, alive: dict[BrokerId, Broker], expected: str) -> None:
    assert shown(elect(REPLICAS, before, alive, 2, min_isr=2)) == expected


def test_a_replica_that_returned_from_a_crash_is_written_out_without_a_new_leader_epoch() -> None:
    after = elect(REPLICAS, state(1, "1", "23"), live("1", "2!", "3"), 2, min_isr=2)
    assert after is not None
    assert (after.leader_epoch, after.partition_epoch) == (5, 7)


def test_a_lower_min_isr_ends_eligibility_since_the_isr_commits_alone_from_then_on() -> None:
    before = state(1, "1", "2")
    assert shown(elect(REPLICAS, before, live("1", "2"), 2, min_isr=1)) == "1 of 1, eligible none"
    assert shown(elect(REPLICAS, before, live("2"), 2, min_isr=1)) == "-1 of 1, eligible none"


def test_an_unclean_election_leaves_nobody_eligible() -> None:
    after = elect(REPLICAS, state(1, "1", "2"), live("3"), 2, min_isr=2, unclean=True)
    assert shown(after) == "3 of 3, eligible none" and after is not None and after.is_recovering


def test_an_eligible_replica_is_preferred_to_an_unclean_election() -> None:
    after = elect(REPLICAS, state(1, "1", "2"), live("2", "3"), 2, min_isr=2, unclean=True)
    assert shown(after) == "2 of 2, eligible 1" and after is not None and not after.is_recovering


def test_a_broker_that_stops_stays_eligible() -> None:
    alive, leaving = live("1", "2"), brokers("1")
    assert shown(elect_for_shutdown(REPLICAS, state(1, "12"), alive, 2, leaving, min_isr=2)) == "2 of 2, eligible 1"
    assert shown(leave_isr(REPLICAS, state(2, "12"), alive, 2, BrokerId(1), min_isr=2)) == "2 of 2, eligible 1"
    assert shown(elect(REPLICAS, state(1, "1", "2"), live("2"), 2, min_isr=2, leaving=brokers("2"))) == (
        "-1 of 1, eligible 2"
    )


def test_a_preferred_leader_keeps_the_eligible_replicas_unless_it_is_apache_kafka() -> None:
    before = state(2, "1", "3")
    assert shown(elect_preferred(REPLICAS, before, live("1", "2"), 2, min_isr=2)) == "1 of 1, eligible 3"
    assert shown(elect_preferred(REPLICAS, before, live("1k", "2"), 2, min_isr=2)) == "1 of 1, eligible none"


def test_a_reassignment_drops_who_is_no_replica_any_more() -> None:
    before, alive = state(1, "1", "23"), live("1")
    assert shown(elect_among(brokers("13"), before, alive, 2, min_isr=2)) == "1 of 1, eligible 3"
    assert shown(elect_among(brokers("1"), before, alive, 2, min_isr=2)) == "1 of 1, eligible none"


def test_a_reassignment_that_adds_a_replica_keeps_who_is_eligible() -> None:
    assert shown(raise_epoch(state(1, "1", "2"), 2)) == "1 of 1, eligible 2"


@pytest.mark.parametrize(
    ("at_start", "dynamic", "expected"),
    [
        ((2, 2, 2), {}, 2),
        ((2, 1, 2), {}, 1),
        ((1, 1, 1), {"<default>": "2"}, 2),
        ((2, 2, 2), {"3": "1"}, 1),
        ((1, 1, 1), {"<default>": "3", "2": "2"}, 2),
        ((1, 2, 2), {"1": "2"}, 2),
        ((2, 2, 2), {"<default>": "many", "9": "1"}, 2),
        ((), {}, 1),
    ],
)
def test_the_least_default_of_all_brokers_counts(
    at_start: tuple[int, ...], dynamic: dict[str, str], expected: int
) -> None:
    """The leader goes by its own: it commits alone what a controller with a larger one believes uncommitted."""
    alive = {
        BrokerId(number): Broker(BrokerId(number), (), min_insync_replicas=each)
        for number, each in enumerate(at_start, 1)
    }
    configs = {name: {"min.insync.replicas": text} for name, text in dynamic.items()}
    assert least_min_insync_replicas(alive, configs) == expected


def test_a_broker_registers_with_its_default() -> None:
    broker = live("1")[BrokerId(1)]
    for each in (broker, broker._replace(min_insync_replicas=2)):
        assert znodes.decode_broker(1, znodes.encode_broker(each, 0), each.epoch) == each


def test_nobody_is_eligible_beside_an_isr_that_suffices() -> None:
    found = eligible_after(
        state(1, "1", "23"), BrokerId(1), brokers("12"), replicas=REPLICAS.replicas, live=live("1", "2"), min_isr=2
    )
    assert found == ()
    assert still_eligible(state(1, "12", "3"), replicas=REPLICAS.replicas, live=live("1"), min_isr=2) == ()


def test_the_state_s_node_names_them_only_if_there_are_any() -> None:
    with_some, with_none = state(1, "1", "23"), state(1, "12")
    assert b"eligible_leader_replicas" not in znodes.encode_leadership(with_none)
    for each in (with_some, with_none):
        assert znodes.decode_leadership(znodes.encode_leadership(each), 7, WRITTEN) == each
