"""Pushes a client's metrics to a broker that asks for them (KIP-714), on a thread and a connection of their own.

It never troubles the client: errors are lines of the log at level DEBUG, and the next push is tried with any broker.
"""

from __future__ import annotations

import logging
import random
import threading
import time

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.timing import Deadline
from headrace.client.metrics.registry import Registry, Resource
from headrace.client.metrics.telemetry_session import TelemetrySession
from headrace.errors import KafkaError, UnsupportedVersion
from headrace.protocol import messages as m

_log = logging.getLogger(__name__)

_LAST_PUSH_MS = 1_000
"""The longest that a client waits for its last push when it closes."""


class Telemetry:
    """The pushes of one client, from construction to `close`."""

    def __init__(self, cluster: Cluster, registry: Registry, resource: Resource) -> None:
        """`resource` gives attributes of the client beside those that the broker knows."""
        self._cluster = cluster
        self._registry = registry
        self._session = TelemetrySession(resource, random.random, time.time_ns())
        self._connection: Connection | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Push what is left, if that takes no more than a second, and end the thread."""
        self._ended.set()
        self._thread.join(_LAST_PUSH_MS / 1000)
        if self._thread.is_alive() and self._connection is not None:
            self._connection.interrupt()

    def _run(self) -> None:
        session = self._session
        while not (session.is_over or self._ended.wait(session.wait_ms(_now_ms()) / 1000)):
            self._try(Deadline.after_ms(self._cluster.settings.request_timeout_ms), terminating=False)
        if not session.is_over:
            self._try(Deadline.after_ms(_LAST_PUSH_MS), terminating=True)
        if self._connection is not None:
            self._connection.close()

    def _try(self, limit: Deadline, *, terminating: bool) -> None:
        try:
            self._ask(limit, terminating=terminating)
        except UnsupportedVersion:
            self._session.is_over = True  # a broker that knows nothing of it
        except KafkaError as cause:
            _log.debug("metrics could not be pushed: %s", cause)
            self._session.unanswered(_now_ms())
        except Exception:
            _log.exception("an unexpected error occurred in the telemetry thread, which ends")
            self._session.is_over = True

    def _ask(self, limit: Deadline, *, terminating: bool) -> None:
        session = self._session
        request = session.request(self._registry.points(), time.time_ns(), terminating=terminating)
        if request is None:
            return
        connection = self._opened(limit)
        if isinstance(request, m.PushTelemetryRequest):
            session.pushed(connection.call(request, m.PushTelemetryResponse, limit).error_code, _now_ms())
        else:
            session.subscribed(connection.call(request, m.GetTelemetrySubscriptionsResponse, limit), _now_ms())

    def _opened(self, limit: Deadline) -> Connection:
        if self._connection is None or not self._connection.usable:
            brokers = list(self._cluster.view.brokers.values()) or self._cluster.bootstrap
            self._connection = self._cluster.dial(random.choice(brokers), limit)
        return self._connection


def _now_ms() -> float:
    return time.monotonic() * 1000
