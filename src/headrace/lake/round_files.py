"""The Parquet files of one round, to which no commit refers yet.

    batch ─▶ rows of a group in memory ─▶ row group ─▶ file ... the next file ─▶ finish: names, sizes, statistics

Values and keys are stored with their lengths first (DELTA_LENGTH_BYTE_ARRAY), offsets and times as differences; what
repeats has a dictionary. Statistics of every row group let a reader skip by offset, by time, and by typed columns. A
batch with other columns than the one before begins a new file: all files of a table need not have the same columns.
"""

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.core.roll import Roll, Sizes, roll
from headrace.lake.delta.delta_table import NO_VALUES, WrittenFile, described_file
from headrace.lake.delta.location import Location

COMPRESSION: Final = "zstd"
LEVEL: Final = 1
"""Level 3 makes files 3 % smaller and takes half as long again."""
_DIFFERENCES: Final = ("offset", "timestamp")


class RoundFiles:
    """Writes batches to files of a target size. End with `finish` or `discard`."""

    def __init__(
        self, location: Location, sizes: Sizes, folder: str = "", values: Mapping[str, str | None] = NO_VALUES
    ) -> None:
        """`folder` and `values` are those of a partition of the table, of which all rows are."""
        self._location = location
        self._folder, self._values = folder, values
        self._sizes = sizes
        self._name = uuid.uuid4().hex
        self._paths: list[str] = []
        self._files: list[WrittenFile] = []
        self._buffer: list[pa.RecordBatch] = []
        self._rows = self._size = 0
        self._is_finished = False
        self._open: tuple[Any, pq.ParquetWriter, list[pq.FileMetaData]] | None = None
        self.schemas: list[pa.Schema] = []
        """The different columns of the files, in their order."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which come in the order of partition and offset."""
        if self._buffer and self._buffer[-1].schema != batch.schema:
            self._end_file()
        self._buffer.append(batch)
        self._rows += batch.num_rows
        self._size += batch.nbytes
        self._end(partition_ends=False)

    def end_partition(self) -> None:
        """The next batch is of another partition."""
        self._end(partition_ends=True)

    def finish(self) -> list[WrittenFile]:
        """All files, complete and on the disk. Nothing can be added any more; further calls return the same."""
        if not self._is_finished:
            self._end_file()
            self._location.sync(self._paths)
            self._is_finished = True
        return self._files

    def discard(self) -> None:
        """Remove the files. Nothing may refer to them."""
        if self._open is not None:
            sink, writer, _ = self._open
            self._open = None
            with suppress(Exception):  # it may have failed before
                writer.close()
            sink.close()
        self._location.remove(self._paths)

    def _end(self, *, partition_ends: bool) -> None:
        while True:
            written = self._open[0].tell() if self._open is not None else 0
            match roll(self._sizes, self._rows, self._size, written, partition_ends=partition_ends):
                case Roll.GROUP:
                    self._end_group()
                case Roll.FILE:
                    self._end_file()
                case Roll.NOTHING:
                    return

    @property
    def buffered(self) -> int:
        """The bytes of rows that are not in a row group yet."""
        return self._size

    @property
    def has_open_file(self) -> bool:
        return self._open is not None

    def end_group(self) -> None:
        """Write the rows in memory as a row group."""
        self._end_group()

    def end_file(self) -> None:
        """The next rows begin a file."""
        self._end_file()

    def _end_group(self) -> None:
        if not self._buffer:
            return
        rows = pa.Table.from_batches(self._buffer)
        if self._open is None:
            self._open = self._create(rows.schema)
        self._open[1].write_table(rows, row_group_size=rows.num_rows)
        self._buffer, self._rows, self._size = [], 0, 0

    def _end_file(self) -> None:
        self._end_group()
        if self._open is None:
            return
        sink, writer, footers = self._open
        writer.close()
        size = sink.tell()
        sink.close()
        self._open = None
        self._files.append(described_file(self._paths[-1], size, footers[0], self._values))

    def _create(self, schema: pa.Schema) -> tuple[Any, pq.ParquetWriter, list[pq.FileMetaData]]:
        path = f"{self._folder}part-{len(self._paths):05d}-{self._name}.{COMPRESSION}.parquet"
        self._paths.append(path)
        if schema not in self.schemas:
            self.schemas.append(schema)
        sink = self._location.create(path)
        footers: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression=COMPRESSION,
            compression_level=LEVEL,
            use_dictionary=_with_dictionary(schema),
            column_encoding=_encodings(schema),
            write_statistics=_with_statistics(schema),
            metadata_collector=footers,
            store_schema=False,
        )
        return sink, writer, footers


def _encodings(schema: pa.Schema) -> dict[str, str]:
    lengths = {field.name: "DELTA_LENGTH_BYTE_ARRAY" for field in schema if pa.types.is_binary(field.type)}
    return lengths | {name: "DELTA_BINARY_PACKED" for name in _DIFFERENCES if name in schema.names}


def _with_dictionary(schema: pa.Schema) -> list[str]:
    """The columns whose values repeat. Parquet gives a dictionary up by itself where they do not."""
    encoded = _encodings(schema)
    return [path for field in schema if field.name not in encoded for path in _leaves(field)]


def _with_statistics(schema: pa.Schema) -> list[str]:
    """All columns but bytes, whose bounds nobody searches by."""
    return [path for field in schema if not pa.types.is_binary(field.type) for path in _leaves(field)]


def _leaves(field: pa.Field, prefix: str = "") -> Iterable[str]:
    """The paths of a field's columns in Parquet."""
    path = f"{prefix}{field.name}"
    kind = field.type
    if pa.types.is_struct(kind):
        for inner in kind:
            yield from _leaves(inner, f"{path}.")
    elif pa.types.is_list(kind):
        yield from _leaves(pa.field("element", kind.value_type), f"{path}.list.")
    elif pa.types.is_map(kind):
        yield from _leaves(pa.field("key", kind.key_type), f"{path}.key_value.")
        yield from _leaves(pa.field("value", kind.item_type), f"{path}.key_value.")
    else:
        yield path
