"""What a cluster on ZooKeeper has written into its metadata store, of whichever kind its brokers are."""

import json
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


class ZooKeeperView:
    """The nodes of one cluster; `store` is started and stopped by whoever owns the cluster."""

    def __init__(self, store: KazooClient) -> None:
        self.store = store

    def read(self, path: str) -> Any:
        """A node's JSON; None when it is not there, or empty."""
        try:
            data = self.store.get(path)[0]
        except NoNodeError:
            return None
        return json.loads(data) if data else None

    def children(self, path: str) -> list[str]:
        """The names of a node's children."""
        return sorted(self.store.get_children(path))

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Leader, leader epoch and ISR."""
        return self.read(f"/brokers/topics/{topic}/partitions/{partition}/state") or {"leader": -1, "isr": []}

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The assignment, by partition."""
        found = self.read(f"/brokers/topics/{topic}") or {"partitions": {}}
        return {int(number): replicas for number, replicas in found["partitions"].items()}

    def is_in_sync(self, topic: str) -> bool:
        """Whether every replica of every partition is."""
        return all(set(self.state(topic, p)["isr"]) == set(each) for p, each in self.replicas(topic).items())

    def controller(self) -> int:
        """Who is; -1 for nobody."""
        found = self.read("/controller")
        return -1 if found is None else int(found["brokerid"])
