"""Room that entrances share: the flood of one takes its own places."""

from collections import deque
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from headrace.network.fairness import FairQueue, FairRoom


def test_the_oldest_of_the_entrance_that_takes_most_has_to_go() -> None:
    room: FairRoom[str] = FairRoom()
    room.add("guest", "quiet")
    for number in range(3):
        room.add(f"flood {number}", "loud")
    assert (room.oldest, room.excess) == ("guest", "flood 0")
    room.remove("flood 0")
    room.remove("flood 1")
    assert room.excess == "guest", "the older of two entrances that take the same"


def test_sizes_count_instead_of_numbers() -> None:
    room: FairRoom[str] = FairRoom()
    for number in range(5):
        room.add(f"small {number}", "many", 10)
    room.add("large", "one", 60)
    assert (room.size, room.excess) == (110, "large")


STEPS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc"), st.integers(1, 9)))


@given(STEPS)
def test_a_room_is_like_its_model(steps: list[tuple[int, str, int]]) -> None:
    room: FairRoom[int] = FairRoom()
    model: dict[int, tuple[str, int]] = {}
    for one, entrance, size in steps:
        if one in model:
            del model[one]
            assert room.remove(one)
        else:
            assert not room.remove(one)
            model[one] = entrance, size
            room.add(one, entrance, size)
        assert (list(room), len(room), room.size) == (list(model), len(model), sum(each[1] for each in model.values()))
        if model:
            taken = {name: sum(each[1] for each in model.values() if each[0] == name) for name in "abc"}
            chosen = model[room.excess][0]
            assert taken[chosen] == max(taken.values())
            assert room.excess == next(each for each in model if model[each][0] == chosen)
            assert room.oldest == next(iter(model))


@given(st.lists(st.sampled_from("abc")))
def test_entrances_take_turns_and_each_keeps_its_order(entrances: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number, entrance in enumerate(entrances):
        queue.put((entrance, number), entrance)
    queue.end()
    got = list(iter(queue.get, None))
    waiting = {name: deque(n for n, each in enumerate(entrances) if each == name) for name in dict.fromkeys(entrances)}
    expected = []
    while waiting:
        for name in list(waiting):
            expected.append((name, waiting[name].popleft()))
            if not waiting[name]:
                del waiting[name]
    assert got == expected


def test_a_thread_waits_for_items_and_for_the_end() -> None:
    queue: FairQueue[int] = FairQueue()
    got: list[int] = []
    thread = Thread(target=lambda: got.extend(iter(queue.get, None)))
    thread.start()
    for number in range(1000):
        queue.put(number, str(number % 7))
    queue.end()
    thread.join()
    assert sorted(got) == list(range(1000))
    assert len(queue) == 0
