"""Performs the actions of a writer: opens the table, reads the topic, writes files, commits, waits.

    core.writer ─action▶ runner ─▶ topic_log, decoding, round_files, delta ─outcome▶ core.writer

A round reads its slices one after the other, so that it holds one row group and two fetches at a time. It ends early at
`round_bytes`; the rest is the next round's. A broker that cannot be reached, a full disk or a store that is away ends
the round, not the runner, once it has found the log and the table; the files of such a round are removed. Files that a
kill leaves behind are no part of the table, and `vacuum` removes them.
"""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError

from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange
from headrace.lake.core.plan import LogReplacedError, Progress, RoundLimits, Slice
from headrace.lake.core.roll import Sizes
from headrace.lake.core.writer import (
    Action,
    AskBounds,
    Bounded,
    Commit,
    CommitRefused,
    Committed,
    Discard,
    Discarded,
    Gone,
    LakeWriter,
    Opened,
    OpenTable,
    Outcome,
    Wait,
    Waited,
    Write,
    Written,
)
from headrace.lake.decoding import Decoder
from headrace.lake.delta.delta_table import LoadTable, LostRaceError, SchemaChangedError, TableUnreachableError
from headrace.lake.delta.fit import Fit
from headrace.lake.delta.location import Location
from headrace.lake.partitioned_files import PartitionedFiles, RowFiles
from headrace.lake.partitioning import Partitioning
from headrace.lake.round_files import RoundFiles
from headrace.lake.topic_log import TopicLog
from headrace.lake.widening import WIDEN_BYTES, widen
from headrace.types import OffsetRange, TopicPartition

ROUND_BYTES: Final = 1 << 30
_PAUSE_MIN_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0
JOB: Final = "load"
"""The name of the load job's progress by default, so that either may continue the other's table."""


