"""The audit log: who asked for what from where, and whether it was allowed.

    logger kafka.authorizer.logger
    INFO    denied     the operation was asked for and is refused
    INFO    ACLs created, ACLs deleted    by a request; changes that others make are recorded where they make them
    DEBUG   allowed    the operation was asked for and is permitted; not logged unless the logger's level is DEBUG

Its level is changed by Apache Kafka's tools as that of other loggers (BROKER_LOGGER): WARN switches the log off. The
fields are principal, host, listener, client, operation, resource, named and request; the formatters of the broker's log
escape what is not printable. A decision that a connection keeps is recorded each time that it is applied.

Denied requests are as many as their senders like, so the lines are limited: those of one principal at one host, and
those of all. Lines that are left out are counted, and the counts are told once a second.
Source: the logger and levels of Kafka's `AclAuthorizer`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from itertools import islice

from headrace.limits import AUDIT_LINES_PER_CLIENT_MAX, AUDIT_LINES_PER_SECOND_MAX, LOGGED_NAME_CHARS_MAX
from headrace.printable import shortened
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, RequestOrigin, ResourceType
from headrace.security.acls.model import Pattern

LOGGER = "kafka.authorizer.logger"
log = logging.getLogger(LOGGER)

PERIOD_S = 1.0
"""The time for which lines are counted."""


class AuditLog:
    """Writes decisions to the log, as many as the limits allow."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = 0
        self._by_client: Counter[tuple[str, str]] = Counter()
        self._left_out: Counter[tuple[str, str]] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def notes_permitted(self) -> bool:
        """Whether decisions that permit something are recorded, too."""
        return log.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        origin: RequestOrigin,
        api_key: ApiKey,
        operation: Operation,
        resource: ResourceType,
        name: str,
        is_permitted: bool,
    ) -> None:
        """Records a decision about what a request asked for."""
        level = logging.DEBUG if is_permitted else logging.INFO
        if not log.isEnabledFor(level):
            return
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD_S, self._end_period)
        client = origin.principal, origin.host
        self._by_client[client] += 1
        if self._by_client[client] > AUDIT_LINES_PER_CLIENT_MAX or self._lines >= AUDIT_LINES_PER_SECOND_MAX:
            self._leave_out(client)
            return
        self._lines += 1
        client_id = origin.client_id
        fields = {
            "principal": origin.principal,
            "host": origin.host,
            "listener": origin.listener,
            "client": None if client_id is None else shortened(client_id, LOGGED_NAME_CHARS_MAX),
            "operation": operation.name,
            "resource": resource.name,
            "named": shortened(name, LOGGED_NAME_CHARS_MAX),
            "request": api_key.name,
        }
        log.log(level, "allowed" if is_permitted else "denied", extra=fields)

    def rules_changed(self, principal: str, host: str, verb: str, counts: Mapping[Pattern, int]) -> None:
        """Records that somebody created or deleted rules: so many of each pattern."""
        who = {"principal": principal, "host": host}
        for pattern, count in islice(counts.items(), AUDIT_LINES_PER_SECOND_MAX):
            what = {"resource": pattern.resource.name, "named": pattern.name, "pattern": pattern.kind.name}
            log.info("ACLs %s", verb, extra={**who, **what, "count": count})
        left_out = len(counts) - AUDIT_LINES_PER_SECOND_MAX
        if left_out > 0:
            log.info("ACLs %s, left out", verb, extra={**who, "patterns": left_out})

    def close(self) -> None:
        """Tells what was left out until now."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_period()

    def _leave_out(self, client: tuple[str, str]) -> None:
        if client not in self._left_out and len(self._left_out) >= AUDIT_LINES_PER_SECOND_MAX:
            client = ("others", "")
        self._left_out[client] += 1

    def _end_period(self) -> None:
        self._timer, self._lines = None, 0
        self._by_client.clear()
        left_out, self._left_out = self._left_out, Counter()
        for (principal, host), count in left_out.items():
            log.info("left out", extra={"principal": principal, "host": host, "decisions": count})
