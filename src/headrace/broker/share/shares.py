"""Share groups on this broker as handlers reach them. The share manager is made at the first share session, so that a
broker without share groups imports nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.share.share_manager import ShareManager
    from headrace.types import TopicPartition


class Shares:
    """The share manager, once it is needed."""

    def __init__(self, make: Callable[[], ShareManager]) -> None:
        self._make = make
        self._manager: ShareManager | None = None

    @property
    def manager(self) -> ShareManager:
        """The share manager, made at the first use."""
        if self._manager is None:
            self._manager = self._make()
        return self._manager

    @property
    def started(self) -> ShareManager | None:
        """The share manager, if it has been used."""
        return self._manager

    def leadership_changed(self, key: TopicPartition, partition: Partition | None) -> None:
        """Follows what this broker leads."""
        if self._manager is not None:
            self._manager.leadership_changed(key, partition)

    def disconnected(self, connection: Hashable) -> None:
        """Ends the share sessions of a connection that has closed."""
        if self._manager is not None:
            self._manager.disconnected(connection)

    def close(self) -> None:
        """Ends the timers."""
        if self._manager is not None:
            self._manager.close()
