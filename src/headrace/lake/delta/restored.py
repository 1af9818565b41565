"""The progress of a job in a table that somebody restored to an older version.

    version   3   4   5   6 RESTORE to 4   7
    loads     a   b   c                    d
    rows      a   ab  abc ab               abd
    txn       a   b   c   c                c+d     what Delta keeps: a RESTORE does not set transactions back

So the transactions of version 6 say that the rows of load c are there, which are not. The rows are those of version 4,
and so is the progress. Each load stores its own version as a transaction, so only commits after it can be such a
RESTORE: usually there are none, or some of OPTIMIZE. The next load sets the transactions back, also those of partitions
that it does not load itself; -1 says that nothing of a partition was loaded.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.lake.delta.unsupported import UnsupportedTableError
from headrace.types import TopicPartition

JOB_KEY: Final = "headrace.job"
OFFSETS_KEY: Final = "headrace.offsets"
NOTHING_LOADED: Final = -1
_ADVICE: Final = "load into a new table, or with another --job from a point in time (--from-time)"
_Commit = dict[str, Any]


class Surviving(NamedTuple):
    """The snapshot with the progress of a table's rows, and the partitions whose newer transactions are not true."""

    table: DeltaTable
    undone: frozenset[TopicPartition] = frozenset()


def surviving_progress(
    table: DeltaTable, job: str, version_id: str, storage_options: dict[str, str] | None = None
) -> Surviving:
    """The snapshot with the progress of the rows in `table`: itself, or the one that it was restored to.

    `version_id` is the transaction with the version of the job's last load. Raises UnsupportedTableError if that
    snapshot cannot be found.
    """
    newest, undone = table, set[TopicPartition]()
    while (loaded := table.transaction_version(version_id)) is not None:
        later = _commits(newest, loaded, table.version())
        restore = next((commit for commit in later if commit.get("operation") == "RESTORE"), None)
        if restore is None:
            break
        restored = _restored_to(table, restore, storage_options)
        for commit in _commits(newest, restored.version(), table.version()):
            undone.update(_partitions_loaded(commit, job))
        table = restored
    return Surviving(table, frozenset(undone))


def _commits(newest: DeltaTable, version: int, last: int) -> Sequence[_Commit]:
    """The commits after a version up to the last one, newest first. A history always begins with the newest commit."""
    if last <= version:
        return ()
    for limit in (newest.version() - version, None):  # the second one if others commit meanwhile
        commits = [commit for commit in newest.history(limit) if version < commit["version"] <= last]
        if len(commits) == last - version:
            return commits
    raise UnsupportedTableError(
        f"the history of {newest.table_uri} no longer has all commits after version {version}, so it cannot be known "
        f"whether the rows that were loaded up to there are still in the table: {_ADVICE}"
    )


def _partitions_loaded(commit: _Commit, job: str) -> Iterator[TopicPartition]:
    if commit.get(JOB_KEY) == job:
        for topic, partitions in json.loads(commit[OFFSETS_KEY]).items():
            yield from (TopicPartition(topic, int(partition)) for partition in partitions)


def _restored_to(table: DeltaTable, restore: _Commit, storage_options: dict[str, str] | None) -> DeltaTable:
    target = str(restore.get("operationParameters", {}).get("version") or "")
    where = f"version {restore['version']} of {table.table_uri} is a RESTORE"
    if not target.isdecimal():
        raise UnsupportedTableError(
            f"{where} to a time, from which the progress of loads cannot be known: restore to a version, or {_ADVICE}"
        )
    try:
        return DeltaTable(table.table_uri, version=int(target), storage_options=storage_options)
    except DeltaError as gone:
        raise UnsupportedTableError(f"{where} to version {target}, which cannot be read any more: {_ADVICE}") from gone
