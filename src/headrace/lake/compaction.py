"""Small files of a table made larger ones, with the same rows, in one commit.

    small files with the same columns ─▶ bins of COMPACTED_BYTES ─▶ one new file each ─▶ commit: add new, remove old

The commit is the next version of the snapshot that the files were read from, or none. The table library's own
compaction (deltalake 1.6) is not used: of two at the same time it commits both, and each row of the later one is there
twice. Files with other columns than their neighbours, from before a column was added, are compacted among themselves.
Left out: tables with deletion vectors, whose files have rows that do not count.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.core.roll import Sizes
from headrace.lake.delta.delta_table import COMPACTED_BYTES, LiveFile, LoadTable, LostRaceError, WrittenFile
from headrace.lake.partitioning import folder_of
from headrace.lake.round_files import RoundFiles

_ONE_FILE = Sizes(file_bytes=1 << 62)


def compact(table: LoadTable) -> bool:
    """Compacts the files of this snapshot, which is an older one then; False if there is nothing to compact.

    Raises LostRaceError after another commit. The table is as it was then.
    """
    bins = [] if table.has_deletion_vectors else list(_bins(table))
    if not bins:
        return False
    rewritten = [RoundFiles(table.location, _ONE_FILE, _folder(each[0]), each[0].values) for each in bins]
    try:
        new: list[WrittenFile] = []
        for files, target in zip(bins, rewritten, strict=True):
            for one in files:
                for batch in _rows(table, one):
                    target.add(batch)
            new += target.finish()
    except BaseException:
        _discard(rewritten)
        raise
    try:
        table.replace([one for files in bins for one in files], new)
    except LostRaceError:
        if table.location.directory is not None:  # a store may have taken a commit whose answer was lost
            _discard(rewritten)
        raise
    return True


def _discard(rewritten: list[RoundFiles]) -> None:
    for target in rewritten:
        target.discard()


def _bins(table: LoadTable) -> Iterator[list[LiveFile]]:
    """Two or more small files each, in the table's order, with the same columns, of one partition."""
    open_bins: dict[tuple[object, ...], list[LiveFile]] = {}
    for one in table.live_files:
        if one.size >= COMPACTED_BYTES or "://" in one.path:
            continue
        with table.location.open(one.path) as source:
            schema = pq.read_schema(source).remove_metadata()
        kind = (schema, *one.values.values())
        files = open_bins.setdefault(kind, [])
        if sum(each.size for each in files) + one.size > COMPACTED_BYTES:
            if len(files) > 1:
                yield files
            files = open_bins[kind] = []
        files.append(one)
    yield from (files for files in open_bins.values() if len(files) > 1)


def _folder(one: LiveFile) -> str:
    return "".join(folder_of(*each) for each in one.values.items())


def _rows(table: LoadTable, one: LiveFile) -> Iterator[pa.RecordBatch]:
    with table.location.open(one.path) as source:
        for batch in pq.ParquetFile(source).iter_batches():
            yield batch.replace_schema_metadata(None)
