"""Reads a bounded range of a topic as a table: the last minutes, offsets, or everything up to now."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow
import pyarrow.compute

from headrace.client.consumer.arrow import arrow_schema, to_record_batch
from headrace.client.consumer.reader import ReadOptions, read_range
from headrace.client.consumer.settings import ISOLATION
from headrace.client.core.record_times import checked_ms
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.tables.record_table import PLACE, RecordTable, Values
from headrace.errors import InvalidConfig, UnknownTopicOrPartition
from headrace.types import TopicPartition

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def table(
    bootstrap: str | Sequence[str] | Mapping[str, object],
    topic: str,
    *,
    last: str | timedelta | None = None,
    since: datetime | int | None = None,
    offsets: Mapping[int, tuple[int, int]] | None = None,
    value: Values = "bytes",
    key: str = "bytes",
    names: Sequence[str] = PLACE,
    isolation_level: str = "read_committed",
    settings: ClientSettings | None = None,
    **options: Any,
) -> RecordTable:
    """The records of a topic, up to the end that it has now, as a table; each partition in its order.

    `last` is a duration: "10m", "1h30m", "2d". `since` is a time, in milliseconds if it is a number; one without a zone
    is local. Both are compared with the records' timestamps. `offsets` has for each partition the first offset and the
    end, exclusive. Without any of them everything is read, which must fit into memory.

    `value` is bytes, string, json, an Arrow schema of JSON values, or a decoder; see `RecordTable`. `options` are those
    of every client. Raises UnknownTopicOrPartition, InvalidConfig, OffsetOutOfRange, and other KafkaErrors.
    """
    if sum(each is not None for each in (last, since, offsets)) > 1:
        raise InvalidConfig("last, since and offsets exclude each other: give one of them")
    if isolation_level not in ISOLATION:
        raise InvalidConfig(f"isolation_level={isolation_level!r}: expected {' or '.join(ISOLATION)}")
    from_ms = _from_ms(last, since)
    wanted = (*names, "key", "value")
    level = ISOLATION[isolation_level]
    how = ReadOptions(isolation_level=level, headers="headers" in wanted)
    with Admin(bootstrap, settings, **options) as admin:
        ranges = _ranges(admin, topic, from_ms, offsets, level)
        batches = [
            to_record_batch(columns, *partition, wanted if "timestamp" in wanted else (*wanted, "timestamp"))
            for partition, (start, end) in sorted(ranges.items())
            if start < end
            for columns in read_range(admin.cluster, partition, start, end, how)
        ]
    found = pyarrow.Table.from_batches(batches) if batches else arrow_schema(wanted).empty_table()
    if from_ms is not None and batches:
        first = pyarrow.scalar(from_ms * 1_000, pyarrow.int64()).cast(found["timestamp"].type)
        found = found.filter(pyarrow.compute.greater_equal(found["timestamp"], first))
    return RecordTable.shaped(found.select(list(wanted)), value, key)


def duration_ms(text: str | timedelta) -> int:
    """A duration in milliseconds, as "1h30m". Raises InvalidConfig."""
    if isinstance(text, timedelta):
        return int(text.total_seconds() * 1_000)
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise InvalidConfig(f"last={text!r}: expected a duration such as 10m, 1h30m or 2d")
    return int(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def _from_ms(last: str | timedelta | None, since: datetime | int | None) -> int | None:
    if last is not None:
        return max(0, int(time.time() * 1_000) - duration_ms(last))
    return (
        int(since.timestamp() * 1_000) if isinstance(since, datetime) else None if since is None else checked_ms(since)
    )


def _ranges(
    admin: Admin, topic: str, from_ms: int | None, offsets: Mapping[int, tuple[int, int]] | None, level: int
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the end of each partition to read."""
    partitions = [TopicPartition(topic, each.partition) for each in admin.describe_topic(topic).partitions]
    if offsets is not None:
        unknown = sorted(offsets.keys() - {each.partition for each in partitions})
        if unknown:
            raise UnknownTopicOrPartition(f"{topic} has no partition {unknown[0]}: it has {len(partitions)}")
        return {TopicPartition(topic, partition): places for partition, places in offsets.items()}
    ranges: dict[TopicPartition, tuple[int, int]] = dict(admin.watermarks(partitions, isolation_level=level))
    if from_ms is None:
        return ranges
    first = admin.list_offsets(dict.fromkeys(partitions, from_ms), isolation_level=level)
    return {
        partition: (place.offset if place.offset >= 0 else ranges[partition][1], ranges[partition][1])
        for partition, place in first.items()
    }
