"""Commits a stream's progress as the offsets of a consumer group, and measures its lag.

    kafka.group.id = G on the stream ─▶ after each batch the offsets of group G are where the query is

so that `headrace group describe G`, lag exporters and dashboards see it. Only the checkpoint decides where the query
continues; nothing is read back from the group.

Spark tells a source that a batch is done only when it plans the next one, so the last batch of a query (the only one of
an AvailableNow query of one batch) would never be committed. There are two solutions, and `session()` uses the first:

    watch_progress(spark)     a listener that commits after every batch of every query of the session
    commit_progress(query)    once, also when the query has ended

Both find the options of a query's sources in its plan. With Spark Connect the client has no plan, so they take the
options: `watch_progress(spark, OPTIONS, …)`, `commit_progress(query, OPTIONS, …)`, with the mapping that was given to
each source. An offset belongs to the options that select its partition.

The connector commits to no group at all; its metrics of the same name are those of `offsets_behind_latest`.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from headrace.client.core.cluster import Cluster
from headrace.client.operations.group_admin import GroupAdmin
from headrace.errors import KafkaError
from headrace.spark.source.cluster_access import client_settings
from headrace.spark.source.offsets import offsets_of_json
from headrace.spark.source.options import SourceOptions, parse_options, selects
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "headrace"
_log = logging.getLogger(__name__)
GroupOffsets = dict[str, dict[TopicPartition, int]]


def commit_offsets(options: SourceOptions, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the offsets of the group in `options`, if there is one. Raises KafkaError if the group refuses."""
    if options.group_id is None or not offsets:
        return
    with Cluster(options.bootstrap_servers, client_settings(options.client_settings)) as cluster:
        GroupAdmin(cluster).commit(options.group_id, offsets)


def commit_progress(query: "StreamingQuery", *sources: Mapping[str, str]) -> GroupOffsets:
    """Commit the end of the query's last finished batch; returns the committed offsets by group.

    `sources` are the options of the query's sources, which Spark Connect needs. Skips sources that are not headrace's
    or have no kafka.group.id. Raises KafkaError if a group refuses.
    """
    progress = query.lastProgress
    if sources:
        return {} if progress is None else _commit_selected(sources, progress)
    if not hasattr(query, "_jsq"):
        raise ValueError("with Spark Connect the plan is not here: call commit_progress(query, OPTIONS of the source)")
    return {} if progress is None else _commit(_java_query(query), progress)


def watch_progress(spark: "SparkSession", *sources: Mapping[str, str]) -> None:
    """Commit after every batch of every query that starts from now on; one call for a session is enough.

    `sources` are the options of the queries' sources, which Spark Connect needs.
    """
    if not sources and not hasattr(spark, "_jsparkSession"):
        raise ValueError("with Spark Connect the plans are not here: call watch_progress(spark, OPTIONS of the source)")
    if spark not in _watched:
        _watched[spark] = listener = _SelectedListener(sources) if sources else _ProgressListener(spark)
        spark.streams.addListener(listener)


class Behind(NamedTuple):
    """The number of offsets that a query is behind the ends of its partitions."""

    avg: float
    max: int
    min: int


def offsets_behind_latest(source: SourceProgress) -> Behind | None:
    """The connector's avg-, max- and minOffsetsBehindLatest; None before the first batch.

    `source` is one of `query.lastProgress.sources`.
    """
    ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    behind = [max(latest[partition] - end, 0) for partition, end in ends.items() if partition in latest]
    return Behind(sum(behind) / len(behind), max(behind), min(behind)) if behind else None


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    parsed = json.loads(text) if text and text != "null" else None
    return offsets_of_json(parsed) if parsed else {}


class _ProgressListener(StreamingQueryListener):
    """Keeps each running query's Java object, because Spark no longer returns a query that has ended."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._queries: dict[str, Any] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self._spark.streams.get(str(event.id))
        if query is not None:
            self._queries[str(event.runId)] = _java_query(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        query = self._queries.get(str(event.progress.runId))
        if query is None or event.progress.batchId < 0:
            return
        try:
            _commit(query, event.progress)
        except KafkaError as failed:
            _log.warning("the progress of query %s could not be committed: %s", event.progress.id, failed)

    def onQueryIdle(self, event: object) -> None:
        """Nothing new to commit."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._queries.pop(str(event.runId), None)


class _SelectedListener(StreamingQueryListener):
    """Commits for sources with known options."""

    def __init__(self, sources: Sequence[Mapping[str, str]]) -> None:
        self._sources = sources

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to commit yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.batchId < 0:
            return
        try:
            _commit_selected(self._sources, event.progress)
        except KafkaError as failed:
            _log.warning("the progress of query %s could not be committed: %s", event.progress.id, failed)

    def onQueryIdle(self, event: object) -> None:
        """Nothing new to commit."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """All batches were committed."""


_watched: WeakKeyDictionary["SparkSession", StreamingQueryListener] = WeakKeyDictionary()


def _commit_selected(sources: Iterable[Mapping[str, str]], progress: StreamingQueryProgress) -> GroupOffsets:
    committed: GroupOffsets = {}
    for options in (parse_options(given, streaming=True) for given in sources):
        offsets = {
            partition: offset
            for source in progress.sources
            for partition, offset in _offsets_if_ours(source.endOffset).items()
            if selects(options.selection, partition)
        }
        if options.group_id is not None and offsets:
            commit_offsets(options, offsets)
            committed.setdefault(options.group_id, {}).update(offsets)
    return committed


def _offsets_if_ours(text: str | None) -> dict[TopicPartition, int]:
    """The offsets; nothing if another kind of source wrote them."""
    try:
        return _offsets(text)
    except (ValueError, TypeError, AttributeError):
        return {}


def _commit(java_query: Any, progress: StreamingQueryProgress) -> GroupOffsets:
    ends = {source.description: _offsets(source.endOffset) for source in progress.sources}
    committed: GroupOffsets = {}
    for description, given in _headrace_sources(java_query):
        options = parse_options(given, streaming=True)
        offsets = ends.get(description)
        if options.group_id is not None and offsets:
            commit_offsets(options, offsets)
            committed.setdefault(options.group_id, {}).update(offsets)
    return committed


def _java_query(query: "StreamingQuery") -> Any:
    return query._jsq.streamingQuery()


def _headrace_sources(java_query: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """(description in the progress, options) of each headrace source in the running plan."""
    leaves = java_query.logicalPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName().startswith("StreamingDataSourceV2") and _is_ours(leaf.relation()):
            given = leaf.relation().options().asCaseSensitiveMap()
            yield leaf.stream().toString(), {str(name): str(given[name]) for name in given}


def _is_ours(relation: Any) -> bool:
    return str(relation.table().name()) == FORMAT
