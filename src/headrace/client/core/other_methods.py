"""Methods of other clients that have another name here: whoever asks for one is told which.

They are no attributes: `hasattr` is false, and neither editors nor type checkers see them. A client that has them pays
nothing for it, which a `__getattr__` would make every call pay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

C = TypeVar("C", bound=type)

_BEGIN = "it is ready once it is made; use `with`, or close() at the end"
_BOTH = "beginning_offsets and end_offsets say both"

PRODUCER: Mapping[str, str] = {
    "abort_transaction": "it is abort()",
    "begin_transaction": "it is begin()",
    "commit_transaction": "it is commit()",
    "list_topics": "Admin has it; partitions(topic) is the number of a topic's partitions",
    "partitions_for": "it is partitions(topic)",
    "partitions_for_topic": "it is partitions(topic)",
    "poll": "nobody has to call it: callbacks and deliveries come by themselves",
    "produce": "give the record to send(topic, value, key)",
    "send_and_wait": "send(...).result() waits; headrace.client.aio.Producer has it",
    "send_batch": "give columns to send_columns",
    "send_offsets_to_transaction": "it is send_offsets(offsets, group)",
    "start": _BEGIN,
    "stop": "it is close()",
}
CONSUMER: Mapping[str, str] = {
    "commit_async": "commit() waits for the answer; with auto_commit, poll commits without waiting",
    "consume": "poll(timeout_ms, max_records) returns several records",
    "consumer_group_metadata": "it is group_metadata()",
    "get_watermark_offsets": _BOTH,
    "getmany": "poll(timeout_ms) returns several records; headrace.client.aio.Consumer has it",
    "getone": "poll(timeout_ms, 1), or iterate; headrace.client.aio.Consumer has it",
    "highwater": "it is end_offsets()",
    "incremental_assign": "it is assign(); in a group the consumer does it itself",
    "incremental_unassign": "it is assign(); in a group the consumer does it itself",
    "list_topics": "Admin has it",
    "partitions_for_topic": "it is Admin's partitions_of(topic)",
    "start": _BEGIN,
    "stop": "it is close()",
    "store_offsets": "commit(record) commits up to a record",
    "topics": "it is Admin's list_topics()",
    "unassign": "it is assign([])",
}


class _Elsewhere:
    __slots__ = ("_said",)

    def __init__(self, said: str) -> None:
        self._said = said

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._said)


def tells_of(methods: Mapping[str, str]) -> Callable[[C], C]:
    """Lets a class say what the methods of other clients are here."""

    def decorate(owner: C) -> C:
        for name, said in methods.items():
            assert name not in owner.__dict__, name
            setattr(owner, name, _Elsewhere(f"a {owner.__name__} has no {name}: {said}"))
        return owner

    return decorate
