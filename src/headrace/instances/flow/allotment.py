"""How a limit is shared out to the brokers of an instance: what goes into an allocator, and what comes out. Pure.

An allocator sees one direction (in or out) of one instance: its limit in bytes/s and a `Share` for each broker. It
returns a rate for each broker, in the same order. The rates are finite, at least 0, and sum to the limit (to 0 if
production is blocked).

F is the fair share of a broker: the limit in proportion to the partitions that it leads. While every broker uses less
than 80 % of its F, F stands. Both allocators begin with that, so that brokers need not report what uses little.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

STANDS_BELOW = 0.8
"""F stands while each broker uses less than this share of it."""


class Branch(Enum):
    """The step that decided an allotment; the value is a line for `headrace instance why`."""

    STORAGE_FULL = "storage is full: production is blocked, consumption goes on"
    FAIR = "each broker uses less than 80 % of its share by partitions: that share stands"
    BY_FLOW = "the brokers use nearly equal rates: by each one's share of what flows"
    WITH_GROWTH = (
        "the brokers use unequal rates: by each one's share of what flows, and room to grow for all but the largest"
    )
    DEMAND_MET = "the limit covers the demand: each broker gets its demand, and of the rest a share by partitions"
    WATER_FILLED = "demand exceeds the limit: small demands are met, the rest is shared by partitions"


class Share(NamedTuple):
    """What one broker says about one direction of an instance."""

    partitions: int
    """Partitions of the instance that the broker leads."""
    flowed: float
    """Bytes/s that flowed, on average over the last interval."""
    demand: float
    """Bytes/s that clients wanted, as far as their throttling shows: at least `flowed`."""


class Allotment(NamedTuple):
    """A limit, shared out."""

    rates: list[float]
    """Bytes/s of each broker, in the order of the shares."""
    branch: Branch


Allocator = Callable[[float, Sequence[Share]], Allotment]
"""Shares out a limit in bytes/s, at least 0."""


def fair_rates(limit: float, partitions: Sequence[int]) -> list[float]:
    """F of each broker: the limit by partitions; in equal parts if there are none."""
    total = sum(partitions)
    if total <= 0:
        return [limit / len(partitions)] * len(partitions)
    return [limit * each / total for each in partitions]


def blocked(brokers: int) -> Allotment:
    """What becomes of production when the storage of an instance is full. Consumption is allotted as ever."""
    return Allotment([0.0] * brokers, Branch.STORAGE_FULL)


def normalised(limit: float, weights: Sequence[float]) -> list[float]:
    """The limit in proportion to the weights, of which one is above 0."""
    total = sum(weights)
    return [limit * each / total for each in weights]
