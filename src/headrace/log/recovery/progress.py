"""Recovery progress: logs every few seconds how far the opening of logs is, so that a long start does not look hung.

    INFO logs are being recovered logs=3 of=20 read_mib=1210 of_mib=10240 mb_per_second=2480 seconds_left=4

Several threads report to it. After `stop`, each of them ends at its next report.
"""

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)
EVERY_S = 3.0


class LoadingStopped(Exception):
    """The opening of logs was stopped before its end."""


class RecoveryProgress:
    """Counts the logs opened and the bytes read so far, and their totals. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, every_s: float = EVERY_S) -> None:
        """`clock` returns seconds. `every_s` is the time between two log lines."""
        self.logs = self.logs_done = self.bytes = self.bytes_done = 0
        self.is_stopped = False
        self._clock = clock
        self._every_s = every_s
        self._lock = threading.Lock()
        self._began_s = clock()
        self._due_s = self._began_s + every_s

    def expect(self, logs: int, size_bytes: int) -> None:
        """Add to the totals: `logs` to open, and `size_bytes` to read for them."""
        with self._lock:
            self.logs += logs
            self.bytes += size_bytes

    def begin(self) -> None:
        """Log the totals, if there are bytes to read."""
        if self.bytes:
            logger.info("recovering logs, because the last stop was not clean", extra=self._fields())

    def read(self, size_bytes: int) -> None:
        """Note that `size_bytes` more were read. Raises LoadingStopped after `stop`."""
        self._advance(0, size_bytes)

    def opened(self) -> None:
        """Note that one more log is open. Raises LoadingStopped after `stop`."""
        self._advance(1, 0)

    def end(self) -> None:
        """Log what was done, if there were bytes to read."""
        if self.bytes:
            seconds = round(self._clock() - self._began_s, 3)
            extra = {"logs": self.logs_done, "read_bytes": self.bytes_done, "seconds": seconds}
            logger.info("recovered logs", extra=extra)

    def stop(self) -> None:
        """Stop the opening: each thread's next report raises LoadingStopped."""
        self.is_stopped = True

    def _advance(self, logs: int, size_bytes: int) -> None:
        if self.is_stopped:
            raise LoadingStopped
        with self._lock:
            self.logs_done += logs
            self.bytes_done += size_bytes
            is_due = self._clock() >= self._due_s
            if is_due:
                self._due_s = self._clock() + self._every_s
        if is_due:
            logger.info("%s logs", "recovering" if self.bytes else "opening", extra=self._fields())

    def _fields(self) -> dict[str, object]:
        fields: dict[str, object] = {"logs": self.logs_done, "of": self.logs}
        if self.bytes:
            fields |= {"read_mib": self.bytes_done >> 20, "of_mib": self.bytes >> 20}
            seconds = self._clock() - self._began_s
            if self.bytes_done and seconds > 0:
                rate = self.bytes_done / seconds
                left_s = max(0, self.bytes - self.bytes_done) / rate
                fields |= {"mb_per_second": round(rate / 1e6), "seconds_left": round(left_s)}
        return fields
