"""How much an instance's clients may say of themselves as members of groups, on each broker that coordinates some.

JoinGroup, SyncGroup and the heartbeats of the newer groups bring what the coordinator keeps for as long as the member
lives: subscriptions, user data, assignments, names. The members are counted in slices when enough has come since the
last count, so a request costs an addition:

    counted ─────── came since ─────── │ member_bytes_max
            most/16: they are counted anew; what members have replaced, and those that have left, count no longer
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from headrace.coordinators.groups.member_bytes import bytes_of
from headrace.in_slices import in_slices

if TYPE_CHECKING:
    from headrace.coordinators.groups.coordinator import GroupCoordinator

_COUNTED_AT_MOST_EVERY_S = 1.0
_COUNTED_AFTER = 16


class MemberBytes:
    """What the members of one instance's groups take on this broker."""

    def __init__(
        self,
        prefix: str,
        most: Callable[[], int | None],
        groups: GroupCoordinator,
        spawn: Callable[[Coroutine[object, object, None]], bool],
    ) -> None:
        """`prefix`: of the instance's groups. `most`: its limit of now."""
        self._prefix, self._most, self._groups, self._spawn = prefix, most, groups, spawn
        self._counted = 0
        self._new = self._old = self._oldest = 0  # came since the last count, before it, and before the one before
        self._is_counting, self._next_s = False, 0.0

    def admits(self, size: int) -> bool:
        """Whether a request of so many bytes has room."""
        most = self._most()
        if most is None:
            return True
        since = self._new + self._old + self._oldest + size
        is_over = self._counted + since > most
        if is_over or since > most // _COUNTED_AFTER:
            self._count_soon()
        if not is_over:
            self._new += size
        return not is_over

    def _count_soon(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._is_counting and now_s >= self._next_s:
            self._next_s = now_s + _COUNTED_AT_MOST_EVERY_S
            self._is_counting = self._spawn(self._count())

    async def _count(self) -> None:
        found = 0
        self._oldest, self._old, self._new = self._old, self._new, 0  # the newest may not be members yet
        try:
            for group in self._groups.with_prefix(self._prefix):
                async for member in in_slices(list(group.members.values())):
                    found += bytes_of(member)
                await asyncio.sleep(0)
            self._counted, self._oldest = found, 0
        finally:
            self._is_counting = False
