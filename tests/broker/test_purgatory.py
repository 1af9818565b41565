"""Waiting requests end once: when what they wait for happens, or when their time is up."""

import asyncio
import gc
import weakref

import pytest

from headrace.broker.request import purgatory as purgatory_module
from headrace.broker.request.purgatory import Purgatory
from tests.simulation.virtual_time import in_virtual_time
from tests.uncompiled import uncompiled

UNCOMPILED = uncompiled(purgatory_module)


DelayedRequest = purgatory_module.DelayedRequest


@pytest.fixture(autouse=True, params=["compiled", "uncompiled"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uncompiled":
        monkeypatch.setitem(globals(), "Purgatory", UNCOMPILED.Purgatory)
        monkeypatch.setitem(globals(), "DelayedRequest", UNCOMPILED.DelayedRequest)


class Waiter:
    def __init__(self, completes_at_look: int = 1) -> None:
        self.looks = 0
        self.completes_at_look = completes_at_look
        self.ended: list[str] = []

    def try_complete(self) -> bool:
        self.looks += 1
        if self.looks >= self.completes_at_look:
            self.ended.append("completed")
            return True
        return False

    def expire(self) -> None:
        self.ended.append("expired")


@in_virtual_time
async def test_a_touch_completes_those_who_watch_the_key() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    mine, other = Waiter(), Waiter()
    purgatory.wait(mine, ["a", "b"], 60_000)
    purgatory.wait(other, ["c"], 60_000)
    purgatory.touch("b")
    await asyncio.sleep(0.01)
    assert (mine.ended, other.ended, len(purgatory)) == (["completed"], [], 1)


@in_virtual_time
async def test_touches_while_requests_are_received_are_one_look_at_the_end_of_it() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiter, other = Waiter(completes_at_look=3), Waiter()
    purgatory.wait(waiter, ["a", "b"], 60_000)
    purgatory.is_open = True
    purgatory.touch("a")
    purgatory.touch("b")
    await asyncio.sleep(0)
    assert waiter.looks == 0, "what is received later in the turn may touch it, too"
    purgatory.is_open = False
    purgatory.flush()
    assert waiter.looks == 1
    purgatory.flush()
    await asyncio.sleep(0)
    assert waiter.looks == 1
    purgatory.touch("a")  # outside of it
    purgatory.is_open = True
    purgatory.touch("b")
    purgatory.is_open = False
    purgatory.flush()
    await asyncio.sleep(0.01)
    assert waiter.looks == 2, "those of before are looked at, too, and once"
    purgatory.wait(other, ["c"], 60_000)
    purgatory.touch("c")
    await asyncio.sleep(0.01)
    assert other.ended == ["completed"]


@in_virtual_time
async def test_what_a_look_touches_is_looked_at_in_the_next_turn_of_the_loop() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiter = Waiter(completes_at_look=2)

    class Toucher(Waiter):
        def try_complete(self) -> bool:
            purgatory.touch("b")
            return super().try_complete()

    purgatory.wait(Toucher(), ["a"], 60_000)
    purgatory.wait(waiter, ["b"], 60_000)
    for looks in (0, 1):
        assert waiter.looks == looks
        purgatory.is_open = True
        purgatory.touch("a" if looks == 0 else "b")
        purgatory.is_open = False
        purgatory.flush()
        assert waiter.looks == 2 * looks
        await asyncio.sleep(0.01)
    assert waiter.ended == ["completed"]


@in_virtual_time
async def test_all_touches_of_a_loop_turn_are_one_look() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiter = Waiter(completes_at_look=2)
    purgatory.wait(waiter, ["a", "b"], 60_000)
    for _ in range(1000):
        purgatory.touch("a")
        purgatory.touch("b")
    await asyncio.sleep(0.01)
    assert (waiter.looks, waiter.ended) == (1, [])


@in_virtual_time
async def test_time_runs_out_once_and_in_the_order_of_deadlines() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    ends: list[str] = []

    class Named(Waiter):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def expire(self) -> None:
            super().expire()
            ends.append(self.name)

    late, soon = Named("late"), Named("soon")
    purgatory.wait(late, ["a"], 40)
    purgatory.wait(soon, ["a"], 10)
    await asyncio.sleep(0.1)
    purgatory.touch("a")
    await asyncio.sleep(0.01)
    assert ends == ["soon", "late"]
    assert (late.ended, soon.ended, len(purgatory)) == (["expired"], ["expired"], 0)


@in_virtual_time
async def test_what_completed_does_not_expire_and_leaves_nothing_behind() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiters = [Waiter() for _ in range(500)]
    for waiter in waiters:
        purgatory.wait(waiter, ["a"], 20)
        purgatory.touch("a")
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert all(waiter.ended == ["completed"] for waiter in waiters)
    assert len(purgatory) == 0


def test_a_time_that_has_come_already_does_not_disturb_later_waits_under_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    due, later = Waiter(completes_at_look=9), Waiter(completes_at_look=9)

    async def run() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        purgatory.wait(due, ["a"], -5)
        purgatory.wait(later, ["a"], 60_000)
        await asyncio.sleep(0.01)

    uvloop.run(run())
    assert (due.ended, later.ended) == (["expired"], [])


@in_virtual_time
async def test_what_is_cancelled_is_never_asked_again_and_leaves_nothing_behind() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiters = [Waiter() for _ in range(500)]
    for entry in [purgatory.wait(waiter, ["a"], 10) for waiter in waiters]:
        purgatory.touch("a")
        purgatory.cancel(entry)
        purgatory.cancel(entry)
    await asyncio.sleep(0.05)
    assert all((waiter.looks, waiter.ended) == (0, []) for waiter in waiters)
    assert len(purgatory) == 0


@in_virtual_time
async def test_what_is_paused_watches_nothing_until_it_is_resumed_and_keeps_its_deadline() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    again, other = Waiter(completes_at_look=9), Waiter(completes_at_look=9)
    entry = purgatory.wait(again, ["a"], 100)
    purgatory.wait(other, ["a"], 60_000)
    purgatory.touch("a")
    purgatory.pause(entry)
    purgatory.pause(entry)
    await asyncio.sleep(0.01)
    assert (again.looks, other.looks, len(purgatory), list(purgatory.operations())) == (0, 1, 1, [other])
    assert purgatory.resume(entry)
    assert purgatory.resume(entry)
    purgatory.touch("a")
    await asyncio.sleep(0.01)
    assert (again.looks, other.looks, len(purgatory)) == (1, 2, 2)
    await asyncio.sleep(0.2)
    assert (again.ended, len(purgatory)) == (["expired"], 1)
    assert not purgatory.resume(entry)


@in_virtual_time
async def test_what_is_paused_when_its_time_comes_is_over_without_a_word() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiter, cancelled = Waiter(), Waiter()
    entry, gone = purgatory.wait(waiter, ["a"], 20), purgatory.wait(cancelled, ["a"], 20)
    purgatory.pause(entry)
    purgatory.pause(gone)
    purgatory.cancel(gone)
    assert (len(purgatory), len(purgatory.watched)) == (0, 0)
    await asyncio.sleep(0.1)
    assert not purgatory.resume(entry) and not purgatory.resume(gone)
    purgatory.touch("a")
    await asyncio.sleep(0.01)
    assert (waiter.looks, waiter.ended, cancelled.looks, cancelled.ended) == (0, [], 0, [])


@in_virtual_time
async def test_what_waits_again_expires_at_its_new_deadline_and_is_woken_until_then() -> None:
    loop = asyncio.get_running_loop()
    purgatory = Purgatory(loop)
    waiter, began = Waiter(completes_at_look=9), loop.time()
    entry = purgatory.wait(waiter, ["a", "b"], 100)
    assert not purgatory.wait_again(entry, 500), "it waits already"
    for number in range(3):
        purgatory.pause(entry)
        await asyncio.sleep(0.02)
        purgatory.touch("a")
        await asyncio.sleep(0.01)
        assert (waiter.looks, len(purgatory), len(purgatory.watched)) == (number, 0, 0)
        assert purgatory.wait_again(entry, 100)
        purgatory.touch("b")
        await asyncio.sleep(0)
        assert (waiter.looks, len(purgatory), len(purgatory._deadlines)) == (number + 1, 1, 1)
    await asyncio.sleep(began + 0.15 - loop.time())
    assert not waiter.ended
    await asyncio.sleep(0.05)
    assert waiter.ended == ["expired"]
    assert not purgatory.wait_again(entry, 100), "it is over"
    assert (len(purgatory), len(purgatory.watched), purgatory._deadlines) == (0, 0, [])


@in_virtual_time
async def test_what_would_expire_sooner_than_before_does_not_wait_again() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    waiter = Waiter()
    entry = purgatory.wait(waiter, ["a"], 100)
    purgatory.pause(entry)
    assert not purgatory.wait_again(entry, 50) and len(purgatory) == 0
    assert purgatory.wait_again(entry, 100) and len(purgatory) == 1
    purgatory.cancel(entry)
    await asyncio.sleep(0.2)
    assert (waiter.ended, len(purgatory)) == ([], 0)


@in_virtual_time
async def test_several_that_watch_a_key_are_tried_in_the_order_in_which_they_came() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    tried: list[str] = []

    class Named(Waiter):
        def __init__(self, name: str) -> None:
            super().__init__(completes_at_look=9)
            self.name = name

        def try_complete(self) -> bool:
            tried.append(self.name)
            return super().try_complete()

    entries = [purgatory.wait(Named(name), ["a"], 60_000) for name in "pqr"]
    for gone, left in ((1, "pr"), (0, "r"), (2, "")):
        purgatory.cancel(entries[gone])
        purgatory.touch("a")
        await asyncio.sleep(0.01)
        assert "".join(tried) == left
        tried.clear()
    entries = [purgatory.wait(Named(name), ["a"], 60_000) for name in "pq"]
    purgatory.pause(entries[0])
    purgatory.resume(entries[0])
    purgatory.touch("a")
    await asyncio.sleep(0.01)
    assert tried == ["q", "p"]


@in_virtual_time
async def test_a_request_of_the_compiled_kind_ends_as_any_other() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())
    ended: list[str] = []

    class Request(DelayedRequest):
        def try_complete(self) -> bool:
            ended.append("completed")
            return True

        def expire(self) -> None:
            ended.append("expired")

    purgatory.wait(Request(), ["a"], 20)
    purgatory.wait(Request(), ["b"], 20)
    purgatory.touch("a")
    await asyncio.sleep(0.05)
    assert (ended, len(purgatory)) == (["completed", "expired"], 0)


@in_virtual_time
async def test_an_operation_that_pauses_as_it_completes_or_beside_many_others_is_counted_once() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())

    class Pausing(Waiter):
        def try_complete(self) -> bool:
            purgatory.pause(entry)
            return super().try_complete()

    entry = purgatory.wait(Pausing(), ["a"], 60_000)
    purgatory.touch("a")
    await asyncio.sleep(0.01)
    assert len(purgatory) == 0 and not purgatory.resume(entry)
    paused = [purgatory.wait(Waiter(), ["a", n], 60_000) for n in range(300)]
    for each in paused:
        purgatory.pause(each)
    assert (len(purgatory), len(purgatory.watched)) == (0, 0)
    assert len(purgatory._deadlines) < 100, "those that wait no more are kept"
    resumed = sum(purgatory.resume(each) for each in paused)
    assert len(purgatory) == len(list(purgatory.operations())) == resumed


