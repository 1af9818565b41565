"""What a growing table needs beside rows: many small files made one, and files removed that no version needs.

Both are commits, or deletions, of the table library. They change no row and no progress, so a writer that loses a race
against them commits its rows on the next snapshot.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.lake.compaction import compact
from headrace.lake.delta.delta_table import LoadTable, LostRaceError
from headrace.lake.delta.location import Location

COMPACT_AT: Final = 48
"""Small files: at the default pace of commits a few minutes of a quiet topic."""
VACUUM_EVERY_S: Final = 3_600
ROUNDS_BETWEEN: Final = 8
"""To count a table's files takes longer the more there are."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """When to do what; 0 and None are never."""

    compact_at: int = COMPACT_AT
    vacuum_hours: int | None = None
    """How long files stay that the newest version does not need: as long as readers and queries of old versions may."""


class Upkeep:
    """The upkeep of one table. `after_round` may take seconds."""

    def __init__(
        self, location: Location, settings: UpkeepSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._location = location
        self._settings = settings
        self._clock = clock
        self._left_small = 0
        """The files that the last compaction left small: it may make small ones itself."""
        self._vacuumed_at = clock()
        self._rounds = 0

    def after_round(self) -> None:
        """Do what is due. Others may do the same at the same time: one of them succeeds."""
        settings = self._settings
        is_due = self._rounds % ROUNDS_BETWEEN == 0
        self._rounds += 1
        if not is_due or (not settings.compact_at and settings.vacuum_hours is None):
            return
        table = LoadTable.open(self._location)
        if table is None:
            return
        small = table.small_files
        self._left_small = min(self._left_small, small)
        if settings.compact_at and small - self._left_small >= settings.compact_at:
            try:
                compact(table)
            except LostRaceError:
                return
            after = LoadTable.open(self._location)
            self._left_small = 0 if after is None else after.small_files
        if settings.vacuum_hours is not None and self._clock() - self._vacuumed_at >= VACUUM_EVERY_S:
            self._vacuumed_at = self._clock()
            table.vacuum(settings.vacuum_hours)
