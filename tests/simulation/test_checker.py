"""The checker finds what is wrong with histories written by hand, and nothing in a good one."""

from collections.abc import Callable

import pytest

from tests.simulation.checker import check, report
from tests.simulation.history import (
    OFFSETS_PARTITION,
    Availability,
    Committed,
    EndSeen,
    History,
    Led,
    Outcome,
    Promises,
    Reading,
    Replica,
    Reset,
    Seen,
    Sent,
    Stored,
)

ALL, ONE = -1, 1


def sent(
    value: str, offset: int, *, acks: int = ALL, idempotent: bool = True, outcome: Outcome = Outcome.ACKNOWLEDGED
) -> Sent:
    return Sent("p1", 0, value, acks, idempotent, offset * 10, offset * 10 + 5, outcome, offset)


def reading(*records: tuple[int, str], position: int = 0, high_watermark: int = 3, error: str = "") -> Reading:
    return Reading("r1", 0, 1, 100, position, tuple(Seen(*each) for each in records), high_watermark, error)


def replica(
    broker: int, values: str, *, partition: int = 0, high_watermark: int = -1, is_leader: bool = False, epoch: int = 0
) -> Replica:
    stored = [Stored(offset, epoch, value) for offset, value in enumerate(values)]
    end = len(stored) if high_watermark < 0 else high_watermark
    return Replica(broker, partition, is_leader, 1, True, 0, end, stored)


def good() -> History:
    """Three values, sent, read and stored twice."""
    return History(
        sent=[sent("a", 0), sent("b", 1), sent("c", 2)],
        readings=[
            reading((0, "a"), (1, "b"), high_watermark=2),
            reading((2, "c"), position=2),
            reading(position=3, high_watermark=2),  # another leader, which has yet to learn what is committed
        ],
        ends=[EndSeen("r1", 0, 1, 50, 1), EndSeen("r1", 0, 1, 60, 3)],
        commits=[
            Committed("g", 0, 1, 70, 1, False),
            Committed("g", 0, 2, 80, 3, False),
            Committed("g", 0, 1, 85, 1, True),  # from a coordinator that does not know yet that it is none
            Committed("g", 0, 2, 90, 3, True, is_final=True),
        ],
        led=[Led(0, 0, 1, 10, 0, 2), Led(0, 0, 1, 20, 3, 3), Led(0, 1, 2, 30, 2, 3)],
        replicas=[replica(1, "abc"), replica(2, "abc", is_leader=True)],
        availability=[Availability(0, 2, (1, 2), (1, 2), (1, 2), True)],
    )


def kinds(history: History, promises: Promises | None = None) -> set[str]:
    return {finding.kind for finding in check(history, promises or Promises())}


def test_nothing_is_wrong_with_a_good_history() -> None:
    assert check(good(), Promises(acks_one_kept=True)) == []


def only_one_replica_has_it(history: History) -> None:
    history.replicas = [replica(1, "ab"), replica(2, "ab", is_leader=True)]
    history.readings = []


def it_is_above_the_high_watermark(history: History) -> None:
    history.replicas = [replica(1, "abc", high_watermark=2), replica(2, "abc", is_leader=True, high_watermark=2)]
    history.readings = []


def only_a_former_leader_has_it(history: History) -> None:
    history.replicas = [replica(1, "abc"), replica(2, "ab", is_leader=True)]


def it_was_read_though_nobody_was_told(history: History) -> None:
    history.sent[2].outcome = Outcome.UNKNOWN
    history.replicas = [replica(1, "ab"), replica(2, "ab", is_leader=True)]


def nobody_sent_it(history: History) -> None:
    del history.sent[1]


def it_was_refused(history: History) -> None:
    history.sent[1].outcome = Outcome.REFUSED


def two_readers_saw_two_values(history: History) -> None:
    history.sent.append(sent("d", 9, outcome=Outcome.UNKNOWN))
    history.readings.append(Reading("r2", 0, 2, 110, 1, (Seen(1, "d"),), 3))


def it_is_there_twice(history: History) -> None:
    history.replicas = [replica(1, "abcb"), replica(2, "abcb", is_leader=True)]


def the_order_is_another(history: History) -> None:
    history.replicas = [replica(1, "bac"), replica(2, "bac", is_leader=True)]
    history.readings = []


def an_offset_comes_again(history: History) -> None:
    history.readings.append(reading((2, "c"), position=2))


def an_offset_is_skipped(history: History) -> None:
    history.readings[0] = reading((0, "a"), high_watermark=2)


def a_position_is_refused(history: History) -> None:
    history.readings.append(reading(position=3, high_watermark=-1, error="OFFSET_OUT_OF_RANGE"))


def a_position_is_lost(history: History) -> None:
    history.resets.append(Reset("r1", 0, 2, 120, 3, 0, "epoch -1 ends at -1"))


def the_high_watermark_goes_back(history: History) -> None:
    history.led.append(Led(0, 0, 1, 40, 2, 3))


def the_high_watermark_is_beyond_the_end(history: History) -> None:
    history.led.append(Led(0, 0, 1, 40, 4, 3))


