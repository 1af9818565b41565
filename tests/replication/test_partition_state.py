"""A partition's leader, ISR and high watermark, as scenarios that can be read.

A scenario is a table: what happens, then what the leader (broker 1 of replicas 1, 2, 3) knows.

    append 5          the leader's log now ends at 5
    fetch 2 @3        broker 2 asks for offset 3: it has everything before
    wait 40           40 seconds go by
    shrink            the periodic look for laggards
    accepted          the controller grants the change of the ISR that was asked for
    refused CODE      ... or not
    gone 3            broker 3 is not registered any more
"""

import pytest

from headrace.errors import ErrorCode
from headrace.limits import INT64_MAX
from headrace.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from headrace.replication.partition_state import AlterIsr, LeaderAndIsr, PartitionState, Transition
from headrace.types import BrokerId, LeaderEpoch

LAG_MAX_MS = 30_000


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def told(
    leader: int = 1,
    epoch: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> LeaderAndIsr:
    return LeaderAndIsr(BrokerId(leader), LeaderEpoch(epoch), ids(*isr), version, ids(*replicas))


class Scenario:
    """Runs the lines of a table against one leader."""

    def __init__(self, isr: tuple[int, ...], min_isr: int) -> None:
        self.now_ms = 1_000_000
        self.state = PartitionState(BrokerId(1), min_insync_replicas=min_isr, lag_max_ms=LAG_MAX_MS)
        self.state.apply(told(isr=isr), self.now_ms)
        self.asked: AlterIsr | None = None

    def do(self, line: str) -> None:
        state = self.state
        match line.replace("@", "").split():
            case ["append", end]:
                state.on_leader_append(int(end), self.now_ms)
            case ["fetch", broker, offset]:
                fetched = state.follower_fetched(BrokerId(int(broker)), int(offset), self.now_ms)
                assert fetched is not None
                self.asked = fetched.alter or self.asked
            case ["fetch", broker, offset, "epoch", epoch]:
                fetched = state.follower_fetched(
                    BrokerId(int(broker)), int(offset), self.now_ms, broker_epoch=int(epoch)
                )
                assert fetched is not None
                self.asked = fetched.alter or self.asked
            case ["isr", *members]:  # by the controller, not by this leader
                version = state.partition_epoch + 1
                state.apply(told(isr=tuple(map(int, members)), version=version), self.now_ms)
            case ["wait", seconds]:
                self.now_ms += int(seconds) * 1000
            case ["shrink"]:
                self.asked = state.propose_shrink(self.now_ms) or self.asked
            case ["accepted"]:
                assert self.asked is not None
                version = state.partition_epoch + 1
                state.alter_accepted(self.asked.leader_epoch, version, self.asked.isr, self.now_ms)
                self.asked = None
            case ["refused", code]:
                state.alter_refused(ErrorCode[code], self.now_ms)
                self.asked = None
            case ["gone", broker]:
                state.follower_gone(BrokerId(int(broker)), self.now_ms)
            case other:
                raise AssertionError(other)

    def sees(self) -> str:
        state = self.state
        isr = ",".join(map(str, sorted(state.isr)))
        match state.isr_state:
            case PendingExpand(_, joining):
                isr += f" +{joining}"
            case PendingShrink(_, leaving):
                isr += "".join(f" -{broker}" for broker in sorted(leaving))
        return f"hw {state.high_watermark} isr {isr}"


SCENARIOS = {
    "the high watermark is the least of the ISR": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @3    | hw 3 isr 1,2,3
        append 9      | hw 3 isr 1,2,3
        fetch 3 @9    | hw 5 isr 1,2,3
        fetch 2 @9    | hw 9 isr 1,2,3
    """,
    "a silent follower leaves the ISR and no longer holds back the high watermark": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @2    | hw 2 isr 1,2,3
        wait 31       | hw 2 isr 1,2,3
        fetch 2 @5    | hw 2 isr 1,2,3
        shrink        | hw 2 isr 1,2,3 -3
        accepted      | hw 5 isr 1,2
    """,
    "while a shrink is pending the high watermark still waits for those who leave": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @2    | hw 2 isr 1,2,3
        wait 31       | hw 2 isr 1,2,3
        fetch 2 @5    | hw 2 isr 1,2,3
        shrink        | hw 2 isr 1,2,3 -3
        append 9      | hw 2 isr 1,2,3 -3
        fetch 2 @9    | hw 2 isr 1,2,3 -3
        accepted      | hw 9 isr 1,2
    """,
    "a follower that keeps asking but never catches up leaves the ISR": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @1    | hw 1 isr 1,2,3
        wait 16       | hw 1 isr 1,2,3
        append 50     | hw 1 isr 1,2,3
        fetch 2 @50   | hw 1 isr 1,2,3
        fetch 3 @2    | hw 2 isr 1,2,3
        wait 16       | hw 2 isr 1,2,3
        fetch 2 @50   | hw 2 isr 1,2,3
        fetch 3 @3    | hw 3 isr 1,2,3
        shrink        | hw 3 isr 1,2,3 -3
        accepted      | hw 50 isr 1,2
    """,
    "a follower that reaches what was the end when it last asked stays": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @5    | hw 5 isr 1,2,3
        wait 20       | hw 5 isr 1,2,3
        append 50     | hw 5 isr 1,2,3
        fetch 2 @50   | hw 5 isr 1,2,3
        fetch 3 @5    | hw 5 isr 1,2,3
        append 90     | hw 5 isr 1,2,3
        wait 20       | hw 5 isr 1,2,3
        fetch 2 @90   | hw 5 isr 1,2,3
        fetch 3 @50   | hw 50 isr 1,2,3
        shrink        | hw 50 isr 1,2,3
    """,
    "an idle follower with everything stays however long": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @5    | hw 5 isr 1,2,3
        wait 999      | hw 5 isr 1,2,3
        shrink        | hw 5 isr 1,2,3
    """,
    "all followers may leave": """
        append 5      | hw 0 isr 1,2,3
        wait 31       | hw 0 isr 1,2,3
        shrink        | hw 0 isr 1,2,3 -2 -3
        accepted      | hw 5 isr 1
    """,
    "a follower that the controller took out of the ISR holds nothing back": """
        append 5      | hw 0 isr 1,2,3
        fetch 2 @5    | hw 0 isr 1,2,3
        fetch 3 @5    | hw 5 isr 1,2,3
        append 9      | hw 5 isr 1,2,3
        fetch 2 @9    | hw 5 isr 1,2,3
        isr 1 2       | hw 9 isr 1,2
        fetch 3 @5    | hw 9 isr 1,2
        append 12     | hw 9 isr 1,2
        fetch 2 @12   | hw 12 isr 1,2
    """,
    "a refused change leaves the ISR as it was": """
        append 5      | hw 0 isr 1,2,3
        wait 31       | hw 0 isr 1,2,3
        shrink        | hw 0 isr 1,2,3 -2 -3
        refused INELIGIBLE_REPLICA | hw 0 isr 1,2,3
        shrink        | hw 0 isr 1,2,3 -2 -3
    """,
    "after an outdated change nothing is asked until the controller speaks": """
        append 5      | hw 0 isr 1,2,3
        wait 31       | hw 0 isr 1,2,3
        shrink        | hw 0 isr 1,2,3 -2 -3
        refused INVALID_UPDATE_VERSION | hw 0 isr 1,2,3 -2 -3
        shrink        | hw 0 isr 1,2,3 -2 -3
    """,
}

FROM_ISR_1_2 = {
    "a follower joins when it has what is committed, and counts before the controller answers": """
        append 5      | hw 0 isr 1,2
        fetch 2 @5    | hw 5 isr 1,2
        append 9      | hw 5 isr 1,2
        fetch 3 @4    | hw 5 isr 1,2
        fetch 3 @5    | hw 5 isr 1,2 +3
        fetch 2 @9    | hw 5 isr 1,2 +3
        accepted      | hw 5 isr 1,2,3
        fetch 3 @9    | hw 9 isr 1,2,3
    """,
    "a follower about to join holds the high watermark within its reach": """
        append 5      | hw 0 isr 1,2
        fetch 2 @5    | hw 5 isr 1,2
        fetch 3 @4    | hw 5 isr 1,2
        append 9      | hw 5 isr 1,2
        fetch 2 @9    | hw 9 isr 1,2
        fetch 3 @5    | hw 9 isr 1,2
        append 12     | hw 9 isr 1,2
        fetch 2 @12   | hw 9 isr 1,2
        fetch 3 @9    | hw 9 isr 1,2 +3
    """,
    "a follower that may not join, since it stops or is gone, holds nothing back": """
        append 5      | hw 0 isr 1,2
        fetch 3 @5    | hw 0 isr 1,2 +3
        fetch 2 @5    | hw 5 isr 1,2 +3
        append 9      | hw 5 isr 1,2 +3
        fetch 2 @9    | hw 5 isr 1,2 +3
        refused INELIGIBLE_REPLICA | hw 9 isr 1,2
        append 12     | hw 9 isr 1,2
        fetch 2 @12   | hw 12 isr 1,2
        fetch 3 @9    | hw 12 isr 1,2
        append 15     | hw 12 isr 1,2
        fetch 2 @15   | hw 15 isr 1,2
    """,
    "a follower that was refused and goes on fetching, or is registered anew, is waited for again": """
        append 5      | hw 0 isr 1,2
        fetch 3 @5 epoch 7 | hw 0 isr 1,2 +3
        refused INELIGIBLE_REPLICA | hw 0 isr 1,2
        wait 2        | hw 0 isr 1,2
        append 9      | hw 0 isr 1,2
        fetch 2 @9    | hw 9 isr 1,2
        fetch 3 @5 epoch 7 | hw 9 isr 1,2
        append 12     | hw 9 isr 1,2
        fetch 2 @12   | hw 9 isr 1,2
        fetch 3 @9 epoch 7 | hw 9 isr 1,2 +3
        refused INELIGIBLE_REPLICA | hw 12 isr 1,2
        append 15     | hw 12 isr 1,2
        fetch 3 @9 epoch 8 | hw 12 isr 1,2
        fetch 2 @15   | hw 12 isr 1,2
        fetch 3 @12 epoch 8 | hw 12 isr 1,2 +3
    """,
    "a follower that is not registered any more is not waited for": """
        append 5      | hw 0 isr 1,2
        fetch 2 @5    | hw 5 isr 1,2
        fetch 3 @4    | hw 5 isr 1,2
        append 9      | hw 5 isr 1,2
        fetch 3 @5    | hw 5 isr 1,2 +3
        accepted      | hw 5 isr 1,2,3
        isr 1 2       | hw 5 isr 1,2
        fetch 2 @9    | hw 9 isr 1,2
        wait 2        | hw 9 isr 1,2
        fetch 3 @8    | hw 9 isr 1,2
        append 12     | hw 9 isr 1,2
        fetch 2 @12   | hw 9 isr 1,2
        gone 3        | hw 12 isr 1,2
    """,
    "one change at a time": """
        append 5      | hw 0 isr 1,2
        fetch 3 @5    | hw 0 isr 1,2 +3
        wait 31       | hw 0 isr 1,2 +3
        shrink        | hw 0 isr 1,2 +3
        accepted      | hw 0 isr 1,2,3
        shrink        | hw 0 isr 1,2,3 -2
        accepted      | hw 5 isr 1,3
    """,
}

MIN_ISR_2 = {
    "below min.insync.replicas the high watermark stands still": """
        append 5      | hw 0 isr 1
        append 9      | hw 0 isr 1
        fetch 2 @9    | hw 0 isr 1 +2
        accepted      | hw 9 isr 1,2
    """,
}


def run(scenario: str, isr: tuple[int, ...], min_isr: int) -> None:
    running = Scenario(isr, min_isr)
    seen, expected = [], []
    for line in scenario.strip().splitlines():
        action, sees = (part.strip() for part in line.split("|"))
        running.do(action)
        seen.append(f"{action:<14}| {running.sees()}")
        expected.append(f"{action:<14}| {sees}")
    assert "\n".join(seen) == "\n".join(expected)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_with_everyone_in_sync(scenario: str) -> None:
    run(scenario, (1, 2, 3), 1)


@pytest.mark.parametrize("scenario", FROM_ISR_1_2.values(), ids=FROM_ISR_1_2.keys())
def test_with_broker_3_out_of_sync(scenario: str) -> None:
    run(scenario, (1, 2), 1)


@pytest.mark.parametrize("scenario", MIN_ISR_2.values(), ids=MIN_ISR_2.keys())
def test_with_the_leader_alone_and_two_wanted(scenario: str) -> None:
    run(scenario, (1,), 2)


def test_a_single_replicas_high_watermark_is_its_log_end() -> None:
    state = PartitionState(BrokerId(1), log_end_offset=7, high_watermark=3)
    assert state.apply(told(isr=(1,), replicas=(1,)), 0) is Transition.BECAME_LEADER
    assert state.high_watermark == 7
    assert state.on_leader_append(12, 0)
    assert state.high_watermark == 12
    assert state.commits_at_once


def test_what_fills_the_flush_count_is_committed_when_it_is_flushed() -> None:
    state = PartitionState(BrokerId(1), log_end_offset=7, high_watermark=7, flush_count=3)
    state.apply(told(isr=(1,), replicas=(1,)), 0)
    assert state.on_leader_append(9, 0), "two records may wait"
    assert not state.on_leader_append(12, 0)
    assert not state.on_leader_append(13, 0)
    assert state.high_watermark == 9
    assert state.on_flush(12, 0)
    assert state.high_watermark == 13, "of what came meanwhile one record may wait again"


def test_a_leader_with_followers_counts_with_what_it_has_flushed() -> None:
    state = PartitionState(BrokerId(1), flush_count=1)
    state.apply(told(isr=(1, 2), replicas=(1, 2)), 0)
    assert not state.on_leader_append(5, 0)
    fetched = state.follower_fetched(BrokerId(2), 5, 0)
    assert fetched is not None
    assert not fetched.high_watermark_moved, "the follower was faster than the leader's disk"
    assert state.on_flush(3, 0)
    assert state.high_watermark == 3
    assert state.on_flush(5, 0)
    assert state.high_watermark == 5


def test_another_flush_count_takes_nothing_back() -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(isr=(1,), replicas=(1,)), 0)
    assert state.on_leader_append(5, 0)
    assert not state.set_flush_count(1, 0)
    assert state.high_watermark == 5
    assert not state.on_leader_append(6, 0)
    assert state.high_watermark == 5
    assert state.set_flush_count(INT64_MAX, 0)
    assert state.high_watermark == 6
    assert state.on_leader_append(7, 0)


