"""Apache Kafka's classes as archives that its JVMs share: a tool starts with 0.6 s of processor time instead of 1.0.

A first broker, which starts and stops, writes down the classes that it loaded (class data sharing), once on a machine.
A JVM that cannot use the archive ignores it.
"""

import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path

from tests.peers import kafka, node
from tests.peers.cache import build_once
from tests.zookeeper_server import ZooKeeperServer

ROOT = Path(__file__).parents[2]


@cache
def options(version: str = kafka.VERSION) -> tuple[str, ...]:
    """Options of a JVM with Kafka's jars first on its class path."""
    java = Path(shutil.which("java") or "java").resolve()
    jars = kafka.jars() if version == kafka.VERSION else node.old_jars()
    key = hashlib.sha256(f"{java} {jars}".encode()).hexdigest()[:16]
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.peers.kafka_classes", version]
    archive = build_once(f"kafka-{version}-classes-{key}", lambda home: [[*command, str(home)]]) / "classes.jsa"
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")


def main(version: str, home: Path) -> None:
    """Writes `classes.jsa`."""
    making = (f"-XX:ArchiveClassesAtExit={home / 'classes.jsa'}", "-Xlog:disable")
    if version == kafka.VERSION:
        with kafka.run_kafka(home / "broker", options=making):
            pass
    else:
        with ZooKeeperServer(home / "zookeeper") as zookeeper:
            address = zookeeper.chroot("classes")
            with node.KafkaNode(home / "broker", zookeeper=address, options=making, shared=()):
                pass
        shutil.rmtree(home / "zookeeper")
    shutil.rmtree(home / "broker")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