@in_virtual_time
async def test_what_waits_while_others_expire_expires_too_and_in_time() -> None:
    loop = asyncio.get_running_loop()
    purgatory = Purgatory(loop)
    ends: list[tuple[str, int]] = []

    class Again(Waiter):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def expire(self) -> None:
            ends.append((self.name, round(1000 * (loop.time() - began))))
            if self.name == "first":
                purgatory.wait(Again("late"), ["a"], 500)

    began = loop.time()
    purgatory.wait(Again("first"), ["a"], 10)
    purgatory.wait(Again("second"), ["a"], 50)
    await asyncio.sleep(1)
    assert ends == [("first", 10), ("second", 50), ("late", 510)]


class Holder(Waiter):
    """Has the handle of its own wait, as a request does, so that it ends with its connection."""

    handle: object = None


@in_virtual_time
async def test_what_is_over_is_freed_without_the_collector() -> None:
    """What a broker keeps is hidden from the collector, once it has many partitions: it finds no circle then."""
    purgatory = Purgatory(asyncio.get_running_loop())

    def waits(looks: int, timeout_ms: int) -> "weakref.ref[Holder]":
        holder = Holder(looks)
        holder.handle = purgatory.wait(holder, ["a"], timeout_ms)
        return weakref.ref(holder)

    def left(waiter: "weakref.ref[Holder]") -> None:
        found = waiter()
        assert found is not None
        purgatory.cancel(found.handle)  # type: ignore[arg-type]

    def rests(waiter: "weakref.ref[Holder]") -> None:
        found = waiter()
        assert found is not None
        purgatory.pause(found.handle)  # type: ignore[arg-type]

    gc.disable()
    try:
        completed, expired, cancelled, paused = waits(1, 20), waits(9, 20), waits(9, 20), waits(9, 20)
        left(cancelled)
        rests(paused)
        purgatory.touch("a")
        await asyncio.sleep(0.05)
        assert [each() for each in (completed, expired, cancelled, paused)] == [None] * 4
    finally:
        gc.enable()


@in_virtual_time
async def test_what_ends_its_own_wait_while_it_is_looked_at_is_counted_once() -> None:
    purgatory = Purgatory(asyncio.get_running_loop())

    class Leaving(Holder):
        def try_complete(self) -> bool:
            purgatory.cancel(self.handle)  # type: ignore[arg-type]
            return True

    for waiter in (Leaving(), Leaving()):
        waiter.handle = purgatory.wait(waiter, ["a"], 20)
    other = Waiter(completes_at_look=9)
    purgatory.wait(other, ["b"], 60_000)
    purgatory.touch("a")
    await asyncio.sleep(0.05)
    assert (len(purgatory), list(purgatory.operations())) == (1, [other])
