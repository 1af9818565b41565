"""Authentication of clients: the gates of connections through SASL listeners, and how the authentications ended.

A connection that is not authenticated within `headrace.authentication.timeout.ms` is closed, whatever its peer sends.
Above `AUTHENTICATING_MAX` such connections the oldest of the listener that has most is closed, and above
`AUTHENTICATION_BYTES_MAX` of incomplete messages the one whose message began first on the listener that has most bytes.
Clients that authenticate again are not among them: a flood of strangers
must not end the connections of clients that are known. All have the same time, so the order in which they began is the
order of their deadlines, and one timer serves them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from headrace.broker.security.gate import Gate
from headrace.broker.security.instance_users import BARRED
from headrace.broker.security.mechanisms import KNOWN, Mechanisms
from headrace.broker.security.session import Session
from headrace.limits import (
    AUTHENTICATING_MAX,
    AUTHENTICATION_BYTES_MAX,
    FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX,
    LOGGED_NAME_CHARS_MAX,
)
from headrace.network.connection import Connection, Dispatch
from headrace.network.fairness import FairRoom
from headrace.printable import shortened

if TYPE_CHECKING:
    from headrace.broker.instances.visitors import Visitors
    from headrace.broker.security.instance_users import InstanceUsers

log = logging.getLogger(__name__)

_CLOSES_PER_TURN = 20  # each takes up to fifty microseconds
_SMALL_BYTES = 16 << 10  # up to which `AUTHENTICATING_MAX` alone bounds the memory of messages


class Authentication:
    """The authentication of every SASL listener; the host of its gates."""

    def __init__(
        self,
        listeners: Mapping[str, Mechanisms],
        dispatch: Dispatch,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], bool],
        timeout_ms: int,
        failure_delay_ms: int,
        request_bytes_max: int,
        gate_bytes_max: int,
        instance_users: InstanceUsers,
    ) -> None:
        """`listeners`: the mechanisms of each SASL listener, by its name."""
        self._listeners = listeners
        self.dispatch, self.loop, self.now_ms, self.spawn = dispatch, loop, now_ms, spawn
        self.request_bytes_max, self.gate_bytes_max = request_bytes_max, gate_bytes_max
        self.failure_delay_s = failure_delay_ms / 1000
        self.timeout_s = timeout_ms / 1000
        self.instance_users = instance_users
        self._strangers: FairRoom[Connection] = FairRoom()
        self._known: FairRoom[Connection] = FairRoom()  # clients that authenticate again
        self._deadlines: dict[Connection, float] = {}  # of both
        self._incomplete: FairRoom[Connection] = FairRoom()  # by the sizes of large messages
        self._finishing: dict[Connection, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._logged = [0, 0]  # the second, and how many failures were logged in it
        self.successes: Counter[tuple[str, str, bool]] = Counter()
        """By listener, mechanism and whether the client authenticated again."""
        self.failures: Counter[tuple[str, str, bool]] = Counter()
        """The same. The mechanism is empty where the client has chosen none."""
        self.expirations: Counter[str] = Counter()
        """Connections closed since their session had expired, by listener."""
        self.timeouts: Counter[str] = Counter()
        """Connections closed since they were not authenticated in time, by listener."""

    @property
    def waiting(self) -> int:
        """How many connections have yet to authenticate."""
        return len(self._strangers) + len(self._known)

    def opened(self, connection: Connection) -> None:
        """Puts a gate before a new connection, if its listener has SASL."""
        mechanisms = self._listeners.get(connection.listener)
        if mechanisms is not None:
            Gate(connection, mechanisms, self)

    def opened_for(self, connection: Connection, mechanisms: Mechanisms, visitors: Visitors) -> None:
        """Puts a gate before a new connection of an instance."""
        Gate(connection, mechanisms, self, visitors)

    def forget_listener(self, name: str) -> None:
        """Drops what was counted for an instance that is gone."""
        for counted in (self.successes, self.failures):
            for key in [each for each in counted if each[0] == name]:
                del counted[key]
        for ended in (self.expirations, self.timeouts):
            ended.pop(name, None)

    def closed(self, connection: Connection) -> None:
        """Forgets a connection."""
        self._forget(connection)
        task = self._finishing.pop(connection, None)
        if task is not None:
            task.cancel()
        if isinstance(connection.session, Session):
            connection.session.close()

    def close(self) -> None:
        """Ends the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # -- as the host of gates

    def is_barred(self, connection: Connection, name: str) -> bool:
        """See `Host`."""
        return self.instance_users.is_barred(connection, name)

    def visitors_of(self, connection: Connection, name: str) -> Visitors | None:
        """See `Host`."""
        return self.instance_users.visitors_of(connection, name)

    def begun(self, connection: Connection, *, is_again: bool) -> None:
        """See `Host`."""
        self._forget(connection)
        chosen = self._known if is_again else self._strangers
        chosen.add(connection, connection.listener)
        self._deadlines[connection] = self.loop.time() + self.timeout_s
        if len(self._strangers) > AUTHENTICATING_MAX:
            self._end(self._strangers.excess, "too many connections have yet to authenticate")
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_s, self._end_late)

    def announced(self, connection: Connection, size: int) -> None:
        """See `Host`."""
        self._incomplete.remove(connection)
        if size > _SMALL_BYTES and connection in self._strangers:
            self._incomplete.add(connection, connection.listener, size)
            while self._incomplete.size > AUTHENTICATION_BYTES_MAX:
                self._end(self._incomplete.excess, "too many large messages of authentications are incomplete")

    def finishing(self, connection: Connection, task: asyncio.Task[None] | None) -> None:
        """See `Host`."""
        if task is None:
            self._finishing.pop(connection, None)
        else:
            self._finishing[connection] = task

    def succeeded(self, connection: Connection, mechanism: str, *, is_again: bool) -> None:
        """See `Host`."""
        self._forget(connection)
        self.successes[connection.listener, mechanism, is_again] += 1
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "a client is authenticated",
                extra={"peer": connection.peer, "principal": connection.principal, "mechanism": mechanism},
            )

    def failed(self, connection: Connection, mechanism: str, claimed: str, reason: str, *, is_again: bool) -> None:
        """See `Host`."""
        listener = self._listeners.get(connection.listener)  # None for one of an instance
        known = KNOWN if listener is None else listener.names
        if listener is not None and self.instance_users.is_counted_as_barred(connection, claimed):
            reason = BARRED
        self.failures[connection.listener, mechanism if mechanism in known else "", is_again] += 1
        second, logged = int(self.loop.time()), self._logged
        if logged[0] != second:
            if logged[1] > FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX:
                left_out = logged[1] - FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX
                log.warning("further authentications failed, which were not logged", extra={"count": left_out})
            logged[:] = [second, 0]
        logged[1] += 1
        if logged[1] <= FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX:
            log.warning(
                "an authentication failed",
                extra={
                    "peer": connection.peer,
                    "listener": connection.listener,
                    "mechanism": mechanism,
                    "user": shortened(claimed, LOGGED_NAME_CHARS_MAX),
                    "reason": reason,
                },
            )

    def expired(self, connection: Connection) -> None:
        """See `Host`."""
        self.expirations[connection.listener] += 1

    def _end_late(self) -> None:
        """Closes the connections whose time is over."""
        self._timer, now, left = None, self.loop.time(), _CLOSES_PER_TURN
        later = []
        for room in (self._strangers, self._known):
            while room:
                connection = room.oldest
                deadline = self._deadlines[connection]
                if deadline > now or not left:
                    later.append(max(deadline, now))
                    break
                left -= 1
                self._end(connection, "not authenticated within headrace.authentication.timeout.ms")
        if later:
            self._timer = self.loop.call_at(min(later), self._end_late)

    def _forget(self, connection: Connection) -> None:
        self._strangers.remove(connection)
        self._known.remove(connection)
        self._incomplete.remove(connection)
        self._deadlines.pop(connection, None)

    def _end(self, connection: Connection, reason: str) -> None:
        self._forget(connection)
        self.timeouts[connection.listener] += 1
        connection.close(reason)