def more_was_served_than_is_committed(history: History) -> None:
    history.readings[0] = reading((0, "a"), (1, "b"), high_watermark=1)


def the_end_goes_back(history: History) -> None:
    history.ends.append(EndSeen("r1", 0, 2, 70, 2))


def a_commit_goes_back(history: History) -> None:
    history.commits.append(Committed("g", 0, 2, 95, 1, True))


def a_commit_is_lost(history: History) -> None:
    history.commits.append(Committed("g", 0, 1, 95, 2, True, is_final=True))


def the_logs_differ(history: History) -> None:
    history.sent.append(sent("x", 9, outcome=Outcome.UNKNOWN))
    history.replicas[0] = replica(1, "axc")


def the_epochs_differ(history: History) -> None:
    history.replicas[0] = replica(1, "abc", epoch=1)


def one_replica_has_a_hole(history: History) -> None:
    del history.replicas[0].records[1]


def every_replica_has_the_same_hole(history: History) -> None:
    history.sent, history.readings = [], []
    for each in history.replicas:
        del each.records[1]


def one_replica_begins_late(history: History) -> None:
    del history.replicas[0].records[0]


def groups_offsets_differ(history: History) -> None:
    history.replicas += [replica(1, "xy", partition=OFFSETS_PARTITION), replica(2, "xz", partition=OFFSETS_PARTITION)]


def two_brokers_lead(history: History) -> None:
    history.led.append(Led(0, 1, 3, 40, 2, 3))


def nobody_leads(history: History) -> None:
    history.availability[0] = Availability(0, -1, (1,), (1, 2), (1,), False)


def nothing_is_taken(history: History) -> None:
    history.availability[0] = Availability(0, 2, (1, 2), (1, 2), (1, 2), False)


def somebody_never_comes_back(history: History) -> None:
    history.availability[0] = Availability(0, 2, (2,), (1, 2), (2,), True)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (only_one_replica_has_it, "lost"),
        (it_is_above_the_high_watermark, "lost"),
        (only_a_former_leader_has_it, "lost"),
        (it_was_read_though_nobody_was_told, "vanished"),
        (nobody_sent_it, "phantom"),
        (it_was_refused, "phantom"),
        (two_readers_saw_two_values, "conflict"),
        (it_is_there_twice, "duplicate"),
        (the_order_is_another, "unordered"),
        (an_offset_comes_again, "backwards"),
        (an_offset_is_skipped, "gap"),
        (a_position_is_refused, "refused"),
        (a_position_is_lost, "reset"),
        (the_high_watermark_goes_back, "watermark"),
        (the_high_watermark_is_beyond_the_end, "watermark"),
        (more_was_served_than_is_committed, "watermark"),
        (the_end_goes_back, "end"),
        (a_commit_goes_back, "commit"),
        (a_commit_is_lost, "commit"),
        (the_logs_differ, "diverged"),
        (the_epochs_differ, "diverged"),
        (one_replica_has_a_hole, "diverged"),
        (every_replica_has_the_same_hole, "diverged"),
        (one_replica_begins_late, "diverged"),
        (groups_offsets_differ, "diverged"),
        (two_brokers_lead, "two leaders"),
        (nobody_leads, "leaderless"),
        (nothing_is_taken, "unavailable"),
        (somebody_never_comes_back, "unavailable"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, Callable) else "",  # type: ignore[arg-type]
)
def test_a_spoilt_history_is_found_out(spoil: Callable[[History], None], kind: str) -> None:
    history = good()
    spoil(history)
    assert kind in kinds(history)


def test_acks_1_may_be_lost_unless_that_is_promised() -> None:
    history = good()
    only_one_replica_has_it(history)
    for each in history.sent:
        each.acks = ONE
    assert kinds(history) == set()
    assert kinds(history, Promises(acks_one_kept=True)) == {"lost"}


def test_a_log_may_begin_later_and_a_group_s_records_are_no_producer_s() -> None:
    history = good()
    history.replicas.append(Replica(3, 0, False, 1, True, 1, 3, history.replicas[0].records[1:]))
    history.replicas.append(replica(1, "xyz", partition=OFFSETS_PARTITION))
    assert kinds(history) == set()


def test_a_pause_is_found_where_none_is_promised() -> None:
    history = good()
    history.sent[1].ended_us = history.sent[1].began_us + 1_001_000
    assert kinds(history) == set()
    assert kinds(history, Promises(pause_max_ms=1000)) == {"stalled"}
    assert kinds(history, Promises(pause_max_ms=1001)) == set()


def test_without_idempotence_a_value_may_be_there_twice() -> None:
    history = good()
    it_is_there_twice(history)
    for each in history.sent:
        each.is_idempotent = False
    assert kinds(history) == set()


def test_nobody_need_lead_when_the_whole_isr_is_gone() -> None:
    history = good()
    history.availability[0] = Availability(0, -1, (), (1,), (2,), False)
    assert kinds(history) == set()


def test_a_report_counts_what_it_does_not_show() -> None:
    history = good()
    history.sent += [sent(f"more {number}", 10 + number) for number in range(9)]
    lines = report(check(history, Promises()))
    assert len(lines) == 6
    assert lines[-1] == "lost: and 4 more"
