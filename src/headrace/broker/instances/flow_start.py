"""Starts the flow control of instances when there is a first instance; nothing of it is imported before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.base_services import BaseServices
    from headrace.broker.instances.flow import InstanceFlow
    from headrace.broker.request.throttling import Throttling
    from headrace.instances.definition import Instance
    from headrace.metadata.stored_instances import StoredInstances


def instance_flow(
    base: BaseServices,
    instances: StoredInstances,
    throttling: Throttling,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> Callable[[], InstanceFlow]:
    """The flow control of instances, imported and made with the first instance: few clusters have any."""
    started: list[InstanceFlow] = []

    @cache
    def made() -> InstanceFlow:
        from headrace.broker.instances.flow import FlowServices, InstanceFlow

        flow = InstanceFlow(
            FlowServices(
                base.broker_id,
                base.registration.epoch,
                instances,
                base.metadata,
                base.replicas,
                base.controller,
                base.addresses,
                base.peers,
                throttling,
                base.loop,
                tasks.create_task,
                base.config.flow_report_ms,
                base.config.flow_allocator,
            )
        )
        started.append(flow)
        flow.start()
        return flow

    def changed(_: str, instance: Instance | None) -> None:
        if instance is not None:
            made()

    def close() -> None:
        for flow in started:
            flow.close()

    stack.callback(close)
    instances.on_change(changed)
    return made
