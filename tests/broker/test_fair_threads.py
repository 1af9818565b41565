"""The threads that clients share take turns among their owners."""

import asyncio
from threading import Event

import pytest

from headrace.broker.fair_threads import FairThreads


def test_an_owner_waits_for_one_of_each_other_one_however_much_they_submit() -> None:
    threads, begins = FairThreads(1, "fair"), Event()
    done: list[str] = []
    first = threads.of("greedy.").submit(begins.wait)
    greedy = [threads.of("greedy.").submit(done.append, f"greedy {each}") for each in range(50)]
    others = [threads.of(each).submit(done.append, each) for each in ("", "small.")]
    begins.set()
    first.result(60)
    for each in (*greedy, *others):
        each.result(60)
    assert done[:4] == ["greedy 0", "", "small.", "greedy 1"]
    assert [each for each in done if each.startswith("greedy")] == [f"greedy {each}" for each in range(50)]
    assert not threads._lines
    assert not threads._order


def test_what_was_cancelled_is_not_run_and_errors_come_back() -> None:
    threads, begins = FairThreads(2, "fair"), Event()
    done: list[int] = []
    blocking = [threads.of("a").submit(begins.wait) for _ in range(2)]
    cancelled, failing = threads.of("a").submit(done.append, 1), threads.of("a").submit(int, "no number")
    assert cancelled.cancel()
    begins.set()
    with pytest.raises(ValueError, match="no number"):
        failing.result(60)
    assert [each.result(60) for each in blocking] == [True, True]

    async def on_a_loop() -> int:
        return await asyncio.get_running_loop().run_in_executor(threads.of("b"), len, "four")

    assert asyncio.run(on_a_loop()) == 4
    assert done == []
