"""The seed of what tests vary from run to run: HEADRACE_SEED, or else today's date (UTC).

`make test` covers other seeds, and other cells of a grid, each day, and the same ones again all day long. The end of
each run prints the seed. `make soak` draws one, and prints it first.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., object])

VARIABLE = "HEADRACE_SEED"
IS_SOAK = "HEADRACE_SOAK_SEEDS"
"""Is set by `make soak`, which has those whose day it is as well."""


def settle() -> None:
    """Decides it, for this process and those that it starts."""
    os.environ.setdefault(VARIABLE, datetime.now(UTC).strftime("%Y%m%d"))


def seed() -> int:
    """This run's seed."""
    settle()
    return int(os.environ[VARIABLE])


def day() -> int:
    """The number of this run's day, for what takes turns: the next day's is one more. A seed that is no date is the
    number itself."""
    number = seed()
    try:
        return datetime.strptime(str(number), "%Y%m%d").toordinal()
    except ValueError:
        return number


def drawn(what: str, number: int) -> int:
    """The `number`-th seed for `what` in this run: positive, below 2**40."""
    return Random(f"{seed()}/{what}/{number}").randrange(1, 1 << 40)


def random_bytes(what: str, size: int) -> bytes:
    """Bytes that are the same in each run with the same seed."""
    return Random(f"{seed()}/{what}").randbytes(size)


def unless_today(number: int, of: int, turn: int = 0) -> list[pytest.MarkDecorator]:
    """Marks for the `number`-th `of` some parameters that take turns, one a day: on other days only `make soak` has it.

    Each `turn` begins with another parameter, so that where many tests take turns, each day has some of each kind.
    """
    is_today = (day() + turn) % of == number and IS_SOAK not in os.environ
    return [] if is_today else [pytest.mark.soak]


def on_its_day(number: int, of: int, turn: int = 0) -> Callable[[Test], Test]:
    """Marks a whole test for the `number`-th day of a cycle of so many days; `make soak` has it as well."""

    def marked(test: Test) -> Test:
        for mark in unless_today(number, of, turn):
            test = mark(test)
        return test

    return marked


def in_turn(*values: T, a_day: int = 1, turn: int = 0) -> list[ParameterSet]:
    """Parameters that take turns, `a_day` of them each day; `make soak` has all."""
    days = -(-len(values) // a_day)
    return [pytest.param(value, marks=unless_today(number % days, days, turn)) for number, value in enumerate(values)]
