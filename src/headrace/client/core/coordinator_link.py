"""A connection to the coordinator of a group or of a transactional id, found again when it moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection
from headrace.client.core.failures import error_for
from headrace.client.core.settings import Address
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
_KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})


class CoordinatorLink:
    """Calls to the coordinator of one key. Any thread may call; calls run one after the other."""

    def __init__(self, cluster: Cluster, key: str, key_type: int) -> None:
        """`key_type` is GROUP or TRANSACTION."""
        self._cluster, self._key, self._key_type = cluster, key, key_type
        self._connection: Connection | None = None
        self._lock = threading.RLock()

    def call(self, ask: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """Calls `ask` with a connection and the deadline of one request; tries again after retriable errors, at the
        new coordinator if it has moved. `ask` raises `KafkaError` for an error code in the answer."""

        def attempt() -> T:
            with self._lock:
                limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
                try:
                    return ask(self._found(limit), limit)
                except KafkaError as cause:
                    if cause.code in _MOVED or cause.code is ErrorCode.REQUEST_TIMED_OUT:
                        self.close()
                    raise

        return self._cluster.retry(attempt, deadline)

    def close(self) -> None:
        """Closes the connection. A later call opens a new one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _found(self, limit: Deadline) -> Connection:
        if self._connection is None or not self._connection.usable:
            request = m.FindCoordinatorRequest(key=self._key, key_type=self._key_type)
            found = self._cluster.call_any(request, m.FindCoordinatorResponse, limit)
            if found.error_code:
                raise error_for(found.error_code, f"coordinator of {_KINDS[self._key_type]} {self._key}")
            self._connection = self._cluster.dial(Address(found.host, found.port), limit)
        return self._connection
