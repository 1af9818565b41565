"""The Parquet files of one round of a table that is divided into partitions: files of each, and one bound for all.

    batch ─by value─▶ rows of a partition ─▶ its `RoundFiles`

Rows in memory are those of one row group in sum: beyond it the partition that has most writes its group, however small.
No more than `OPEN_MAX` files are open; the one that was written longest ago ends.
"""

from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.core.roll import Sizes
from headrace.lake.delta.delta_table import WrittenFile, partition_text
from headrace.lake.delta.location import Location
from headrace.lake.partitioning import folder_of
from headrace.lake.round_files import RoundFiles

OPEN_MAX: Final = 64


class RowFiles(Protocol):
    """What a round writes its rows to."""

    @property
    def schemas(self) -> list[pa.Schema]:
        """The different columns of the files, in their order."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which come in the order of partition and offset."""

    def end_partition(self) -> None:
        """The next batch is of another partition of the topic."""

    def finish(self) -> list[WrittenFile]:
        """All files, complete and on the disk."""

    def discard(self) -> None:
        """Remove the files. Nothing may refer to them."""


class PartitionedFiles:
    """Files of each value of a column."""

    def __init__(self, location: Location, sizes: Sizes, column: str) -> None:
        self._location, self._sizes, self._column = location, sizes, column
        self._files: dict[str | None, RoundFiles] = {}
        """By the partition's value; the one that was written last is the last."""

    @property
    def schemas(self) -> list[pa.Schema]:
        """The different columns of the files."""
        found: list[pa.Schema] = []
        for each in self._files.values():
            found += [schema for schema in each.schemas if schema not in found]
        return found

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which come in the order of partition and offset."""
        values = batch.column(self._column)
        found = values.unique().to_pylist()
        for value in found:
            self._of(value).add(batch if len(found) == 1 else batch.filter(_is(values, value)))
        self._bound()

    def end_partition(self) -> None:
        """The next batch is of another partition of the topic."""
        for each in self._files.values():
            each.end_partition()

    def finish(self) -> list[WrittenFile]:
        """All files, complete and on the disk."""
        return [one for each in self._files.values() for one in each.finish()]

    def discard(self) -> None:
        """Remove the files. Nothing may refer to them."""
        for each in self._files.values():
            each.discard()

    def _of(self, value: Any) -> RoundFiles:
        text = partition_text(value)
        files = self._files.pop(text, None)
        if files is None:
            files = RoundFiles(self._location, self._sizes, folder_of(self._column, text), {self._column: text})
        self._files[text] = files
        return files

    def _bound(self) -> None:
        buffered = sum(each.buffered for each in self._files.values())
        while buffered > self._sizes.group_bytes:
            most = max(self._files.values(), key=lambda each: each.buffered)
            buffered -= most.buffered
            most.end_group()
        is_open = [each for each in self._files.values() if each.has_open_file or each.buffered]
        for each in is_open[:-OPEN_MAX]:
            each.end_file()


def _is(values: pa.Array, value: Any) -> pa.Array:
    return values.is_null() if value is None else pc.equal(values, pa.scalar(value, values.type))
