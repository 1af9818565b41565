"""The table of dead letters: the rows of a load whose value is not whole in the columns, instead of the load's table.

It has the columns of the load's table, so a row has what fits of its value, and all of it in `corrupt_value`. Both
tables are written in one pass, and committed one after the other, the dead letters first:

    dead letters   rows and progress of [a, b)      1
    table          rows and progress of [a, b)      2      killed in between: the next load begins at a again

So the dead letters' progress is never behind the table's, and a load writes only such dead letters as lie behind it:
each row is in one of the two tables, once.
"""

import shutil
import uuid
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.lake.delta.delta_table import LoadTable, LostRaceError, collect_files
from headrace.spark.load.json_values import CORRUPT_COLUMN
from headrace.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column

DEAD_FOLDER: Final = "headrace_dead"


class DeadLetterSnapshot:
    """One snapshot of the table."""

    def __init__(self, table: LoadTable, directory: Path) -> None:
        self._table, self._directory = table, directory

    @classmethod
    def open(cls, directory: Path, schema_json: str) -> "DeadLetterSnapshot":
        """The table, which is made if there is none. Raises SchemaChangedError, and LostRaceError."""
        table = LoadTable.open(directory)
        if table is None:
            table = LoadTable.create(directory, schema_json)
        if table.add_columns(schema_json):
            table = LoadTable.open(directory) or table
        table.check_schema(schema_json)
        return cls(table, directory)

    def new_in(self, job: str, ranges: Sequence[OffsetRange]) -> "Column":
        """Of a row: true for a dead letter, false for others, and null for a dead letter that is there already."""
        from pyspark.sql import functions as F

        is_dead = F.col(CORRUPT_COLUMN).isNotNull()
        known = []
        for one in ranges:
            end = self._table.next_offset(job, TopicPartition(one.topic, one.partition))
            if end is not None and end > one.start:
                place = (F.col("topic") == one.topic) & (F.col("partition") == one.partition)
                known.append(place & (F.col("offset") < end))
        if not known:
            return is_dead
        return F.when(~(is_dead & reduce(or_, known)), is_dead)

    def commit(self, job: str, ranges: Sequence[OffsetRange], written: Path) -> int:
        """Take the dead letters out of what a load has written, and commit them; returns how many. Raises
        LostRaceError."""
        found = written / f"{DEAD_FOLDER}=true"
        folder = self._directory / f"load-{uuid.uuid4().hex[:12]}"
        folder.mkdir()
        if found.exists():
            for number, path in enumerate(sorted(found.rglob("*.parquet"))):
                shutil.move(path, folder / f"{number:05d}-{path.name}")  # files of partitions may have the same name
            shutil.rmtree(found)
        ends = {one: self._table.next_offset(job, TopicPartition(one.topic, one.partition)) for one in ranges}
        behind = [one for one, end in ends.items() if end is None or end < one.end]
        files = collect_files(self._directory, folder)
        if not files:
            folder.rmdir()
        if not behind:
            return 0
        try:
            self._table.commit(job, behind, files)
        except LostRaceError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return sum(file.rows for file in files)
