"""The state of a cleaning run: one log on one worker; also the cleaner's settings and metrics."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.log.cleaning.cleaner_choice import Cleanable
from headrace.log.cleaning.compaction import CleaningJob, CleaningPlan, CleaningWorker


class CleanerSettings(NamedTuple):
    """The settings of the cleaner. The defaults are those of the broker's settings."""

    is_enabled: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    map_bytes_max: int = 128 << 20
    load_factor: float = 0.9
    read_bytes: int = 512 << 10
    io_bytes_per_second: float = sys.float_info.max


class CleanerNumbers:
    """The cleaner's metrics."""

    def __init__(self) -> None:
        self.last_look_ms = -1
        self.max_dirty_percent = 0.0
        self.recopy_percent = 0.0
        """For the last cleaned log: the bytes written, in percent of the bytes read."""
        self.max_clean_seconds = 0.0
        self.max_map_percent = 0.0
        self.max_waited_seconds = 0.0
        self.logs_cleaned = 0
        self.bytes_removed = 0


class CleanerRun:
    """The cleaning of one log."""

    def __init__(self, chosen: Cleanable, job: CleaningJob) -> None:
        self.log = chosen.log
        self.job = job
        self.began = time.monotonic()
        self.truncations = chosen.log.truncations
        self.segments = {segment.base_offset: segment for segment in chosen.log.segments}
        """The log's segments at the beginning of the run that are not swapped yet, by base offset."""
        self.plan: CleaningPlan | None = None
        self.groups: deque[list[int]] = deque()
        self.at_group: list[int] = []
        self.bytes_read = 0
        self.bytes_kept = 0

    def is_intact(self, bases: Iterable[int]) -> bool:
        """Whether the log still has these segments unchanged since the job was made."""
        if self.log.failure is not None or self.log.truncations != self.truncations:
            return False
        live = {segment.base_offset: segment for segment in self.log.segments}
        return all(live.get(base) is self.segments[base] for base in bases)


class Lane:
    """A worker and its current run. Steps run one after the other, even when a step begins the next one."""

    def __init__(self, worker: CleaningWorker) -> None:
        self.worker = worker
        self.run: CleanerRun | None = None
        self.next_step: Callable[[], None] | None = None
        self.is_stepping = False

    def step(self, then: Callable[[], None]) -> None:
        """Run `then` once the current step has returned."""
        self.next_step = then
        if self.is_stepping:
            return
        self.is_stepping = True
        try:
            while self.next_step is not None:
                step, self.next_step = self.next_step, None
                step()
        finally:
            self.is_stepping = False
