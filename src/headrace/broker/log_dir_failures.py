"""What a broker does when one of its data directories fails, and while its disk refuses what the controller wants.

    a call fails in a directory    (log.watched_files)    noticed on any thread, dealt with on the event loop:
    1. its logs take nothing more; whoever waits for one of its partitions is answered KAFKA_STORAGE_ERROR
    2. the controller is told, which finds another leader for them, or none (coordination.log_dir_events)
    3. the other directories go on; the failed one is used again by the next start that can use it

The last directory, and the one with the embedded tree in it, cannot be done without: the broker ends. It says so with
`DirectoryLost`, which the task group brings to whoever runs the broker.

A full disk is no failure. But where it did not let the broker make or delete a partition, the controller is asked to
ask again, every few seconds, until there is space. Source: Kafka's ReplicaManager (handleLogDirFailure), LogManager.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headrace.broker.replica_manager import ReplicaManager
from headrace.coordination import log_dir_events
from headrace.coordination.tree import Tree, TreeError
from headrace.errors import KafkaError
from headrace.types import BrokerId

log = logging.getLogger(__name__)
ASK_AGAIN_S = 5.0


class DirectoryLost(Exception):
    """A data directory failed without which this broker cannot go on; what it has to say is one line."""


class LogDirFailures:
    """Hears of directories that fail, from its construction until `close`."""

    def __init__(self, replicas: ReplicaManager, tree: Tree, broker_id: BrokerId, tasks: asyncio.TaskGroup) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._tree = tree
        self._broker_id = broker_id
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._is_told = True
        self.on_failure: Callable[[Path], None] = lambda directory: None
        """Told of a directory that has failed, once its partitions are offline."""
        self._logs.watch.on_failure = self._noticed
        for directory, reason in list(self._logs.watch.failed.items()):
            self._failed(directory, reason)  # since the start looked
        self._asking = tasks.create_task(self._ask_again())

    def close(self) -> None:
        """No failure is dealt with any more: the broker stops."""
        self._logs.watch.on_failure = None
        self._asking.cancel()

    def _noticed(self, directory: Path, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._failed, directory, reason)

    def _failed(self, directory: Path, reason: str) -> None:
        logs = self._logs
        if directory in logs.offline or logs.watch.on_failure is None:
            return
        lost = logs.take_offline(directory, reason)
        self._replicas.take_offline(lost)
        self.on_failure(directory)
        log.error("data directory %s failed: %s; %d partitions are offline", directory, reason, len(lost))
        if directory == logs.essential or not logs.directories:
            why = "it has the cluster's metadata" if logs.directories else "there is no other"
            self._tasks.create_task(_lose(f"data directory {directory} failed: {reason}; {why}, so the broker ends"))
        else:
            self._tasks.create_task(self._announce())

    async def _announce(self) -> None:
        self._is_told = False
        try:
            await log_dir_events.announce(self._tree, self._broker_id)
            self._is_told = True
        except (KafkaError, TreeError) as error:
            log.warning("the controller could not be told of a data directory: %s", error)

    async def _ask_again(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(ASK_AGAIN_S)
            if self._replicas.refused or not self._is_told:
                self._replicas.refused.clear()
                await self._announce()


async def _lose(why: str) -> None:
    raise DirectoryLost(why)
