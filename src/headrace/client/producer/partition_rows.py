"""Splits columns into partitions by the key of each row, keeping the order of rows in a partition.

    row        0  1  2  3  4          order      0  3 | 1  4 | 2         no row is copied: a partition's part is the
    key        a  b  c  a  -    ─▶    partition  0      1      2         columns, and places of `order`
    partition  0  1  2  0  1

Row 4 has no key: it goes to the current sticky partition. Source: Java's producer, which does this record by record.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.client.producer.delivery import ColumnSlice
from headrace.records.format2 import columns


def scatter(rows: ColumnSlice, partition_count: int, keyless: int) -> Iterator[tuple[int, ColumnSlice]]:
    """Each partition with its rows; rows without a key go to `keyless`."""
    assert rows.keys is not None and rows.order is None, "rows without keys, or sorted already, need no scattering"
    order, starts = columns.scatter(rows.keys, rows.start, rows.stop, partition_count, keyless)
    for partition in range(partition_count):
        start, stop = starts[partition], starts[partition + 1]
        if stop - start == len(order):
            yield partition, rows
        elif stop > start:
            yield partition, rows._replace(start=start, stop=stop, order=order)
