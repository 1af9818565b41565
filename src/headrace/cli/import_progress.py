"""How far an import is: one line on a terminal's stderr, written over; nothing elsewhere."""

import sys
import time

from headrace.offline.stored_partitions import StoredLog
from headrace.printable import printable
from headrace.types import TopicPartition

_SHOWN_EVERY_SECONDS = 0.5


class ImportProgress:
    """Of several partitions, one after the other, of `size_bytes` together."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._started = self._shown = time.monotonic()
        self._on = sys.stderr.isatty()
        self._before = 0

    def show(self, partition: TopicPartition, log: StoredLog, records: int) -> None:
        """At most twice a second."""
        now = time.monotonic()
        if not self._on or now - self._shown < _SHOWN_EVERY_SECONDS:
            return
        self._shown = now
        done = self._before + log.bytes_read
        rate = done / 1e6 / (now - self._started)
        share = done / self._size if self._size else 1.0
        print(
            f"\r{printable(str(partition))}: {records:,} records, {share:.0%} of all, {rate:.0f} MB/s\x1b[K",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def finished(self, log: StoredLog) -> None:
        """Another partition is done."""
        self._before += log.size_bytes
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
