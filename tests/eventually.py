"""The one way in which tests wait for what servers and clients do in their own time.

A condition is asked again and again until it holds. When it does not hold in time, the AssertionError says what was
waited for, for how long, and what the last answer was. Code that has its own event loop and clock is tested in virtual
time instead (`tests/simulation`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

WITHIN_SECONDS = 120.0
"""How long a wait may take: of all tests, also where they do not wait by the functions below.

Only a hang takes this long. How long anything else takes says how busy the machine is, not whether the code is right.
"""
EVERY_SECONDS = 0.02


def eventually(
    holds: Callable[[], T],
    what: str = "the condition",
    *,
    within_s: float = WITHIN_SECONDS,
    every_s: float = EVERY_SECONDS,
    state: Callable[[], object] | None = None,
) -> T:
    """The first true answer of `holds`. `state` is asked for the failure's message."""
    deadline = time.monotonic() + within_s
    while not (answer := holds()):
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(what, within_s, answer, state))
        time.sleep(every_s)
    return answer


def eventually_equal(ask: Callable[[], T], wanted: T, what: str = "", *, within_s: float = WITHIN_SECONDS) -> None:
    """Returns once `ask` answers `wanted`."""
    last: list[T] = []

    def is_wanted() -> bool:
        last[:] = [ask()]
        return last[0] == wanted

    eventually(is_wanted, what or f"{wanted!r}", within_s=within_s, state=lambda: f"the last answer was {last!r}")


def collected(
    poll: Callable[[int], Iterable[T]],
    count: int,
    what: str = "records",
    *,
    within_s: float = WITHIN_SECONDS,
    every_s: float = 0.0,
) -> list[T]:
    """What `poll` gives, call by call, once there are `count`; `poll` gets how many are missing, and waits itself."""
    found: list[T] = []

    def is_enough() -> bool:
        if len(found) < count:
            found.extend(poll(count - len(found)))
        return len(found) >= count

    eventually(is_enough, f"{count} {what}", within_s=within_s, every_s=every_s, state=lambda: f"{len(found)} came")
    return found


async def eventually_async(
    holds: Callable[[], object] | Callable[[], Awaitable[object]],
    what: str = "the condition",
    *,
    within_s: float = WITHIN_SECONDS,
    every_s: float = 0.005,
    state: Callable[[], object] | None = None,
) -> None:
    """As `eventually`, on an event loop; `holds` may be a coroutine function."""
    loop = asyncio.get_running_loop()  # its clock may be a virtual one
    deadline = loop.time() + within_s
    while True:
        answer = holds()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return
        if loop.time() >= deadline:
            raise AssertionError(_failure(what, within_s, answer, state))
        await asyncio.sleep(every_s)


def _failure(what: str, within_s: float, answer: object, state: Callable[[], object] | None) -> str:
    said = f"waited {within_s:.0f} s for {what}; the last answer was {answer!r}"
    return f"{said}\n{state()}" if state is not None else said
