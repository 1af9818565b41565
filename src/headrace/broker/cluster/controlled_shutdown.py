"""Controlled shutdown: before a broker stops, it asks the controller to move its leaders to other replicas.

    request          the controller moves leaders to other members of the ISR, and names partitions that it could not
                     move
    partitions left  asked again after `controlled.shutdown.retry.backoff.ms`, at most
                     `controlled.shutdown.max.retries` times; not when no other replica is alive
    no controller    within five seconds: the broker stops without it, since a stop should take seconds

A broker that could not move its leaders stops all the same; the controller elects others when the registration is gone.
Source: Kafka's `KafkaServer.controlledShutdown`. There the last broker of a cluster uses up all retries; here it stops
at once, since no broker could take over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.controller.controller_epoch import NotController
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.protocol import messages as m
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.services import Services

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5_000
_LOOK_S = 0.1


async def move_leaders(broker: Services) -> None:
    """Returns when the leaders have moved, or the retries are used up. Raises nothing."""
    config = broker.config
    if broker.is_alone or not config.controlled_shutdown_enable:
        return
    left: Sequence[TopicPartition] = []
    for attempt in range(1 + config.controlled_shutdown_max_retries):
        try:
            left = await _request_move(broker)
        except KafkaError as error:
            log.warning("controlled shutdown failed, and this broker stops while it leads partitions: %s", error)
            return
        if not left:
            return
        is_last = attempt == config.controlled_shutdown_max_retries
        if not is_last and not await _pause(broker, left, config.controlled_shutdown_retry_backoff_ms / 1000):
            return
    log.warning("this broker stops while it still leads %d partitions: %s", len(left), ", ".join(map(str, left[:10])))


async def _request_move(broker: Services) -> Sequence[TopicPartition]:
    """Asks the controller once; returns the partitions that this broker still leads. Raises `KafkaError`."""
    own, epoch = broker.replication.broker_id, broker.control.broker_epoch
    if broker.controller.is_active:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):  # the metadata store may be out of reach
                left = await broker.controller.controlled_shutdown(own, epoch)
                await broker.controller.settled()  # it stops with this broker: its requests must be sent first
        except TimeoutError:
            raise KafkaError(
                f"this broker's controller could not write its decisions, or send them, within {REQUEST_TIMEOUT_MS} ms",
                ErrorCode.REQUEST_TIMED_OUT,
            ) from None
        except NotController:
            pass  # another broker has become the controller: ask it below
        else:
            return left
    answer = await broker.replication.link.send(
        m.ControlledShutdownRequest(broker_id=own, broker_epoch=epoch),
        m.ControlledShutdownResponse,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    if answer.error_code:
        raise KafkaError("the controller refused the controlled shutdown", known_code(answer.error_code))
    return [TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions]


async def _pause(broker: Services, left: Sequence[TopicPartition], pause_s: float) -> bool:
    """Waits before the next attempt. Returns False as soon as no live replica could take over."""
    until = broker.loop.time() + pause_s
    while broker.loop.time() < until:
        if not any(_has_others(broker, each) for each in left):
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def _has_others(broker: Services, partition: TopicPartition) -> bool:
    known = broker.metadata.partition(*partition)
    if known is None:
        return False
    # A partition's offline replicas are as old as its last change of leader or ISR; the live brokers are current.
    others = set(known.replicas) - {broker.replication.broker_id, *known.offline_replicas}
    return not others.isdisjoint(broker.metadata.brokers)
