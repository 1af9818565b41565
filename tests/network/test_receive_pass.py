"""The pass over readable sockets: whom it calls, under both event loops, compiled and not."""

import asyncio
import os
import select
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import uvloop

from headrace.limits import RECEIVERS_PER_TURN_MAX
from headrace.network import receive_pass
from tests.uncompiled import uncompiled

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
MODULES = {"compiled": receive_pass, "plain": uncompiled(receive_pass)}


class Watched:
    """A pass on a loop of its own, and descriptors that are readable until they are read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, module: ModuleType) -> None:
        self.loop, self.module = loop, module
        self.failures: list[dict[str, Any]] = []
        self.fds: list[int] = []
        loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.receive_pass = module.ReceivePass(loop, 0)

    def readable(self) -> int:
        """A new descriptor, which is readable."""
        self.fds.append(os.eventfd(1, os.EFD_NONBLOCK))
        return self.fds[-1]

    def add(self, fd: int, call: Callable[[], None]) -> None:
        """Calls back when the descriptor is readable."""

        class Receiver(self.module.Receiver):  # type: ignore[misc, name-defined]
            def on_readable(self) -> None:
                call()

        self.receive_pass.add(fd, Receiver())

    def note(self, fd: int, name: str, calls: list[str]) -> None:
        """Notes the name whenever the descriptor is readable, and reads it."""

        def read() -> None:
            os.eventfd_read(fd)
            calls.append(name)

        self.add(fd, read)

    def run(self, turns: int = 3) -> None:
        """Lets the loop have its turn."""
        for _ in range(turns):
            self.loop.run_until_complete(asyncio.sleep(0))


class Noted:
    """A loop that notes whom it watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.watched = loop, list[int]()

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.watched.append(fd)
        self.loop.add_reader(fd, call)

    def remove_reader(self, fd: int) -> None:
        self.watched.remove(fd)
        self.loop.remove_reader(fd)


@pytest.fixture(params=[(loop, module) for loop in LOOPS for module in MODULES], ids="-".join)
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    loop, module = request.param
    found = Watched(LOOPS[loop](), MODULES[module])
    yield found
    found.receive_pass.close()
    for fd in found.fds:
        os.close(fd)
    found.loop.close()


def test_who_is_readable_is_called_until_it_is_removed(watched: Watched) -> None:
    calls: list[str] = []
    first, second, third = watched.readable(), watched.readable(), watched.readable()
    os.eventfd_read(third)
    for fd, name in ((first, "first"), (second, "second"), (third, "third")):
        watched.note(fd, name, calls)
    watched.run()
    assert sorted(calls) == ["first", "second"]
    watched.receive_pass.remove(second)
    for fd in (first, second, third):
        os.eventfd_write(fd, 1)
    watched.run()
    assert sorted(calls) == ["first", "first", "second", "third"]


def test_who_is_removed_by_an_earlier_one_of_the_turn_is_not_called(watched: Watched) -> None:
    calls: list[int] = []
    one, other = watched.readable(), watched.readable()

    def call(fd: int, victim: int) -> None:
        calls.append(fd)
        for each in (fd, victim):
            watched.receive_pass.remove(each)
        watched.fds.remove(victim)
        os.close(victim)

    watched.add(one, lambda: call(one, other))
    watched.add(other, lambda: call(other, one))
    watched.run()
    assert calls in ([one], [other])


def test_the_number_of_a_closed_descriptor_may_come_again(watched: Watched) -> None:
    calls: list[str] = []
    fd = watched.readable()
    watched.add(fd, lambda: calls.append("old"))
    watched.receive_pass.remove(fd)
    os.close(watched.fds.pop())
    assert watched.readable() == fd
    watched.note(fd, "new", calls)
    watched.run()
    assert calls == ["new"]


def test_a_failure_of_one_is_told_and_the_others_have_their_turn(watched: Watched) -> None:
    calls: list[str] = []
    bad, good = watched.readable(), watched.readable()

    def fail() -> None:
        os.eventfd_read(bad)
        raise ValueError("bad")

    watched.add(bad, fail)
    watched.note(good, "good", calls)
    watched.run()
    assert calls == ["good"]
    assert [str(each["exception"]) for each in watched.failures] == ["bad"]


def test_more_than_have_room_in_a_turn_take_turns(watched: Watched) -> None:
    calls: list[int] = []
    for _ in range(RECEIVERS_PER_TURN_MAX + 9):
        fd = watched.readable()
        watched.add(fd, partial(calls.append, fd))
    watched.receive_pass.take_turn()
    assert len(calls) == len(set(calls)) == RECEIVERS_PER_TURN_MAX
    watched.receive_pass.take_turn()
    assert set(calls) == set(watched.fds)


def test_the_first_ones_stay_with_the_loop(watched: Watched) -> None:
    calls: list[str] = []
    noted = Noted(watched.loop)
    some = watched.module.ReceivePass(noted, 1)
    watched.receive_pass.close()
    watched.receive_pass = some
    fds = [watched.readable(), watched.readable()]
    for fd, name in zip(fds, ("first", "second"), strict=True):
        watched.note(fd, name, calls)
    watched.run()
    assert sorted(calls) == ["first", "second"]
    assert noted.watched[1:] == fds[:1], "the first is the pass's own"
    for fd in fds:
        some.remove(fd)
    assert noted.watched[1:] == []
    watched.add(fds[1], lambda: None)  # there is room again
    assert noted.watched[1:] == fds[1:]
    some.remove(fds[1])


@pytest.mark.parametrize("left_to_loop", [0, 1])
def test_what_follows_is_done_before_the_loop_goes_on(watched: Watched, left_to_loop: int) -> None:
    calls: list[str] = []

    class Told(watched.module.Turn):  # type: ignore[misc, name-defined]
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __len__(self) -> int:
            return 0

        def flush(self) -> None:
            calls.append(f"{self.name}, {'open' if self.is_open else 'closed'}")

    after = Told("after")
    watched.receive_pass.close()
    watched.receive_pass = watched.module.ReceivePass(watched.loop, left_to_loop, Told("answers"), after)
    fd = watched.readable()

    def read() -> None:
        os.eventfd_read(fd)
        calls.append(f"received, {'open' if after.is_open else 'closed'}")
        watched.loop.call_soon(calls.append, "the loop goes on")
        if len(calls) == 1:
            os.eventfd_write(fd, 1)
        else:
            raise ValueError("a fault")

    watched.add(fd, read)
    watched.run(6)
    answers = [] if left_to_loop else ["answers, closed"]
    once = ["received, open", *answers, "after, closed", "the loop goes on"]
    assert calls == [*once, *once]
    assert len(watched.failures) == 1


def test_the_loop_watches_all_where_there_is_no_epoll(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.delattr(select, "epoll")
    watched.receive_pass.close()
    watched.receive_pass = watched.module.ReceivePass(watched.loop, 0)
    fd = watched.readable()
    watched.note(fd, "it", calls)
    watched.run()
    watched.receive_pass.remove(fd)
    os.eventfd_write(fd, 1)
    watched.run()
    assert calls == ["it"]
