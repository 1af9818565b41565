"""A bounded table of the largest sums by key: who was throttled the longest. Pure.

It has at most `KEYS_MAX` keys. A key that is new when the table is full takes the place of the smallest one and begins
at its sum, so that a large key is never lost, and a small one is overstated by at most the smallest sum ("Space
Saving" of Metwally, Agrawal and El Abbadi, 2005).
"""

from __future__ import annotations

KEYS_MAX = 64
NAME_CHARS_MAX = 250
"""Clients choose their ids: a longer one is cut."""


class Tops:
    """Sums by key, of which the largest are kept."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, key: str, amount: float) -> None:
        """Adds to the sum of a key."""
        key = key[:NAME_CHARS_MAX]
        sums = self._sums
        known = sums.get(key)
        if known is None and len(sums) >= KEYS_MAX:
            smallest = min(sums, key=sums.__getitem__)
            known = sums.pop(smallest)
        sums[key] = (known or 0.0) + amount

    def largest(self, count: int) -> list[tuple[str, float]]:
        """The keys with the largest sums, the largest first."""
        return sorted(self._sums.items(), key=lambda item: (-item[1], item[0]))[:count]
