"""The rates that are in force on this broker, of every instance with a limit: the shares by metadata, and the leases.

`generation` grows whenever a rate may have changed: each interval, with each answer of the controller, and with the
metadata. What enforces the rates asks again when it has grown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.instances.flow.broker_leases import BrokerLeases, Rates
from headrace.instances.flow.leases import UNLIMITED
from headrace.types import BrokerId

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.instances.flow_placement import Placement
    from headrace.instances.definition import Instance

NO_LIMITS = Rates(UNLIMITED, UNLIMITED)


class FlowRates:
    """The rates of all instances."""

    def __init__(
        self,
        leases: BrokerLeases,
        placement: Placement,
        broker_id: BrokerId,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.leases = leases
        self.generation = 0
        self._placement, self._broker_id, self._loop = placement, broker_id, loop
        self._limited: dict[str, Instance] = {}

    def set_instance(self, instance: Instance) -> None:
        """Takes an instance as it is now defined, or its partitions as they are now led."""
        if not instance.is_limited:
            self.drop(instance.name)
            return
        self._limited[instance.name] = instance
        led, limits = self._placement.led(instance.name), self.limits(instance.name)
        assert limits is not None
        self.leases.set_share(
            instance.name,
            limits.rate_in,
            limits.rate_out,
            led.get(self._broker_id, 0),
            sum(led.values()),
            self._loop.time(),
        )
        self.generation += 1

    def drop(self, name: str) -> None:
        """The instance is gone, or has no limit any more."""
        if self._limited.pop(name, None) is not None:
            self.leases.drop(name)
            self.generation += 1

    def limits(self, name: str) -> Rates | None:
        """The instance's limits; None without any."""
        instance = self._limited.get(name)
        if instance is None:
            return None
        return Rates(
            UNLIMITED if instance.bytes_in is None else instance.bytes_in,
            UNLIMITED if instance.bytes_out is None else instance.bytes_out,
        )

    def rates(self, name: str) -> Rates:
        """What is in force now."""
        return self.leases.rates(name, self._loop.time()) if name in self._limited else NO_LIMITS

    def fair(self, name: str) -> Rates:
        """F, which is also in force for the requests that full storage refuses."""
        return self.leases.fair(name, self._loop.time()) if name in self._limited else NO_LIMITS
