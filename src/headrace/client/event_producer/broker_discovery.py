"""Finds the brokers in ZooKeeper, and tells a producer when brokers come and go, or topics in use change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from headrace.client.core.settings import ClientSettings
from headrace.client.zookeeper_consumer.group_registry import (
    TOPICS,
    live_brokers,
    partitions_of,
    security_protocol,
)
from headrace.client.zookeeper_consumer.zookeeper_session import ZooKeeperSession
from headrace.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_AGAIN_S = 2.0
_NOT_YET_S = 0.1
"""After a change in ZooKeeper, until the brokers know of it."""


Tell = Callable[[Sequence[str], Mapping[str, int]], bool]
"""(brokers, numbers of partitions of the topics in use) -> whether the producer sees as many."""


class BrokerDiscovery:
    """Watches on the brokers, the list of topics and the topics in use; one thread follows them."""

    def __init__(self, zookeeper: str, client: ClientSettings) -> None:
        """Raises ZooKeeperUnavailable; KafkaError if there is no broker."""
        self._protocol = security_protocol(client)
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._topics: set[str] = set()
        self._tell: Tell | None = None
        self._thread = threading.Thread(target=self._follow, name="headrace-broker-discovery", daemon=True)
        self._session = ZooKeeperSession(zookeeper, self._changed.set)
        self._session.open()
        self.brokers: list[str] = self._look()[0]
        if not self.brokers:
            self._session.close()
            raise KafkaError(
                f"no broker for {self._protocol} is registered at {zookeeper}: check the chroot, and whether one runs",
                ErrorCode.BROKER_NOT_AVAILABLE,
            )

    def follow(self, tell: Tell) -> None:
        """Call `tell`, on a thread, whenever something has changed, and again until it agrees."""
        self._tell = tell
        self._thread.start()

    def use(self, topic: str) -> None:
        """Watch this topic as well. Any thread may call."""
        if topic not in self._topics:
            self._topics.add(topic)
            self._changed.set()

    def close(self) -> None:
        """End the thread and the session."""
        self._closed.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        self._session.close()

    def _look(self) -> tuple[list[str], dict[str, int]]:
        """The brokers, and the numbers of partitions of the topics in use, under watches."""
        found = [str(address) for address in live_brokers(self._session, self._protocol)]
        self._session.children(TOPICS, watch=True)
        topics = tuple(self._topics)
        nodes = self._session.read([f"{TOPICS}/{name}" for name in topics], watch=True)
        return found, {name: len(partitions_of(name, data)) for name, data in zip(topics, nodes, strict=True)}

    def _follow(self) -> None:
        wait_s: float | None = None
        while not self._closed.is_set():
            self._changed.wait(wait_s)
            self._changed.clear()
            if self._closed.is_set():
                return
            try:
                found, counts = self._look()
                self.brokers = found or self.brokers
                is_known = self._tell is None or self._tell(self.brokers, counts)
                wait_s = None if is_known else _NOT_YET_S
            except KafkaError as cause:
                _log.info("the brokers cannot be read: %s; trying again", cause)
                wait_s = _AGAIN_S
