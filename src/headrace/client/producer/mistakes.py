"""Says what is wrong with a record that cannot be sent, and what to give instead. Pure.

`send` pays nothing for it: these run when a record was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.core.record_times import shown
from headrace.errors import ErrorCode, InvalidRecord

ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, or lower batch_size if these are many records",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the broker's limit or lower batch_size",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client is not authorized to write to the topic",
    ErrorCode.INVALID_TIMESTAMP: "the topic's message.timestamp limits refuse the record's timestamp",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer has its transactional_id, or the transaction timed out",
    ErrorCode.INVALID_RECORD: "a compacted topic accepts only records with keys",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
}
"""What to do about a batch that a broker refused."""


def refusal(topic: Any, value: Any, key: Any, partition: Any, headers: Any, cause: Exception) -> InvalidRecord:
    """The error of a record that could not be encoded: the first argument that no record can hold, with its place."""
    said = _topic_text(topic) or _bytes_text("key", key) or _bytes_text("value", value)
    if not said and partition is not None and not isinstance(partition, int):
        said = f"partition={shown(partition)} is a {_type(partition)}: give its number"
    said = said or _headers_text(headers) or f"the record cannot be encoded: {cause}"
    return InvalidRecord(said if not isinstance(topic, str) else f"{topic}: {said}")


def column_refusal(name: str, values: Any, cause: Exception) -> InvalidRecord:
    """The error of a column: its first value that no record can hold."""
    for row, value in enumerate(values):
        said = _bytes_text(f"{name}[{row}]", value)
        if said:
            return InvalidRecord(said)
    return InvalidRecord(f"{name} cannot be encoded: {cause}")


def no_column(name: str, given: Any) -> InvalidRecord:
    """The error of one value, or another object, where many values are expected."""
    return InvalidRecord(
        f"{name}={shown(given)} is a {_type(given)}: give a list of bytes or None, a pyarrow array, or one column of a "
        "data frame"
    )


def _topic_text(topic: Any) -> str:
    if isinstance(topic, str):
        return ""
    hint = "; give topic.decode()" if isinstance(topic, bytes) else ""
    return f"topic={shown(topic)} is a {_type(topic)}: a topic's name is text{hint}"


def _bytes_text(name: str, value: Any) -> str:
    if value is None or _is_bytes(value):
        return ""
    if isinstance(value, str):
        hint = f"{name}.encode()"
    elif isinstance(value, Mapping | list | tuple):
        hint = f"json.dumps({name}).encode()"
    else:
        hint = f"str({name}).encode()"
    return f"{name}={shown(value)} is a {_type(value)}, and records hold bytes: give {hint}"


def _headers_text(headers: Any) -> str:
    form = "headers are pairs of a name and bytes, as [('name', b'value')], or a dict of these"
    try:
        pairs = [(name, content) for name, content in headers]
    except (TypeError, ValueError):
        return f"headers={shown(headers)}: {form}"
    for name, content in pairs:
        if not isinstance(name, str):
            return f"the header name {shown(name)} is a {_type(name)}: {form}"
        if content is not None and not _is_bytes(content):
            return _bytes_text("value", content).replace("value=", f"header {name}=", 1)
    return ""


def _is_bytes(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _type(value: Any) -> str:
    return type(value).__name__
