"""Topics that a broker wants for itself: for a client that asks for one that is not there, for its group coordinator.

The controller makes them, whichever broker that is. When it is another one, its answer may come before its word on the
new topic: that is waited for, since who asked wants to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.coordination.term import NotController
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.broker.parts import Broker

TIMEOUT_MS = 10_000
_KNOWN_WITHIN_S = 2.0
_LOOK_S = 0.01


async def make_topics(broker: Broker, wishes: Sequence[NewTopic]) -> Mapping[str, KafkaError | None]:
    """What became of each, by name; None: it is there. Raises `PeerUnreachable` when no controller answered."""
    if broker.controller.is_active or broker.is_alone:
        try:
            made = await broker.controller.create_topics(wishes, timeout_ms=TIMEOUT_MS)
        except NotController:
            if broker.is_alone:
                raise
        else:
            return {name: outcome if isinstance(outcome, KafkaError) else None for name, outcome in made.items()}
    answer = await broker.replication.link.ask_controller(
        _request(wishes), m.CreateTopicsResponse, timeout_ms=TIMEOUT_MS, is_refused=_is_refused
    )
    outcomes = {each.name: _outcome(each) for each in answer.topics}
    await _until_known(broker, [name for name, error in outcomes.items() if error is None])
    return outcomes


def _request(wishes: Sequence[NewTopic]) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=wish.name,
                num_partitions=wish.num_partitions,
                replication_factor=wish.replication_factor,
                assignments=[],
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                    for name, value in wish.configs.items()
                ],
            )
            for wish in wishes
        ],
        timeout_ms=TIMEOUT_MS,
    )


def _is_refused(answer: m.CreateTopicsResponse) -> bool:
    return any(each.error_code == ErrorCode.NOT_CONTROLLER for each in answer.topics)


def _outcome(told: m.CreateTopicsResponse.CreatableTopicResult) -> KafkaError | None:
    return KafkaError(told.error_message or "", ErrorCode(told.error_code)) if told.error_code else None


async def _until_known(broker: Broker, names: Sequence[str]) -> None:
    for _ in range(int(_KNOWN_WITHIN_S / _LOOK_S)):
        if all(broker.metadata.topic(name) is not None for name in names):
            return
        await asyncio.sleep(_LOOK_S)