def test_a_followers_flush_moves_no_high_watermark() -> None:
    state = PartitionState(BrokerId(2), flush_count=1)
    state.apply(told(isr=(1, 2), replicas=(1, 2)), 0)
    state.on_replicated(5, 2)
    assert not state.on_flush(5, 0)
    assert not state.set_flush_count(7, 0)
    assert state.high_watermark == 2


def test_a_single_replica_satisfies_any_min_insync_replicas() -> None:
    """As in Apache Kafka: no more replicas can be wanted than there are."""
    state = PartitionState(BrokerId(1), min_insync_replicas=5)
    state.apply(told(isr=(1,), replicas=(1,)), 0)
    assert state.has_min_isr


FENCING = [
    # leader epoch, partition epoch -> transition of a leader in epoch 5, version 7
    (4, 9, Transition.STALE),
    (5, 6, Transition.STALE),
    (5, 7, Transition.UNCHANGED),
    (5, 8, Transition.ISR_CHANGED),
    (6, 8, Transition.BECAME_LEADER),
    (6, 0, Transition.BECAME_LEADER),  # a new leader epoch counts more than the version
]


@pytest.mark.parametrize(("epoch", "version", "expected"), FENCING)
def test_the_newer_word_of_the_controller_wins(epoch: int, version: int, expected: Transition) -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(epoch=5, version=7), 0)
    assert state.apply(told(epoch=epoch, version=version, isr=(1, 2)), 0) is expected
    took_over = expected in (Transition.ISR_CHANGED, Transition.BECAME_LEADER)
    assert state.isr == ({1, 2} if took_over else {1, 2, 3})
    assert state.leader_epoch == max(5, epoch)


