"""The share state of a broker: the share coordinator and the persister, each built at its first use.

A broker without share groups imports neither. The coordinator is built when this broker begins to lead a partition of
`__share_group_state`, or a request for it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.topics import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.internal_topic import InternalTopic
    from headrace.broker.coordinator_host.share_state_service import ShareStateService
    from headrace.broker.partitions.partition import Partition
    from headrace.coordinators.share_state.persister import Persister, TopicIdPartition
    from headrace.metadata.deltas import MetadataDelta
    from headrace.types import TopicPartition


class ShareCoordinators:
    """The share coordinator of this broker, and its way to all share coordinators."""

    __slots__ = ("_build_coordinator", "_build_persister", "_coordinator", "_persister", "initializing", "topic")

    def __init__(
        self,
        topic: InternalTopic,
        build_coordinator: Callable[[InternalTopic], ShareStateService],
        build_persister: Callable[[ShareCoordinators], Persister],
    ) -> None:
        """`topic` is `__share_group_state`."""
        self.topic = topic
        self.initializing: set[tuple[str, TopicIdPartition]] = set()
        """Share partitions, with their group, that the persister is asked to initialize for a group of this broker."""
        self._build_coordinator, self._build_persister = build_coordinator, build_persister
        self._coordinator: ShareStateService | None = None
        self._persister: Persister | None = None

    @property
    def coordinator(self) -> ShareStateService:
        """The share partitions that this broker coordinates."""
        if self._coordinator is None:
            self._coordinator = self._build_coordinator(self.topic)
        return self._coordinator

    @property
    def started(self) -> ShareStateService | None:
        """The coordinator, if it has been used."""
        return self._coordinator

    @property
    def persister(self) -> Persister:
        """Reads and writes share partitions, whichever broker coordinates them."""
        if self._persister is None:
            self._persister = self._build_persister(self)
        return self._persister

    def leadership_changed(self, key: TopicPartition, partition: Partition | None) -> None:
        """Follows what this broker leads."""
        if key.topic == SHARE_STATE_TOPIC and (self._coordinator is not None or partition is not None):
            self.coordinator.runtime.leadership_changed(key, partition)

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Follows which topics are deleted."""
        if self._coordinator is not None:
            self._coordinator.on_metadata(delta)

    def close(self) -> None:
        """Stops timers, and ends what waits for a share coordinator."""
        if self._persister is not None:
            self._persister.close()
        if self._coordinator is not None:
            self._coordinator.runtime.close()
