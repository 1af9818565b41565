"""The clients of one instance: who may connect, and what becomes of a new connection.

address list, connections_max, principals ─▶ refused: counted, and some of each second logged
                                          └▶ listener and principal of the connection are the instance's, and a gate
                                             of SASL is put before it if the way in has one
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.broker.security.session import Session
from headrace.instances.address_list import AddressList
from headrace.instances.definition import InstanceState
from headrace.instances.names import Namespace
from headrace.instances.principals import Principals
from headrace.network.refusals import Refusals
from headrace.security.access import ANONYMOUS
from headrace.security.sasl.plain import MECHANISM as PLAIN
from headrace.security.sasl.scram import HASHES

if TYPE_CHECKING:
    from headrace.instances.definition import Instance
    from headrace.network.connection import Connection, Dispatch

log = logging.getLogger(__name__)

ADDRESS, CONNECTIONS_MAX, GONE, PRINCIPAL = "address", "connections_max", "gone", "principal"
_REASONS = {
    ADDRESS: "the address list of instance %s does not allow a connection",
    CONNECTIONS_MAX: "instance %s has connections_max connections, and no further one is accepted",
    GONE: "instance %s is being deleted, and accepts no connection",
    PRINCIPAL: "instance %s does not name the principal of a connection, by headrace instance alter --principal",
}

_WITH_PASSWORDS = frozenset((PLAIN, *HASHES))
_NOBODY = ANONYMOUS.partition(":")[2]

FindDispatch = Callable[[str], "Dispatch | None"]
"""The dispatcher of an instance; None if it is not served."""


class AuthenticationGate(Protocol):
    """The authentication of one way into an instance."""

    def opened(self, connection: Connection, visitors: Visitors) -> None:
        """Puts a gate before a new connection."""


class Visitors:
    """The clients of one instance."""

    __slots__ = ("_addresses", "_find", "_loop", "_principals", "_refusals", "instance", "names", "refused")

    def __init__(
        self, instance: Instance, addresses: AddressList, find: FindDispatch, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._find, self._loop = find, loop
        self.change(instance, addresses)
        self.names = Namespace(instance.name)
        self._refusals = Refusals(log, loop.time)
        self.refused: Counter[str] = Counter()
        """Refused connections, by reason."""

    def change(self, instance: Instance, addresses: AddressList | None = None) -> None:
        """Takes another definition, with its address list unless that is the same."""
        self.instance = instance
        if addresses is not None:
            self._addresses = addresses
        self._principals = Principals(instance.principals, instance.admins)

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.instance.name

    @property
    def dispatch(self) -> Dispatch | None:
        """The receiver of the instance's requests; None if it is not served."""
        return self._find(self.instance.name)

    def allows(self, address: str) -> bool:
        """Whether the address list has an address. May be called on any thread."""
        return self._addresses.allows(address)

    def admits(self, name: str, mechanism: str = "", *, is_token: bool = False) -> bool:
        """Whether a client may enter, who is called `name` in the instance. `mechanism`: of SASL; empty for the
        principal of a certificate, and for ANONYMOUS. `is_token`: whether a delegation token stood for a password."""
        if mechanism in _WITH_PASSWORDS and not is_token:
            return True  # the instance's own user: it was looked up by its qualified name
        if name == _NOBODY and not mechanism and not self.instance.principals:
            return True
        return name in self._principals

    def keeps(self, connection: Connection) -> bool:
        """Whether the client of an open connection may still enter. One that has yet to log in may be told to come
        back."""
        name, session = self.names.local(connection.principal.partition(":")[2]) or "", connection.session
        if isinstance(session, Session):
            return self.admits(name, session.mechanism, is_token=session.is_token)
        return self.admits(name)

    def why_refused(self, address: str, connections: int) -> str:
        """Why a further connection is refused, beside so many; "" if it is not."""
        most = self.instance.connections_max
        if not self._addresses.allows(address):
            return ADDRESS
        if most is not None and connections >= most:
            return CONNECTIONS_MAX
        return "" if self.instance.state is InstanceState.ACTIVE else GONE

    def refuses(self, address: str, connections: int) -> bool:
        """Whether a further connection is refused, beside so many. Counts it."""
        reason = self.why_refused(address, connections)
        if not reason and self.dispatch is None:
            reason = GONE
        if reason:
            self.refuse(address, reason)
        return bool(reason)

    def refuse_later(self, address: str) -> None:
        """Counts a connection whose address is not allowed. May be called on any thread."""
        self._loop.call_soon_threadsafe(self.refuse, address, ADDRESS)

    def refuse_principal(self, address: str) -> None:
        """Counts a client that the instance does not let in."""
        self.refuse(address, PRINCIPAL)

    def refuse(self, address: str, reason: str) -> None:
        """Counts a refused connection."""
        self.refused[reason] += 1
        self._refusals.note(_REASONS[reason] % self.name, address, self.name)


class InstanceRoute:
    """One way into an instance: see `network.entrances.Route`."""

    __slots__ = ("_gate", "visitors")

    def __init__(self, visitors: Visitors, gate: AuthenticationGate | None) -> None:
        """`gate`: of a way with SASL."""
        self.visitors, self._gate = visitors, gate

    @property
    def name(self) -> str:
        """See `Route`."""
        return self.visitors.name

    @property
    def dispatch(self) -> Dispatch | None:
        """See `Route`."""
        return self.visitors.dispatch

    def refuses(self, address: str, connections: int) -> bool:
        """See `Route`."""
        return self.visitors.refuses(address, connections)

    def admits(self, principal: str, address: str) -> bool:
        """See `Route`."""
        if self._gate is not None or self.visitors.admits(principal.partition(":")[2]):
            return True
        self.visitors.refuse_principal(address)
        return False

    def opened(self, connection: Connection) -> None:
        """See `Route`."""
        connection.principal = self.visitors.names.qualified_client(connection.principal)
        if self._gate is not None:
            self._gate.opened(connection, self.visitors)
