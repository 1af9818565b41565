"""The checker finds what is wrong with transactions in histories written by hand, and nothing in a good one."""

from collections.abc import Callable

import pytest

from tests.simulation.checker import check
from tests.simulation.history import (
    CommittedReading,
    Forgotten,
    GroupOffset,
    History,
    Initialized,
    Kind,
    Outcome,
    Promises,
    Replica,
    Seen,
    Sent,
    Stored,
    Transaction,
    Unfinished,
)

IN, OUT = 0, 1


def sent(value: str, partition: int, offset: int) -> Sent:
    return Sent("c1.1", partition, value, -1, True, 10, -1, Outcome.ACKNOWLEDGED, offset)


def replica(partition: int, *records: tuple[str, Kind, int]) -> Replica:
    stored = [Stored(offset, 0, *each) for offset, each in enumerate(records)]
    return Replica(1, partition, True, 0, True, 0, len(stored), stored)


def reading(partition: int, position: int, next_position: int, *records: tuple[int, str]) -> CommittedReading:
    return CommittedReading(
        "r1", partition, 1, 95, position, next_position, tuple(Seen(*each) for each in records), 4, 4
    )


def good() -> History:
    """A processor of one input: its first transaction is aborted, its second committed, with the group's offset."""
    first = [sent("c1.1<0", IN, 1), sent("c1.2<0", OUT, 0)]
    second = [sent("c1.3<0", OUT, 2)]
    return History(
        sent=[Sent("p1", IN, "a", -1, True, 0, 5, Outcome.ACKNOWLEDGED, 0), *first, *second],
        transactions=[
            Transaction("c1", "c1.1.1", (7, 0), 10, first, "c1-group", 1, -1, 20, Outcome.REFUSED),
            Transaction("c1", "c1.1.2", (7, 1), 30, second, "c1-group", 1, 40, 50, Outcome.ACKNOWLEDGED),
        ],
        replicas=[
            replica(IN, ("a", Kind.PLAIN, -1), ("c1.1<0", Kind.TRANSACTIONAL, 7), ("abort", Kind.ABORT, 7)),
            replica(
                OUT,
                ("c1.2<0", Kind.TRANSACTIONAL, 7),
                ("abort", Kind.ABORT, 7),
                ("c1.3<0", Kind.TRANSACTIONAL, 7),
                ("commit", Kind.COMMIT, 7),
            ),
        ],
        committed_readings=[reading(IN, 0, 3, (0, "a")), reading(OUT, 0, 2), reading(OUT, 2, 4, (2, "c1.3<0"))],
        initialized=[
            Initialized("c1.1", "c1", 7, 0, 1),
            Initialized("c1.1", "c1", 7, 1, 20),
            Initialized("c1.2", "c1", 7, 2, 90),
        ],
        group_offsets=[
            GroupOffset("c1-group", "", -1, 35),
            GroupOffset("c1-group", "c1.1.2", 1, 45),
            GroupOffset("c1-group", "c1.1.2", 1, 100, is_final=True),
        ],
        forgotten=[Forgotten("c1.1", "c1", 0, 6_000_000)],
    )


def kinds(history: History) -> set[str]:
    return {each.kind for each in check(history, Promises(unused_id_kept_ms=5000))}


def test_finds_nothing_in_a_good_history() -> None:
    assert kinds(good()) == set()


def aborted_record_is_read(history: History) -> None:
    history.committed_readings[1] = reading(OUT, 0, 2, (0, "c1.2<0"))


def committed_record_is_skipped(history: History) -> None:
    history.committed_readings[2] = reading(OUT, 2, 4)


def record_of_an_open_transaction_is_read(history: History) -> None:
    history.committed_readings[0] = history.committed_readings[0]._replace(last_stable_offset=1)


def commit_marker_is_missing(history: History) -> None:
    history.replicas[1].records[3] = history.replicas[1].records[3]._replace(kind=Kind.ABORT)


def aborted_transaction_is_committed(history: History) -> None:
    history.replicas[0].records[2] = history.replicas[0].records[2]._replace(kind=Kind.COMMIT)


def half_of_a_transaction_is_committed(history: History) -> None:
    aborted_transaction_is_committed(history)
    history.transactions[0].outcome, history.transactions[0].commit_began_us = Outcome.UNKNOWN, 15


def offset_is_read_before_its_commit(history: History) -> None:
    history.group_offsets[1] = history.group_offsets[1]._replace(at_us=35)


def offset_of_an_aborted_transaction_is_read(history: History) -> None:
    history.group_offsets[1] = history.group_offsets[1]._replace(transaction="c1.1.1")


def acknowledged_offset_is_lost(history: History) -> None:
    history.group_offsets[2] = GroupOffset("c1-group", "", -1, 100, is_final=True)


def input_is_not_processed(history: History) -> None:
    history.replicas[1].records[2] = history.replicas[1].records[2]._replace(value="c1.3<1")


def two_producers_have_one_epoch(history: History) -> None:
    history.initialized[2] = history.initialized[2]._replace(epoch=1)


def id_in_use_is_forgotten(history: History) -> None:
    history.forgotten[0] = history.forgotten[0]._replace(used_us=2_000_000)


def transaction_stays_open(history: History) -> None:
    history.unfinished.append(Unfinished(0, "a transaction is open"))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (aborted_record_is_read, "aborted read"),
        (committed_record_is_skipped, "fractured read"),
        (record_of_an_open_transaction_is_read, "unstable"),
        (commit_marker_is_missing, "uncommitted"),
        (aborted_transaction_is_committed, "not aborted"),
        (half_of_a_transaction_is_committed, "torn"),
        (offset_is_read_before_its_commit, "early offset"),
        (offset_of_an_aborted_transaction_is_read, "early offset"),
        (acknowledged_offset_is_lost, "lost offset"),
        (input_is_not_processed, "processed"),
        (two_producers_have_one_epoch, "epoch"),
        (id_in_use_is_forgotten, "forgotten"),
        (transaction_stays_open, "unfinished"),
    ],
)
def test_finds_what_is_wrong(spoil: Callable[[History], None], kind: str) -> None:
    history = good()
    spoil(history)
    assert kind in kinds(history)