class Round(NamedTuple):
    """What a commit added to the table."""

    version: int
    rows: int
    files: int
    size: int
    slices: tuple[Slice, ...]
    rescued: int

    @property
    def lost(self) -> int:
        """The number of offsets in holes."""
        return sum(one.lost for one in self.slices)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a runner writes. `job` is the name of the progress in the table."""

    location: Location
    job: str = JOB
    partition_by: str | None = None
    """The partitions of a new table. One that is there keeps its own."""
    limits: RoundLimits = field(default_factory=RoundLimits)
    sizes: Sizes = field(default_factory=Sizes)
    round_bytes: int = ROUND_BYTES
    widen_bytes: int = WIDEN_BYTES
    """How large a table may be that is written anew, so that a column gets a wider type of number."""


MakeDecoder = Callable[[pa.Schema | None], Decoder]
"""The decoder for a table with these columns, or for a new table."""


class LakeRunner:
    """One writer of one table; used by one thread."""

    def __init__(
        self,
        settings: RunSettings,
        log: TopicLog,
        make_decoder: MakeDecoder,
        assigned: Callable[[], Collection[TopicPartition]],
        on_round: Callable[[Round], None] = lambda _: None,
        on_trouble: Callable[[Exception], None] = lambda _: None,
        on_action: Callable[[Action], None] = lambda _: None,
    ) -> None:
        """`assigned` tells which partitions are this runner's, and is asked before each round. `on_action` is called
        before each action."""
        self._settings = settings
        self._log = log
        self._make_decoder = make_decoder
        self._assigned = assigned
        self._on_round = on_round
        self._on_trouble = on_trouble
        self._on_action = on_action
        self._table: LoadTable | None = None
        self._decoder: Decoder | None = None
        self._files: RowFiles | None = None
        self._was_tried = False
        self._widens = True
        self._has_begun = False
        self._rounds = 0
        self._topic_id: int | None = None
        self._rescued = 0

    def run(self, end: threading.Event, *, once: bool = False) -> None:
        """Write until `end` is set, or with `once` until the table has all that the topic has now.

        Raises the errors of `core` and of tables, and KafkaError if the topic is gone or the broker refuses. Once
        the log and the table were found, a broker, a disk or a store that refuses for a while is told and waited for.
        """
        pause_s = _PAUSE_MIN_S
        while not end.is_set():
            rounds = self._rounds
            try:
                self._run(end, once)
                return
            except (KafkaError, DeltaError, OSError) as trouble:
                if not self._has_begun or not _passes(trouble):
                    raise
                self._on_trouble(trouble)
            pause_s = _PAUSE_MIN_S if self._rounds > rounds else min(2 * pause_s, _PAUSE_MAX_S)
            end.wait(pause_s)

    def _run(self, end: threading.Event, once: bool) -> None:
        writer = LakeWriter(self._settings.limits)
        if once:
            writer.finish()
        action = writer.begin()
        try:
            while not _may_end(action, once, end.is_set()):
                self._on_action(action)
                outcome = self._perform(action, end)
                action = writer.after(outcome, time.monotonic_ns() // 1_000_000)
        except BaseException:
            if isinstance(action, Commit):  # it may be in the table although it failed
                self._files = None
            self._discard()
            raise

    def _perform(self, action: Action, end: threading.Event) -> Outcome:
        match action:
            case OpenTable():
                return Opened(self._open())
            case AskBounds():
                return Bounded(self._log.bounds(self._assigned()))
            case Wait(ms):
                end.wait(ms / 1000)
                return Waited()
            case Write(slices):
                return self._write(slices, end)
            case Commit(slices):
                return self._commit(slices)
            case Discard():
                self._discard()
                return Discarded()

    # -- the table

    def _open(self) -> Progress:
        """The newest snapshot, of a new table if there is none, and a decoder for its columns."""
        location = self._settings.location
        table = LoadTable.open(location)
        if table is None and self._table is not None:  # a file system that is not mounted: no reason to begin anew
            raise TableUnreachableError(f"the table {location} is not there any more")
        while table is None:
            schema = self._make_decoder(None).schema
            try:
                partition_by = self._settings.partition_by
                partitions = None if partition_by is None else (Partitioning.of(partition_by).column, partition_by)
                table = LoadTable.create(location, _spark_schema(schema), partitions)
            except LostRaceError:
                table = LoadTable.open(location)
        self._table = table
        self._check_topic(table)
        self._check_partitions(table)
        self._has_begun = True
        if self._files is None:
            self._decoder = self._new_decoder(table)
        return self._progress(table)

    def _new_decoder(self, table: LoadTable) -> Decoder:
        decoder = self._make_decoder(table.arrow_schema)
        decoder.widens = self._widens and table.size <= self._settings.widen_bytes
        return decoder

    def _widen(self, table: LoadTable, schema_json: str) -> Outcome:
        """Give columns wider types; the round is decoded again for them, or for the old ones if that cannot be."""
        try:
            widen(table, schema_json, self._settings.widen_bytes)
        except SchemaChangedError:
            if not self._widens:
                raise  # a schema file asks for it
            self._widens = False
        self._table = LoadTable.open(self._settings.location) or table
        return Gone()

    def _check_topic(self, table: LoadTable) -> None:
        """Raises LogReplacedError if the table has rows of a topic of this name that was deleted."""
        known, self._topic_id = table.topic_id(self._settings.job, self._log.topic), self._log.topic_id()
        if known is not None and self._topic_id is not None and known != self._topic_id:
            raise LogReplacedError(
                f"the table {self._settings.location} is of another topic {self._log.topic}, which was deleted and "
                "created again since: write this one to a new table"
            )

    def _check_partitions(self, table: LoadTable) -> None:
        """Raises SchemaChangedError for a table that is divided otherwise."""
        ours, theirs = self._settings.partition_by, table.partition_by
        if ours != theirs:
            raise SchemaChangedError(
                f"the table {self._settings.location} has {_named(theirs)}, not {_named(ours)}: define it so, or write "
                "to a new table"
            )

    def _progress(self, table: LoadTable) -> Progress:
        job = self._settings.job
        return lambda partition: table.next_offset(job, partition)

    def _commit(self, slices: tuple[Slice, ...]) -> Outcome:
        table, files, job = self._table, self._files, self._settings.job
        assert table is not None
        written = files.finish() if files is not None else []
        try:
            for schema in files.schemas if files is not None else ():
                match table.fit(_spark_schema(schema)):
                    case Fit.CLASHES:
                        return Gone()  # others added columns of other types: decode the records again
                    case Fit.WIDENS:
                        return self._widen(table, _spark_schema(schema))
                    case Fit.LACKS_COLUMNS:
                        table.grow(_spark_schema(schema))
                        return CommitRefused()  # by ourselves: the next snapshot has the columns
                    case Fit.FITS:
                        pass
            self._was_tried = True
            topic = None if self._topic_id is None else (self._log.topic, self._topic_id)
            version = table.commit(job, _ranges(slices), written, _holes(slices), topic)
        except LostRaceError:
            return CommitRefused()
        self._files, self._was_tried = None, False
        rescued, self._rescued = self._rescued, 0
        self._rounds += 1
        table.check_supported()
        size, rows = sum(one.size for one in written), sum(one.rows for one in written)
        self._on_round(Round(version, rows, len(written), size, slices, rescued))
        return Committed(self._progress(table))

    # -- the rows

    def _write(self, slices: tuple[Slice, ...], end: threading.Event) -> Outcome:
        assert self._table is not None
        where, sizes, column = self._settings.location, self._settings.sizes, self._table.partition_column
        files = RoundFiles(where, sizes) if column is None else PartitionedFiles(where, sizes, column)
        self._files = files
        left = self._settings.round_bytes
        written: list[Slice] = []
        for index, one in enumerate(slices):
            if end.is_set() and written:
                break
            try:
                done, used = self._write_slice(files, one, left // (len(slices) - index), end)
            except OffsetOutOfRange:
                return Gone()
            files.end_partition()
            left = max(0, left - used)
            written.append(done)
        files.finish()
        if self._log.topic_id() != self._topic_id:  # some of it was read from the topic that was deleted
            raise LogReplacedError(f"topic {self._log.topic} was deleted and created again while it was read")
        return Written(tuple(written))

    def _write_slice(self, files: RowFiles, one: Slice, bytes_max: int, end: threading.Event) -> tuple[Slice, int]:
        """Write a slice, or its beginning: at least one batch of records. Returns what was written, and its bytes."""
        decoder, used = self._decoder, 0
        assert decoder is not None
        for columns in self._log.read(one) if one.size else ():
            rescued = decoder.rescued
            batch = decoder.decode(columns, one.partition)
            self._rescued += decoder.rescued - rescued
            files.add(batch)
            used += batch.nbytes
            if (used >= bytes_max or end.is_set()) and columns.next_offset < one.end:
                return one._replace(end=columns.next_offset), used
        return one, used

    def _discard(self) -> None:
        """Remove the files of the round, and what the decoder has learned from it.

        A store may have taken a commit whose answer was lost, so there nothing is removed that a commit named.
        """
        files, self._files, self._rescued = self._files, None, 0
        was_tried, self._was_tried = self._was_tried, False
        if self._table is not None:
            self._decoder = self._new_decoder(self._table)
        if files is not None and not (was_tried and self._settings.location.directory is None):
            files.discard()


def _named(partition_by: str | None) -> str:
    return "no partitions" if partition_by is None else f"partitions by {partition_by}"


def _spark_schema(schema: pa.Schema) -> str:
    return str(Schema.from_arrow(schema).to_json())


def _ranges(slices: Collection[Slice]) -> list[OffsetRange]:
    return [OffsetRange(*one.partition, one.start, one.end) for one in slices]


def _holes(slices: Collection[Slice]) -> list[OffsetRange]:
    return [OffsetRange(*one.partition, one.start - one.lost, one.start) for one in slices if one.lost]


def _may_end(action: Action, once: bool, is_told: bool) -> bool:
    """Whether a runner may end before an action: nothing is written that is not in the table."""
    return (once and isinstance(action, Wait)) or (is_told and isinstance(action, Wait | AskBounds))


def _passes(trouble: Exception) -> bool:
    """Whether it is worth to try again: the topic is there, and the brokers refuse nothing for good."""
    if not isinstance(trouble, KafkaError):
        return not isinstance(trouble, BrokenPipeError)  # of stdout: nobody is told any more
    return trouble.code.retriable and trouble.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
