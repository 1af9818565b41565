"""The ways into instances that need TLS or SASL: made when the first instance needs them.

own ports        SSL, SASL_SSL       the certificate of listener.name.instances.acme, else that of
                                     headrace.instances.listener, else that of the broker
                 SASL_*              the mechanisms likewise; clients say `alice`, and the user is `acme.alice`
the shared one   with a domain       the server name chooses the instance; clients say `alice`
                 without             the user chooses it: clients say `acme.alice`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.broker.exposure import is_for_strangers
from headrace.broker.instances.visitors import AuthenticationGate, InstanceRoute, Visitors
from headrace.config.listener_settings import OF_INSTANCES, has_own_settings
from headrace.errors import InvalidConfig
from headrace.instances.definition import NAME
from headrace.network.listeners import Listener

if TYPE_CHECKING:
    from headrace.broker.security.authentication import Authentication
    from headrace.broker.security.mechanisms import Mechanisms
    from headrace.config import BrokerConfig
    from headrace.instances.definition import Instance
    from headrace.metadata.model import Endpoint
    from headrace.network.connection import Connection
    from headrace.network.entrances import ListenerTls
    from headrace.network.server import Server
    from headrace.network.tls.listeners import TlsListeners
    from headrace.network.tls.server_names import NamedTls
    from headrace.types import BrokerId


def _listener_of(instance: str) -> str:
    return f"{OF_INSTANCES}{instance.upper()}"


def _tls_name(instance: str, protocol: str) -> str:
    return f"instances:{instance}:{protocol}"


FindVisitors = Callable[[str], "Visitors | None"]


class ListenerSecurity(Protocol):
    """TLS and SASL of the broker, also of one that had none so far."""

    @property
    def settings(self) -> BrokerConfig:
        """The broker's settings of now."""

    async def tls(self) -> TlsListeners:
        """The certificates of the broker's listeners."""

    def authentication(self) -> Authentication:
        """The authentication of the broker's clients."""

    async def mechanisms(self, listener: str, *, is_for_instances: bool) -> Mechanisms:
        """The mechanisms by the settings of a listener. Raises `InvalidConfig`."""


class Shared:
    """The listener that instances share."""

    def __init__(self, listener: Listener, endpoint: Endpoint, domain: str) -> None:
        self.listener, self.endpoint = listener, endpoint
        self.domain = domain.lower().strip(".")


def shared_listener(
    config: BrokerConfig,
    listeners: Sequence[Listener],
    endpoints: Sequence[Endpoint],
    is_of_brokers: Callable[[str], bool],
) -> Shared | None:
    """The listener of `headrace.instances.listener`. Raises `InvalidConfig`."""
    name, domain = config.instances_listener.upper(), config.instances_domain
    if not name:
        if domain:
            raise InvalidConfig("headrace.instances.domain needs a TLS listener: set headrace.instances.listener")
        return None
    for listener, endpoint in zip(listeners, endpoints, strict=True):
        if listener.name != name:
            continue
        if is_of_brokers(name) or len(listeners) == 1:
            raise InvalidConfig(f"headrace.instances.listener={name} is the listener of brokers: add another one")
        if domain and not listener.is_tls:
            raise InvalidConfig(f"headrace.instances.domain needs TLS, but {name} is {listener.protocol}")
        if not domain and not listener.is_sasl:
            raise InvalidConfig(
                f"headrace.instances.listener={name} is {listener.protocol}: instances are told apart by the server "
                f"names of TLS (set headrace.instances.domain) or by the users of SASL"
            )
        return Shared(listener, endpoint, domain)
    raise InvalidConfig(f"headrace.instances.listener={name} is not in listeners")


class _Gate:
    def __init__(self, authentication: Authentication, mechanisms: Mechanisms) -> None:
        self._authentication, self._mechanisms = authentication, mechanisms

    def opened(self, connection: Connection, visitors: Visitors) -> None:
        """See `visitors.AuthenticationGate`."""
        self._authentication.opened_for(connection, self._mechanisms, visitors)


