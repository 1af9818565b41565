"""Before a broker stops: it asks the controller to have others lead what it leads (ControlledShutdown).

    asked           the controller moves leaders into the ISR's other members, and names what it could not move
    something left  asked again after `controlled.shutdown.retry.backoff.ms`, at most `controlled.shutdown.max.retries`
                    times; not where no other replica is alive, since nobody will take over
    no controller   within five seconds: nobody is asked again, for a stop is a matter of seconds

A stop that nobody could prepare for is one all the same: others lead when the registration is gone.
Source: Kafka's `KafkaServer.controlledShutdown`. Unlike there, the last broker of a cluster does not wait for others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.coordination.term import NotController
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.parts import Broker

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 5_000
_LOOK_S = 0.1


async def lead_elsewhere(broker: Broker) -> None:
    """Returns when others lead what they can, or it has been tried often enough. Raises nothing."""
    config = broker.config
    if broker.is_alone or not config.controlled_shutdown_enable:
        return
    left: Sequence[TopicPartition] = []
    for attempt in range(1 + config.controlled_shutdown_max_retries):
        try:
            left = await _ask(broker)
        except KafkaError as error:
            log.warning("the controller did not prepare for this broker's stop: %s", error)
            return
        if not left:
            return
        is_last = attempt == config.controlled_shutdown_max_retries
        if not is_last and not await _pause(broker, left, config.controlled_shutdown_retry_backoff_ms / 1000):
            return
    log.warning("stopping while leading %d partitions still: %s", len(left), ", ".join(map(str, left[:10])))


async def _ask(broker: Broker) -> Sequence[TopicPartition]:
    """What is led here still. Raises `KafkaError`."""
    own, epoch = broker.replication.broker_id, broker.control.broker_epoch
    if broker.controller.is_active:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):  # the tree may be out of reach
                left = await broker.controller.controlled_shutdown(own, epoch)
                await broker.controller.settled()  # it stops with us: its word must be out
        except TimeoutError:
            raise KafkaError(
                "this controller cannot write, or be heard, in time", ErrorCode.REQUEST_TIMED_OUT
            ) from None
        except NotController:
            pass  # another one is, by now
        else:
            return left
    answer = await broker.replication.link.ask_controller(
        m.ControlledShutdownRequest(broker_id=own, broker_epoch=epoch),
        m.ControlledShutdownResponse,
        timeout_ms=ASK_TIMEOUT_MS,
    )
    if answer.error_code:
        raise KafkaError("the controller refuses", ErrorCode(answer.error_code))
    return [TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions]


async def _pause(broker: Broker, left: Sequence[TopicPartition], pause_s: float) -> bool:
    """Whether it is worth while to ask again: false as soon as nobody is alive who could take over."""
    until = broker.loop.time() + pause_s
    while broker.loop.time() < until:
        if not any(_has_others(broker, each) for each in left):
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def _has_others(broker: Broker, partition: TopicPartition) -> bool:
    known = broker.metadata.partition(*partition)
    if known is None:
        return False
    # What is told of a partition is as old as its last change of leader or ISR; who is alive is told at once.
    others = set(known.replicas) - {broker.replication.broker_id, *known.offline_replicas}
    return not others.isdisjoint(broker.metadata.brokers)
