"""Any sequence of appends, fetches, ISR changes and time keeps the promises of the high watermark."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.replication.partition_state import LeaderAndIsr, PartitionState
from headrace.types import BrokerId, LeaderEpoch

LEADER = BrokerId(1)
FOLLOWERS = (BrokerId(2), BrokerId(3))
LAG_MAX_MS = 100

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from([0, 1]), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(1, 150), st.just(0)),
        st.tuples(st.just("shrink"), st.just(0), st.just(0)),
        st.tuples(st.just("accept"), st.just(0), st.just(0)),
        st.tuples(st.just("new epoch"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Environment:
    """The leader, how far each follower really is, and what the controller has."""

    def __init__(self, min_isr: int) -> None:
        self.now_ms = 1000
        self.ends = {LEADER: 0, **dict.fromkeys(FOLLOWERS, 0)}
        self.leadership = LeaderAndIsr(LEADER, LeaderEpoch(0), (LEADER, *FOLLOWERS), 0, (LEADER, *FOLLOWERS))
        self.state = PartitionState(LEADER, min_insync_replicas=min_isr, lag_max_ms=LAG_MAX_MS)
        self.state.apply(self.leadership, self.now_ms)

    def step(self, kind: str, first: int, second: int) -> None:
        state = self.state
        match kind:
            case "append":
                self.ends[LEADER] += first
                state.on_leader_append(self.ends[LEADER], self.now_ms)
            case "fetch":
                follower = FOLLOWERS[first]
                state.follower_fetched(follower, self.ends[follower], self.now_ms)
                self.ends[follower] = min(self.ends[LEADER], self.ends[follower] + second)  # what the answer held
            case "wait":
                self.now_ms += first
            case "shrink":
                state.propose_shrink(self.now_ms)
            case "accept":
                asked = state.pending_alter()
                version = self.leadership.partition_epoch + 1
                self.leadership = self.leadership._replace(isr=asked.isr, partition_epoch=version)
                state.alter_accepted(asked.leader_epoch, version, asked.isr, self.now_ms)
            case "new epoch":
                epoch, version = self.leadership.leader_epoch + 1, self.leadership.partition_epoch + 1
                self.leadership = self.leadership._replace(leader_epoch=LeaderEpoch(epoch), partition_epoch=version)
                state.apply(self.leadership, self.now_ms)


@settings(deadline=None)
@given(STEPS, st.integers(1, 3))
def test_what_is_committed_is_on_everyone_who_could_be_elected(steps: list[tuple[str, int, int]], min_isr: int) -> None:
    environment = Environment(min_isr)
    committed = 0
    for step in steps:
        environment.step(*step)
        state = environment.state
        assert committed <= state.high_watermark <= state.log_end_offset == environment.ends[LEADER]
        if state.high_watermark > committed:
            electable = {*environment.leadership.isr, *state.isr_state.maximal}
            assert state.high_watermark <= min(environment.ends[broker] for broker in electable)
            assert len(state.isr) >= min_isr
        committed = state.high_watermark
        assert LEADER in state.isr
        assert state.isr <= state.isr_state.maximal


@settings(deadline=None)
@given(STEPS)
def test_once_everyone_is_there_everything_is_committed(steps: list[tuple[str, int, int]]) -> None:
    environment = Environment(1)
    for step in steps:
        environment.step(*step)
    for _ in range(3):
        environment.step("accept", 0, 0)
        for follower in (0, 1):
            environment.step("fetch", follower, 10_000)
    environment.step("accept", 0, 0)
    assert environment.state.high_watermark == environment.ends[LEADER]
    assert environment.state.isr == {LEADER, *FOLLOWERS}


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 3), st.just(0)),
            st.tuples(st.just("fetch"), st.sampled_from([0, 1]), st.integers(0, 2)),
            st.tuples(st.just("wait"), st.integers(1, 150), st.just(0)),
            st.tuples(st.just("shrink"), st.just(0), st.just(0)),
            st.tuples(st.just("accept"), st.just(0), st.just(0)),
        ),
        max_size=60,
    )
)
def test_the_short_way_of_a_follower_that_is_at_the_end_changes_what_the_long_one_does(
    steps: list[tuple[str, int, int]],
) -> None:
    long, short = Environment(1), Environment(1)
    for kind, first, second in steps:
        if kind == "fetch":
            follower = FOLLOWERS[first]
            end = short.ends[follower] = min(short.ends[LEADER], short.ends[follower] + second)
            long.ends[follower] = end
            long.state.follower_fetched(follower, end, long.now_ms)
            is_at_the_end = end == short.state.log_end_offset
            if not (is_at_the_end and short.state.is_still_at_the_end(follower, -1, short.now_ms)):
                short.state.follower_fetched(follower, end, short.now_ms)
        else:
            long.step(kind, first, second)
            short.step(kind, first, second)
        assert long.state.high_watermark == short.state.high_watermark
        assert long.state.isr_state == short.state.isr_state
        for follower in FOLLOWERS:
            one, other = long.state.followers[follower], short.state.followers[follower]
            assert one.last_caught_up_ms == other.last_caught_up_ms
            assert (one.last_fetch_ms, one.last_fetch_leader_end) == (other.last_fetch_ms, other.last_fetch_leader_end)
