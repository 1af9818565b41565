"""Answers of brokers as plain values that two brokers can be compared by.

    producer_id=4711      becomes  "producer 1"     the first producer id that this broker gave in this scenario
    member_id="c-5e2f…"   becomes  "c-uuid 1"       so equal ids stay equal, and different ids stay different
    port, session_id, topic_id, cluster_id          likewise; -1, 0, "" and the zero UUID stay what they are
    log_append_time_ms    becomes  "now"            if it is a time of today; other times stay what they are
    error_code=3          becomes  "UNKNOWN_TOPIC_OR_PARTITION"
    error_message         becomes  "text"           unless it is empty or null: no client acts on the wording
    records               becomes  one struct per batch, with its header's fields and its records

Lists keep their order, unless Apache Kafka's own order is that of a hash map (`UNORDERED`).
"""

import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.codec import schema
from headrace.protocol.codec.message import Message
from headrace.records.format2.batch import decode_records, iter_headers

Plain = Any  # dict, list, str, int, bool, None

IDS = {
    "producer_id": "producer",
    "ongoing_txn_producer_id": "producer",
    "topic_id": "topic",
    "cluster_id": "cluster",
    "port": "port",
    "session_id": "session",
}
TIMES = frozenset(
    ("log_append_time_ms", "timestamp", "transaction_start_time_ms", "last_timestamp", "first_timestamp", "time")
)
TEXTS = frozenset(("error_message", "batch_index_error_message", "documentation"))
CODES = frozenset(("error_code", "partition_error_code", "topic_config_error_code"))
UNCOMPARED = frozenset(("throttle_time_ms", "finalized_features_epoch"))
UNORDERED: Mapping[str, tuple[str, ...]] = {
    # list field: what its elements are sorted by
    "topics": ("name", "topic", "topic_name"),
    "responses": ("name", "topic", "resource_name"),
    "topic_results": ("name",),
    "results_by_topic_v3_and_below": ("name",),
    "results_by_transaction": ("transactional_id",),
    "results_by_partition": ("partition_index",),
    "partition_responses": ("index",),
    "partitions": ("partition_index", "partition"),
    "transaction_states": ("transactional_id",),
    "active_producers": ("last_sequence", "producer_epoch"),
    "groups": ("group_id",),
    "subscribed_topic_names": (),
    "members": ("member_id",),
    "configs": ("name",),
    "entity": ("entity_type",),
    "values": ("key",),
    "results": ("resource_name", "name", "group_id", "user"),
    "api_keys": ("api_key",),
    "active_tasks": ("subtopology_id",),
    "standby_tasks": ("subtopology_id",),
    "active_partitions": ("topic",),
    "standby_partitions": ("topic",),
    "topic_configs": ("key",),
    "supported_features": ("name",),
    "finalized_features": ("name",),
}
UUID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[A-Za-z0-9_-]{22}\b(?==)")
DAY_MS = 86_400_000


class Tokens:
    """The ids that one broker gave in one scenario, numbered as they appear."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, Any], str] = {}

    def of(self, kind: str, value: Any) -> str:
        """The token of an id."""
        return self.seen.setdefault((kind, value), f"{kind} {1 + sum(each == kind for each, _ in self.seen)}")

    def in_text(self, text: str) -> str:
        """A text with tokens for the UUIDs in it."""
        return UUID_PATTERN.sub(lambda found: self.of("uuid", found[0]), text)


def plain(message: Message, version: int, tokens: Tokens) -> Plain:
    """An answer as plain values, without the fields that this version lacks."""
    definition = _definition(type(message).__name__)
    return _struct(message, "", definition, version, tokens)


@cache
def _definition(name: str) -> schema.MessageSchema:
    return schema.load(name)


def _struct(value: Any, name: str, definition: schema.MessageSchema, version: int, tokens: Tokens) -> Plain:
    found = {}
    for field in definition.structs[name]:
        if version not in field.versions or field.name in UNCOMPARED:
            continue
        item = getattr(value, field.name)
        if field.is_struct:

            def convert(each: Any, of: str = field.type) -> Plain:
                return _struct(each, of, definition, version, tokens)
        else:

            def convert(each: Any, of: str = field.name) -> Plain:
                return _scalar(each, of, tokens)

        found[field.name] = _list(item, field.name, convert) if field.is_array and item is not None else None
        if not field.is_array:
            found[field.name] = None if item is None else convert(item)
    return found


def _list(items: list[Any], name: str, convert: Callable[[Any], Plain]) -> Plain:
    first = items[0] if items else None
    if isinstance(first, int | str) and name in UNORDERED:
        items = sorted(items)
    elif present := [key for key in UNORDERED.get(name, ()) if hasattr(first, key)]:
        items = sorted(items, key=lambda each: (getattr(each, present[0]) is not None, getattr(each, present[0])))
    converted = [convert(each) for each in items]
    # Of a heartbeat's topics only the ids are there, which differ: their order is that of the tokens.
    return sorted(converted, key=str) if name == "topic_partitions" else converted


def _scalar(value: Any, name: str, tokens: Tokens) -> Plain:
    if name in IDS:
        none = value in (-1, 0, "") if name != "producer_id" else value == -1
        return value if none or value == bytes(16) else tokens.of(IDS[name], value)
    if name in CODES:
        return ErrorCode(value).name
    if name in TEXTS:
        return "text" if value else None
    if name in TIMES and abs(value - time.time() * 1000) < DAY_MS:
        return "now"
    if isinstance(value, str):
        return tokens.in_text(value)
    if name == "records":
        return _batches(bytes(value), tokens)
    return value.hex() if isinstance(value, bytes | memoryview) else value


def _batches(records: bytes, tokens: Tokens) -> Plain:
    """Whole batches of format 2; older messages as bytes."""
    if len(records) > 16 and records[16] < 2:
        return records.hex()
    found = []
    try:
        for position, header in iter_headers(records):
            data = records[position : position + header.size_bytes]
            producer = header.producer_id
            found.append(
                {
                    "base_offset": header.base_offset,
                    "attributes": header.attributes,
                    "leader_epoch": header.leader_epoch,
                    "producer_id": producer if producer == -1 else tokens.of("producer", producer),
                    "producer_epoch": header.producer_epoch,
                    "base_sequence": header.base_sequence,
                    "records": [
                        {
                            "offset": each.offset,
                            "key": each.key and each.key.hex(),
                            "value": each.value and each.value.hex(),
                        }
                        for each in decode_records(data, header)
                    ],
                }
            )
    except KafkaError as error:
        found.append({"malformed": error.code.name})
    return found
