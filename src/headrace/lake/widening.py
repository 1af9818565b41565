"""A column of whole numbers made one of other numbers, by writing the table's files again in one commit.

    integer ─▶ long ─▶ double        integer, float ─▶ double

Delta itself allows few of these without new files, and asks readers for a feature then that most do not have. So all
files are written anew, with the same rows, and readers of older versions of the table are not disturbed. It takes as
long as to read the table and to write it, so writers do it for small tables only. A whole number that no double has
exactly prevents it.
"""

import json
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from headrace.lake.core.roll import Sizes
from headrace.lake.delta.delta_table import LiveFile, LoadTable, LostRaceError, SchemaChangedError, WrittenFile
from headrace.lake.delta.fit import widest
from headrace.lake.partitioning import folder_of
from headrace.lake.round_files import RoundFiles
from headrace.lake.rows import check_readable, fitted

WIDEN_BYTES: Final = 1 << 30
_ONE_FILE: Final = Sizes(file_bytes=1 << 62)


def widen(table: LoadTable, schema_json: str, bytes_max: int = WIDEN_BYTES) -> None:
    """Give columns the wider types of this schema. The snapshot is an older one then.

    Raises LostRaceError after another commit, and SchemaChangedError if the table is larger than `bytes_max`, or has a
    number that would be another one. The table is as it was then.
    """
    check_readable(table)
    if table.size > bytes_max:
        raise SchemaChangedError(
            f"the table {table.location} has {table.size} bytes, more than {bytes_max}, and would be written anew for "
            f"another type of a column: allow more, or write to a new table"
        )
    wider = widest(json.loads(table.schema_json), json.loads(schema_json))
    schema = pa.schema(Schema.from_json(json.dumps(wider)).to_arrow())
    written: list[RoundFiles] = []
    try:
        files = [new for one in table.live_files for new in _rewritten(table, one, schema, written)]
        table.replace_all(files, json.dumps(wider))
    except pa.ArrowInvalid as inexact:
        _discard(written)
        raise SchemaChangedError(f"a column of {table.location} cannot have another type: {inexact}") from None
    except LostRaceError:
        if table.location.directory is not None:  # a store may have taken a commit whose answer was lost
            _discard(written)
        raise
    except BaseException:
        _discard(written)
        raise


def _rewritten(table: LoadTable, one: LiveFile, schema: pa.Schema, written: list[RoundFiles]) -> list[WrittenFile]:
    folder = "".join(folder_of(*each) for each in one.values.items())
    target = RoundFiles(table.location, _ONE_FILE, folder, one.values)
    written.append(target)
    with table.location.open(one.path) as source:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        own = pa.schema([field for field in schema if field.name in file.schema_arrow.names])
        for batch in file.iter_batches():
            target.add(fitted(batch, own))
    return target.finish()


def _discard(written: list[RoundFiles]) -> None:
    for target in written:
        target.discard()
