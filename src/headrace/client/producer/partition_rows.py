"""Splits columns into partitions by the key of each row, keeping the order of rows in a partition.

    row        0  1  2  3  4          order      0  3 | 1  4 | 2         no row is copied: a partition's part is the
    key        a  b  c  a  -    ─▶    partition  0      1      2         columns, and places of `order`
    partition  0  1  2  0  1

Row 4 has no key: it goes to the current sticky partition. Source: Java's producer, which does this record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from headrace.client.producer.accumulator import cut
from headrace.client.producer.delivery import ColumnSlice
from headrace.records.format2 import columns

Part: TypeAlias = tuple[int | None, ColumnSlice, int]
"""Rows of one partition (None: of any), and their bytes in a batch."""


def parts_of(
    rows: ColumnSlice, partition: int | None, batch_bytes: int, spread: tuple[int, int] | None
) -> Iterator[Part]:
    """The rows by partition, in slices of a batch each. `spread`: the number of partitions over which keys spread them,
    and the partition of rows without a key."""
    by_partition: Iterable[tuple[int | None, ColumnSlice]] = [(partition, rows)]
    if spread is not None:
        by_partition = scatter(rows, *spread)
    for chosen, own in by_partition:
        for part, size in cut(own, batch_bytes):
            yield chosen, part, size


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
