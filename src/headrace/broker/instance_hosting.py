"""Serves instances, from the first one on. Until then a broker imports and makes nothing of it.

prepare    before the server starts: what the shared listener needs, if there is one
begin      in the same turn of the event loop in which it starts, so that no connection is taken by other rules
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from headrace.broker.environment import Environment
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.services import Services
from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig
from headrace.metadata.model import Endpoint
from headrace.network.listeners import Listener
from headrace.network.server import Server
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.broker.instances.listeners import InstanceListeners
    from headrace.broker.instances.producer_limits import ProducerLimits
    from headrace.broker.instances.visitors import Visitors
    from headrace.broker.instances.ways_in import WaysIn
    from headrace.broker.security.authentication import Authentication
    from headrace.broker.security.build import Sasl
    from headrace.broker.security.mechanisms import Mechanisms
    from headrace.instances.address_list import Networks
    from headrace.instances.definition import Instance
    from headrace.network.connection import Connection
    from headrace.network.tls.listeners import TlsListeners


class BrokerSecurity:
    """TLS and SASL of a broker, which may get its first TLS or SASL listener while it runs."""

    def __init__(
        self,
        broker: Services,
        server: Server,
        dispatcher: Dispatcher,
        stack: AsyncExitStack,
        environment: Environment,
    ) -> None:
        self._broker, self._server, self._dispatcher = broker, server, dispatcher
        self._stack, self._environment = stack, environment
        self._sasl: Sasl | None = None
        self._made: Authentication | None = None
        self._lock = asyncio.Lock()
        self.hosting: InstanceHosting

    @property
    def known(self) -> Authentication | None:
        """The authentication, if there is a SASL listener by now."""
        return self._made

    @property
    def settings(self) -> BrokerConfig:
        """The broker's settings of now."""
        return self._broker.settings.current

    async def authenticate(self, listeners: Sequence[Listener]) -> None:
        """Puts gates before the connections of SASL listeners. Raises `InvalidConfig`."""
        shared = self._broker.config.instances_listener.upper()
        found = {
            each.name: await self.mechanisms(each.name, is_for_instances=each.name == shared)
            for each in listeners
            if each.is_sasl
        }
        if found:
            self._make(found)

    async def mechanisms(self, listener: str, *, is_for_instances: bool) -> Mechanisms:
        """The mechanisms by the settings of a listener. Raises `InvalidConfig`."""
        from headrace.broker.security.build import Sasl  # few brokers import it

        async with self._lock:
            if self._sasl is None:
                self._sasl = Sasl(self._broker, self._stack, self._environment)
            return await self._sasl.mechanisms(listener, is_for_instances=is_for_instances)

    def authentication(self) -> Authentication:
        """The authentication of the broker's clients."""
        return self._make({}) if self._made is None else self._made

    async def tls(self) -> TlsListeners:
        """The certificates of the broker's listeners."""
        async with self._lock:
            if self._server.tls is None:
                from headrace.network.tls.listeners import TlsListeners

                self._server.tls = TlsListeners(self._broker.settings.current, ())
                self.exchange_certificates()
            return self._server.tls

    def exchange_certificates(self) -> None:
        """Follows changes of settings and files."""
        from headrace.broker.security.certificates import exchange_certificates

        assert self._server.tls is not None
        exchange_certificates(self._broker, self._server.tls, self._stack)

    def _make(self, sasl: dict[str, Mechanisms]) -> Authentication:
        from headrace.broker.security.build import build_authentication
        from headrace.broker.security.instance_users import InstanceUsers

        users = InstanceUsers(self._broker.instances, self.hosting)
        self._made = build_authentication(sasl, self._broker, self._server, self._dispatcher, self._stack, users)
        return self._made


class InstanceHosting:
    """The instances that this broker serves."""

    def __init__(
        self,
        broker: Services,
        server: Server,
        dispatcher: Dispatcher,
        security: BrokerSecurity,
        listeners: Sequence[Listener],
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._broker, self._server, self._dispatcher, self.security = broker, server, dispatcher, security
        self._listeners, self._endpoints = listeners, endpoints
        self._ways_in: WaysIn | None = None
        self._trusted: Networks | None = None
        self._producers: ProducerLimits | None = None
        self.listeners: InstanceListeners | None = None
        """None until there is an instance."""

    async def prepare(self) -> None:
        """Reads the settings, and makes what the shared listener needs. Raises `InvalidConfig`."""
        config = self._broker.config
        if config.proxy_protocol_trusted:
            from headrace.instances.address_list import Networks

            try:
                self._trusted = Networks(config.proxy_protocol_trusted)
            except ValueError as error:
                raise InvalidConfig(f"headrace.proxy.protocol.trusted: {error}") from None
        if config.instances_listener or config.instances_domain:
            self._make()
            assert self._ways_in is not None
            assert self.listeners is not None
            await self._ways_in.prepare(self.listeners.find)

    def begin(self) -> None:
        """Opens the listeners of instances, and follows them."""
        if self._trusted is not None:
            self._server.trust(self._trusted)
        if self.listeners is not None:
            self._start()
        else:
            self._broker.instances.on_change(self._on_first)

    async def close(self) -> None:
        """Stops following the instances."""
        if self.listeners is not None:
            await self.listeners.close()
        if self._producers is not None:
            await self._producers.close()

    @property
    def listener_of_users(self) -> str:
        """The listener whose users say their instances; empty if there is none."""
        return "" if self._ways_in is None else self._ways_in.listener_of_users

    def adopt(self, connection: Connection, name: str) -> Visitors | None:
        """Makes a connection one of the instance of its user; None if it may not be."""
        return None if self._ways_in is None else self._ways_in.adopt(connection, name)

    def may_adopt(self, connection: Connection, name: str, *, is_counted: bool) -> bool:
        """Whether `adopt` would do so."""
        return self._ways_in is not None and self._ways_in.may_adopt(connection, name, is_counted=is_counted)

    def _on_first(self, _name: str, instance: Instance | None) -> None:
        if self.listeners is None and instance is not None:
            self._make()
            self._start()

    def _start(self) -> None:
        assert self._ways_in is not None
        assert self.listeners is not None
        self._ways_in.open_shared()
        self.listeners.start()
        listeners = self.listeners
        self._broker.settings.on_change(lambda _, __: listeners.settings_changed())
        assert self._producers is not None
        self._producers.start()

    def _make(self) -> None:
        from headrace.broker.instances.listeners import InstanceListeners, OwnListener
        from headrace.broker.instances.producer_limits import ProducerLimits
        from headrace.broker.instances.tenants import Tenants
        from headrace.broker.instances.ways_in import WaysIn, shared_listener

        broker, server = self._broker, self._server
        own = [
            (listener, endpoint)
            for listener, endpoint in zip(self._listeners, self._endpoints, strict=True)
            if not server.limits.is_protected(listener.name)
        ]
        listener, endpoint = own[0]
        shared = shared_listener(broker.config, self._listeners, self._endpoints, server.limits.is_protected)
        number = BrokerId(broker.config.broker_id)
        self._ways_in = WaysIn(self.security, shared, server, number)
        tenants = Tenants(broker, self._dispatcher.handlers)
        self._producers = ProducerLimits(broker.instances, broker.replicas)
        self.listeners = InstanceListeners(
            broker.instances,
            broker.entities.store,
            server,
            number,
            OwnListener(listener.host, endpoint.host),
            tenants.dispatcher,
            self._ways_in,
            self._trusted,
        )