def test_a_new_epoch_forgets_how_far_followers_were_and_a_new_isr_does_not() -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(), 0)
    state.on_leader_append(5, 0)
    for follower in (2, 3):
        state.follower_fetched(BrokerId(follower), 5, 0)
    state.apply(told(isr=(1, 2), version=1), 0)
    assert state.followers[BrokerId(3)].log_end_offset == 5
    state.apply(told(epoch=1, version=2), 0)
    assert state.followers[BrokerId(3)].log_end_offset == -1
    assert (state.high_watermark, state.epoch_start_offset) == (5, 5)
    state.on_leader_append(9, 0)
    assert state.high_watermark == 5


def test_a_follower_may_join_only_with_everything_of_before_this_leaders_time() -> None:
    state = PartitionState(BrokerId(1), log_end_offset=10, high_watermark=4)
    state.apply(told(isr=(1, 2), epoch=3), 0)
    assert state.epoch_start_offset == 10
    fetched = state.follower_fetched(BrokerId(3), 9, 0)
    assert fetched is not None and fetched.alter is None
    fetched = state.follower_fetched(BrokerId(3), 10, 0)
    assert fetched is not None and fetched.alter == AlterIsr(ids(1, 2, 3), LeaderEpoch(3), 0)


def test_whoever_is_no_replica_changes_nothing() -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(), 0)
    assert state.follower_fetched(BrokerId(9), 100, 0) is None
    assert state.high_watermark == 0


