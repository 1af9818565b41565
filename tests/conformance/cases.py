"""The cases of the grid by the column they fill, and the decorator that makes a test one of them.

@case("by key")                               a cell for each client that has no gap there
@case(*CODECS) def test_x(client, codec)      a cell for each client and codec
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.clients import CLIENTS
from tests.conformance.model import (
    CLASSIC_STREAMS,
    CODECS,
    MTLS,
    NEW_GROUP,
    NEW_REGEX,
    NEW_STATIC,
    NEW_TRANSFORM,
    SASL_MECHANISMS,
    SHARE,
    SHARE_AGAIN,
    STREAMS,
    TLS,
    Client,
)

CASES = {
    "create": "creates a topic, writes, reads back",
    "nulls": "null keys, null values, empty ones",
    "headers": "headers: repeated, empty, any bytes",
    **{codec: f"codec {codec}: stored as that, read back equal" for codec in CODECS},
    "read by all": "what it wrote, in all its codecs, every other client reads equal",
    "by key": "its keys lie where Java's partitioner puts them",
    "idempotent": "idempotent producer",
    "acks=0": "acks=0",
    "large": "a record just below the limit",
    "too large": "a record above it: the typed error",
    "offset": "reads from an offset",
    "time": "reads from a time",
    "end": "reads only what is new",
    "list offsets": "lists offsets: first, end, by time",
    "group": "group: two members share, one leaves, a third resumes",
    "cooperative": "group, cooperative-sticky: what stays is never taken away",
    "static": "group: a static member returns to what it had",
    NEW_GROUP: "group by KIP-848: two members share, one leaves, a third resumes",
    NEW_STATIC: "group by KIP-848: a static member returns to what it had",
    NEW_REGEX: "group by KIP-848: subscribes by a regular expression that the broker evaluates",
    SHARE: "share group: gets each record of a topic, and accepts it",
    SHARE_AGAIN: "share group: what it releases comes again, what it rejects does not",
    STREAMS: "Kafka Streams counts words in a group of the streams protocol",
    CLASSIC_STREAMS: "Kafka Streams counts words in a classic group",
    "commit": "transaction: commits, and a read_committed reader gets all",
    "abort": "transaction: aborts, and a read_committed reader gets nothing",
    "transform": "transaction: consumes, transforms, produces, with the offsets in the transaction",
    NEW_TRANSFORM: "transaction: the same as a member of a group by KIP-848",
    "fence": "transaction: a second producer with the same id fences the first",
    "settings": "describes a topic's settings",
    "alter": "alters a topic's settings",
    "partitions": "adds partitions",
    "delete records": "deletes records",
    "delete topic": "deletes a topic",
    "groups": "lists and describes groups",
    "delete group": "deletes a group; not one that has members",
    TLS: "writes and reads over TLS",
    MTLS: "writes and reads over TLS with a certificate of its own",
    **{each: f"writes and reads over TLS, authenticated by {each}" for each in SASL_MECHANISMS},
}
"""Column of the printed grid: line of README's table."""

NEED_ALL = {"read by all"}
"""Other clients than the one under test take part."""

ONE_WORKER = pytest.mark.xdist_group("conformance")  # so that each program starts once
Test = Callable[..., None]


def case(*columns: str, slow: bool = False) -> Callable[[Test], Test]:
    """Makes a test of a client a case of the grid."""

    def marks(client: Client) -> list[pytest.MarkDecorator]:
        if client.is_program or NEED_ALL.intersection(columns):
            return [pytest.mark.slow, pytest.mark.peer, ONE_WORKER]
        return [pytest.mark.slow] if slow else []

    def name(client: Client, column: str) -> str:
        return "-".join((client.name, *([column] if len(columns) > 1 else []))).replace(" ", "-")

    cells: list[Any] = [
        pytest.param((client, column), id=name(client, column), marks=marks(client))
        for client in CLIENTS
        for column in columns
        if column not in client.gaps
    ]
    return pytest.mark.parametrize("cell", cells, indirect=True)
