"""Selects the batches that a read_committed reader skips. Does no IO.

A Fetch answer lists the aborted transactions in its reach as (producer id, first offset). Walking the batches in
order, a transaction becomes aborted for its producer at its first offset, and ends at the producer's abort marker (a
control batch); every transactional batch of the producer between the two is dropped. Batches above the last stable
offset are not in the answer at all. Source: Kafka's `CompletedFetch`.
"""

from collections.abc import Callable, Iterable

from headrace.records.format2.control import read_marker
from headrace.records.format2.header import BatchHeader


def aborted_filter(aborted: Iterable[tuple[int, int]]) -> Callable[[BatchHeader, memoryview], bool] | None:
    """A stateful `skip` function for `scan_batches`; None if no transaction was aborted."""
    pending = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    if not pending:
        return None
    open_aborts: set[int] = set()

    def skip(header: BatchHeader, batch: memoryview) -> bool:
        while pending and pending[-1][1] <= header.last_offset:
            open_aborts.add(pending.pop()[0])
        if header.is_control:
            if header.producer_id in open_aborts and header.record_count and read_marker(batch).is_abort:
                open_aborts.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in open_aborts

    return skip
