"""Handles failed data directories, and retries partitions that a full disk refused.

    a call fails in a directory    noticed on any thread, handled on the event loop:
    1. its logs accept nothing more; requests that wait for its partitions are answered with KAFKA_STORAGE_ERROR
    2. the broker notifies the controller, which elects other leaders where it can (`metadata.log_dir_events`)
    3. the other directories stay in use; the failed one is used again after the next start that can read it

The broker cannot continue without its last directory, or without the one with the embedded store. It then stops with
`DirectoryLost`, which the task group raises to the caller that runs the broker.

A full disk is not a failure. While it keeps the broker from creating or deleting a partition, the broker notifies the
controller every few seconds, which repeats its request, until there is space.
Source: Kafka's ReplicaManager (handleLogDirFailure), LogManager.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.errors import KafkaError
from headrace.metadata import log_dir_events
from headrace.metastore.store import MetadataStore, StoreError
from headrace.types import BrokerId

log = logging.getLogger(__name__)
RETRY_PAUSE_S = 5.0


class DirectoryLost(Exception):
    """A data directory failed that the broker cannot continue without. Its text is one line."""


class LogDirFailures:
    """Handles failures of data directories, from its construction until `close`."""

    def __init__(
        self,
        replicas: ReplicaManager,
        store: MetadataStore,
        broker_id: BrokerId,
        tasks: asyncio.TaskGroup,
        *,
        on_failure: Callable[[Path], None],
    ) -> None:
        """`on_failure` is called with a failed directory, after its partitions are offline."""
        self._replicas = replicas
        self._logs = replicas.logs
        self._store = store
        self._broker_id = broker_id
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._is_announced = True
        self._on_failure = on_failure
        self._is_closed = False
        for directory, reason in self._logs.directories.watch.on_failure(self._noticed).items():
            self._failed(directory, reason)  # failed between the start and this construction
        self._retrying = tasks.create_task(self._retry_refused())

    def close(self) -> None:
        """Stops handling failures: the broker is stopping."""
        self._is_closed = True
        self._retrying.cancel()

    def _noticed(self, directory: Path, reason: str) -> None:
        if not self._is_closed:  # the loop may be closed too
            self._loop.call_soon_threadsafe(self._failed, directory, reason)

    def _failed(self, directory: Path, reason: str) -> None:
        logs = self._logs
        if directory in logs.directories.offline or self._is_closed:
            return
        lost = logs.take_offline(directory, reason)
        self._replicas.take_offline(lost)
        self._on_failure(directory)
        log.error("data directory %s failed: %s; %d partitions are offline", directory, reason, len(lost))
        if directory == logs.directories.essential or not logs.directories.in_use:
            why = "it has the cluster's metadata" if logs.directories.in_use else "no other directory is online"
            self._tasks.create_task(_lose(f"data directory {directory} failed: {reason}; {why}, so the broker stops"))
        else:
            self._tasks.create_task(self._announce())

    async def _announce(self) -> None:
        self._is_announced = False
        try:
            await log_dir_events.announce(self._store, self._broker_id)
            self._is_announced = True
        except (KafkaError, StoreError) as error:
            log.warning(
                "the controller could not be notified of a failed data directory, trying again in %g s: %s",
                RETRY_PAUSE_S,
                error,
            )

    async def _retry_refused(self) -> None:
        """Notifies the controller again while necessary; runs until it is cancelled."""
        while True:
            await asyncio.sleep(RETRY_PAUSE_S)
            if self._replicas.refused or not self._is_announced:
                self._replicas.refused.clear()
                await self._announce()


async def _lose(why: str) -> None:
    raise DirectoryLost(why)
