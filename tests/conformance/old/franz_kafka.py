"""franz-kafka, the npm package that speaks the wire of Kafka 0.7 to brokers that it finds in ZooKeeper."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.programs import Machine, hash_of
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "js" / "franz"
_FILES = ("package.json", "franz.js")


class FranzKafkaProgram:
    """js/franz/franz.js with its packages."""

    tools = ("node", "npm")

    def command(self) -> list[str]:
        """The packages are beside a copy of the program, where node looks for them."""
        home = build_once(f"franz-kafka-{hash_of(*(HERE / each for each in _FILES))}", self._build)
        return ["node", "--no-deprecation", str(home / "franz.js")]

    def _build(self, home: Path) -> list[list[str]]:
        for each in _FILES:
            shutil.copy(HERE / each, home)
        options = ["--ignore-scripts", "--omit=optional", "--no-package-lock", "--no-audit", "--no-fund"]
        return [["npm", "install", "--prefix", str(home), *options]]


class FranzKafka:
    """A producer, and a member of a group once it consumes."""

    def __init__(self, zookeeper: str, group: str, compression: str = "none") -> None:
        """Waits until it has found a broker. `zookeeper` is HOST:PORT; it knows no chroot."""
        self.machine = Machine(FranzKafkaProgram())
        self.machine.ask("connect", zookeeper=zookeeper, group=group, compression=compression)

    def partitions(self, topic: str) -> list[str]:
        """What it has found, as `BROKER-PARTITION`."""
        found: list[str] = self.machine.ask("partitions", topic=topic)
        return found

    def produce(self, topic: str, values: Sequence[str]) -> None:
        """Send values to all partitions in turn, in batches."""
        self.machine.ask("produce", topic=topic, values=list(values))

    def consume(self, topic: str) -> None:
        """Join the group, and read the partitions that it claims from their start."""
        self.machine.ask("consume", topic=topic)

    def values(self) -> list[str]:
        """All that have arrived."""
        found: list[str] = self.machine.ask("values")
        return found