def test_an_answer_to_a_change_that_was_overtaken_is_ignored() -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(epoch=2, version=5), 0)
    assert not state.alter_accepted(1, 9, ids(1), 0)
    assert not state.alter_accepted(2, 4, ids(1), 0)
    assert state.isr_state == CommittedIsr(frozenset(ids(1, 2, 3)))


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.INELIGIBLE_REPLICA, False),
    ],
)
def test_a_refusal_says_whether_to_ask_again(code: ErrorCode, again: bool) -> None:
    state = PartitionState(BrokerId(1), lag_max_ms=0)
    state.apply(told(), 0)
    state.on_leader_append(5, 0)
    asked = state.propose_shrink(1)
    assert state.alter_refused(code, 1) is again
    if again:
        assert state.pending_alter() == asked


def test_a_follower_takes_the_leaders_high_watermark_as_far_as_its_log_goes() -> None:
    state = PartitionState(BrokerId(2))
    assert state.apply(told(leader=1), 0) is Transition.BECAME_FOLLOWER
    state.on_replicated(5, 3)
    assert (state.high_watermark, state.log_end_offset) == (3, 5)
    state.on_replicated(6, 100)
    assert state.high_watermark == 6
    state.on_truncated(0, 4)
    assert (state.high_watermark, state.log_end_offset) == (4, 4)
    assert state.propose_shrink(0) is None


def test_a_leader_that_comes_back_as_follower_keeps_its_high_watermark() -> None:
    state = PartitionState(BrokerId(1))
    state.apply(told(), 0)
    state.on_leader_append(5, 0)
    for follower in (2, 3):
        state.follower_fetched(BrokerId(follower), 4, 0)
    state.apply(told(leader=2, epoch=1, version=1), 0)
    assert (state.high_watermark, state.followers) == (4, {})
