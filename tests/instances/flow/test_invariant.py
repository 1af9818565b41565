"""The invariant of the leases, in a simulated cluster: the sum of the rates in force is at most the limit.

It is looked at after every event. What Hypothesis finds is a list of steps that can be replayed.
"""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.instances.flow.allotment import Allocator
from headrace.instances.flow.leases import UNLIMITED
from headrace.instances.flow.max_min import allot_max_min
from headrace.instances.flow.seed import allot_by_seed
from tests.examples import examples
from tests.instances.flow.cluster import FlowCluster

LIMIT = 1000.0
ROUNDING = 1.0005
"""Also the `TRICKLE` of brokers without partitions."""

REMEMBERED_S = 15
"""For how long what an unreachable broker used may be missing in the sum: a master that takes over meanwhile renews
what each broker holds, until it has heard all of them."""

HEARD_S = 2.5
"""Time for a controller to hear all brokers. One that is gone before may have renewed a lease that had ended, while
brokers that it has not heard, and thus not reached, were on their way to F."""

METADATA_DELAY_S = 0.9
BROKERS_MAX = 6


class Step(NamedTuple):
    """Something that happens, and the time until the next."""

    what: str
    wait_s: float
    broker: int
    numbers: list[int]


class Setting(NamedTuple):
    """What stays the same."""

    brokers: int
    allocate: Allocator
    delay_s: float
    lost: float
    seed: int
    repeated: float = 0.0
    are_read: bool = True


def steps(*kinds: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.builds(
            Step,
            st.sampled_from(kinds),
            st.sampled_from([0.1, 0.5, 1, 2, 4, 7]),
            st.integers(1, BROKERS_MAX),
            st.lists(st.integers(0, 4), min_size=BROKERS_MAX, max_size=BROKERS_MAX),
        ),
        min_size=5,
        max_size=25,
    )


def all_settings(delays: list[float], lost: list[float]) -> st.SearchStrategy[Setting]:
    return st.builds(
        Setting,
        st.integers(2, BROKERS_MAX),
        st.sampled_from([allot_by_seed, allot_max_min]),
        st.sampled_from(delays),
        st.sampled_from(lost),
        st.integers(0, 1_000_000),
        st.sampled_from([0.0, 0.3]),
        st.booleans(),
    )


def play(setting: Setting, happens: list[Step], *, may_be_unreachable: bool) -> None:
    """Plays the steps, and looks at the sum after each event."""
    cluster = FlowCluster(
        setting.brokers,
        seed=setting.seed,
        allocate=setting.allocate,
        delay_s=(0.001, setting.delay_s),
        lost=setting.lost,
        repeated=setting.repeated,
        metadata_delay_s=METADATA_DELAY_S,
        tick_s=0.25,
        are_read=setting.are_read,
    )
    cluster.start_master()
    cluster.add_instance("a", LIMIT, dict.fromkeys(cluster.brokers, 1))
    demands = dict.fromkeys(cluster.brokers, 0.0)
    cluster.load = lambda _, broker, now: demands[broker]
    ended_at: dict[int, float] = {}
    fair = dict.fromkeys(cluster.brokers, 0.0)
    idle_at = -UNLIMITED

    def look() -> None:
        nonlocal idle_at
        if cluster.is_idle("a"):
            idle_at = cluster.now
        if cluster.now < idle_at + 2 * METADATA_DELAY_S:
            return  # each broker takes the F of its own metadata, which may be late
        allowed = LIMIT
        for each, broker in cluster.brokers.items():
            share = cluster.share("a", each)
            fair[each] = max(fair[each], LIMIT * share)
            if may_be_unreachable and not broker.leases.is_led(cluster.now):
                ended_at[each] = cluster.now
        allowed += sum(fair[each] for each, at in ended_at.items() if cluster.now < at + REMEMBERED_S)
        in_force = cluster.rates("a")
        assert in_force <= allowed * ROUNDING, f"{in_force} in force at {cluster.now}"

    cluster.watch = look
    for step in happens:
        numbers = dict(zip(cluster.brokers, step.numbers, strict=False))
        if step.what == "load":
            demands.update({each: [0.0, 10.0, 100.0, 300.0, 10_000.0][number] for each, number in numbers.items()})
        elif step.what == "partitions move":
            # Without any leader no client can use a rate, and brokers take the F of their own metadata.
            if any(numbers.values()):
                cluster.move("a", numbers)
        elif step.what == "another controller":
            gone = cluster.master is None
            cluster.start_master()
            if gone and not may_be_unreachable:
                cluster.run(cluster.now + HEARD_S)
        elif step.what == "no controller":
            cluster.stop_master()
        elif step.what == "a broker is cut off":
            cluster.cut(min(step.broker, setting.brokers), 2.0 ** step.numbers[0])
        cluster.run(cluster.now + step.wait_s)


@settings(max_examples=examples(60))
@given(setting=all_settings([0.01, 0.5], [0]), happens=steps("load", "another controller", "no controller"))
def test_controllers_that_come_and_go_leave_the_sum_at_the_limit(setting: Setting, happens: list[Step]) -> None:
    play(setting, happens, may_be_unreachable=False)


@settings(max_examples=examples(60))
@given(setting=all_settings([0.01, 0.5], [0]), happens=steps("load", "partitions move"))
def test_partitions_that_move_leave_the_sum_at_the_limit(setting: Setting, happens: list[Step]) -> None:
    play(setting, happens, may_be_unreachable=False)


@settings(max_examples=examples(80))
@given(
    setting=all_settings([0.01, 0.9], [0, 0.1, 0.4]),
    happens=steps("load", "load", "another controller", "no controller", "a broker is cut off", "partitions move"),
)
def test_only_unreachable_brokers_exceed_the_limit_and_by_their_share_at_the_most(
    setting: Setting, happens: list[Step]
) -> None:
    """A broker counts as unreachable while its leases have ended, and for what a takeover remembers."""
    play(setting, happens, may_be_unreachable=True)


def test_two_moves_in_a_row_do_not_count_a_share_that_no_broker_knows_yet() -> None:
    """A broker of 3 that leads 1/3, then all, then half of the partitions held 1/3 when it reported: the second move
    must not make the first one's share the least that it may hold."""
    setting = Setting(3, allot_by_seed, 0.01, 0, 1)
    moves = [Step("partitions move", 0.1, 1, [1, 0, 0]), Step("partitions move", 0.3, 1, [1, 0, 1])]
    play(setting, [Step("load", 2, 1, [0, 0, 3]), *moves], may_be_unreachable=False)