class WaysIn:
    """The ways into this broker's instances."""

    def __init__(self, security: ListenerSecurity, shared: Shared | None, server: Server, broker: BrokerId) -> None:
        self._security, self._shared, self._server, self._broker = security, shared, server, broker
        self._settings_of = "" if shared is None else shared.listener.name
        self._gates: dict[str, AuthenticationGate] = {}
        self._own_tls: dict[str, set[str]] = {}
        self._authentication: Authentication | None = None
        self._suffix = "" if shared is None or not shared.domain else f".{shared.domain}"
        self._find: FindVisitors = lambda _: None
        self._named: NamedTls | None = None

    # -- own ports

    def check(self, instance: Instance, host: str) -> None:
        """Raises `InvalidConfig` for a listener on `host` that strangers could use: nobody has to log in, no list says
        who may connect, and the broker itself is not open to everybody."""
        listener = Listener(_listener_of(instance.name), host, 0, instance.protocol)
        if not instance.allow and is_for_strangers(self._security.settings, listener):
            raise InvalidConfig(
                "it could be used from other machines and authenticates nobody: give the instance --allow NETWORK or "
                "--protocol SASL_SSL"
            )

    def has_own_settings(self, instance: str) -> bool:
        """Whether the own listener of an instance has settings that others do not have."""
        return has_own_settings(self._security.settings, _listener_of(instance))

    async def tls(self, instance: str, protocol: str) -> ListenerTls:
        """TLS of the listener of an instance. Raises `InvalidConfig`."""
        listeners = await self._security.tls()
        is_own = self.has_own_settings(instance)
        name = _tls_name(instance if is_own else "", protocol)
        found = listeners.get(name)
        if found is None:
            settings_of = _listener_of(instance) if is_own else self._settings_of
            if is_own:
                self._own_tls.setdefault(instance, set()).add(name)
            found = await listeners.add(name, settings_of, is_sasl=protocol == "SASL_SSL")
        return found

    async def gate(self, instance: str = "") -> AuthenticationGate:
        """SASL of the listener of an instance, or of the shared one. Raises `InvalidConfig`."""
        listener = _listener_of(instance) if instance and self.has_own_settings(instance) else self._settings_of
        gate = self._gates.get(listener)
        if gate is None:
            mechanisms = await self._security.mechanisms(listener, is_for_instances=True)
            self._authentication = self._security.authentication()
            gate = self._gates[listener] = _Gate(self._authentication, mechanisms)
        return gate

    async def forget(self, name: str) -> None:
        """Drops what was made and counted for an instance."""
        if self._authentication is not None:
            self._authentication.forget_listener(name)
        self._gates.pop(_listener_of(name), None)
        if own := self._own_tls.pop(name, None):
            (await self._security.tls()).remove(own)

    # -- the shared one

    async def prepare(self, find: FindVisitors) -> None:
        """Makes what the shared listener needs. Raises `InvalidConfig`."""
        self._find = find
        if self._shared is None or not self._suffix:
            return
        from headrace.network.tls.server_names import NamedTls

        listener = self._shared.listener
        tls = (await self._security.tls()).get(listener.name)
        assert tls is not None
        gate = await self.gate() if listener.is_sasl else None
        self._named = NamedTls(tls, self, lambda name: self._route(name, gate))

    def open_shared(self) -> None:
        """Lets server names choose the instances of new connections."""
        if self._shared is not None and self._named is not None:
            self._server.configure_entrance(self._shared.listener.name, self._named, self._named)

    @property
    def listener_of_users(self) -> str:
        """The listener whose users say their instances; empty if there is none."""
        return "" if self._shared is None or self._suffix else self._shared.listener.name

    def shared_address(self, instance: Instance) -> tuple[str, int] | None:
        """Where clients of an instance without a port of its own reach this broker."""
        shared = self._shared
        if shared is None or instance.port is not None:
            return None
        host = f"b{self._broker}.{instance.name}{self._suffix}" if self._suffix else shared.endpoint.host
        return host, shared.endpoint.port

    def find(self, server_name: str, host: str) -> str:
        """See `server_names.InstanceServerNames`."""
        if not server_name.endswith(self._suffix):
            return ""
        broker, dot, name = server_name[: -len(self._suffix)].rpartition(".")
        if dot and broker != f"b{self._broker}":
            return ""
        visitors = self._of_shared(name)
        if visitors is None:
            return ""
        if not visitors.allows(host):
            visitors.refuse_later(host)
            return ""
        return name

    def adopt(self, connection: Connection, name: str) -> Visitors | None:
        """Makes a connection one of the instance of its user; None if it may not be."""
        visitors = self._of_shared(name)
        if visitors is None or connection.listener == name:
            return visitors
        return visitors if self._server.adopt(connection, InstanceRoute(visitors, None)) else None

    def may_adopt(self, connection: Connection, name: str, *, is_counted: bool) -> bool:
        """Whether `adopt` would do so. May be called on any thread, unless a refusal is to be counted."""
        visitors = self._of_shared(name)
        if visitors is None or connection.listener == name:
            return visitors is not None
        reason = visitors.why_refused(connection.host, self._server.limits.count(name))
        if reason and is_counted:
            visitors.refuse(connection.host, reason)
        return not reason

    def _of_shared(self, name: str) -> Visitors | None:
        if not NAME.fullmatch(name):
            return None
        visitors = self._find(name)
        return visitors if visitors is not None and visitors.instance.port is None else None

    def _route(self, name: str, gate: AuthenticationGate | None) -> InstanceRoute | None:
        visitors = self._of_shared(name)
        return None if visitors is None else InstanceRoute(visitors, gate)
