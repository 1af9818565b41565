"""Columns cut apart by the partition that each row's key chooses, rows of one partition in their order.

    row        0  1  2  3  4          order      0  3 | 1  4 | 2         no row is copied: a partition's part is the
    key        a  b  c  a  -    ─▶    partition  0      1      2         columns, and places of `order`
    partition  0  1  2  0  1

Row 4 has no key: it goes where rows without keys stick at the moment. Source: what Java's producer does record by
record.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.client.delivery import ColumnSlice
from headrace.records import columns


def scatter(rows: ColumnSlice, partition_count: int, keyless: int) -> Iterator[tuple[int, ColumnSlice]]:
    """Each partition that gets rows, with them; rows without a key go to `keyless`."""
    assert rows.keys is not None and rows.order is None, "rows without keys, or sorted already, need no scattering"
    order, starts = columns.scatter(rows.keys, rows.start, rows.stop, partition_count, keyless)
    for partition in range(partition_count):
        start, stop = starts[partition], starts[partition + 1]
        if stop - start == len(order):
            yield partition, rows
        elif stop > start:
            yield partition, rows._replace(start=start, stop=stop, order=order)
