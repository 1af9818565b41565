"""The deadline heap, against the dumbest one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.deadlines import Deadlines

KEYS = st.sampled_from("abcd")
TIMES = st.integers(0, 20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("cancel"), KEYS, TIMES),
        st.tuples(st.just("shift"), KEYS, st.integers(-5, 5)),
        st.tuples(st.just("pop"), KEYS, TIMES),
    )
)


@given(STEPS)
def test_it_agrees_with_a_dictionary_that_is_searched(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    for what, key, number in steps:
        if what == "set":
            deadlines.set(key, number)
            plain[key] = number
        elif what == "cancel":
            deadlines.cancel(key)
            plain.pop(key, None)
        elif what == "shift":
            deadlines.shift(number)
            plain = {each: at_ms + number for each, at_ms in plain.items()}
        else:
            due = deadlines.pop_due(number)
            at_ms = min(plain.values(), default=None)
            assert (due is None) == (at_ms is None or at_ms > number)
            if due is not None:
                assert plain.pop(due) == at_ms
        assert deadlines.next_ms() == min(plain.values(), default=None)
        assert len(deadlines) == len(plain)
        assert all(each in deadlines for each in plain)


def test_heartbeats_do_not_make_it_grow() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for now_ms in range(10_000):
        deadlines.set("member", now_ms + 10_000)
        deadlines.next_ms()
        assert deadlines.pop_due(now_ms) is None
    assert len(deadlines._heap) == 1


def test_a_deadline_is_postponed_only_if_it_is_there_and_comes_later() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert not deadlines.postpone("a", 5)
    assert deadlines.next_ms() is None
    deadlines.set("a", 5)
    assert not deadlines.postpone("a", 4)
    assert deadlines.next_ms() == 5
    assert deadlines.postpone("a", 5)
    assert deadlines.postpone("a", 9)
    assert deadlines.pop_due(8) is None
    assert deadlines.pop_due(9) == "a"
    assert not deadlines.postpone("a", 20)
