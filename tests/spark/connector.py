"""Spark's own Kafka connector, as a peer."""

from pathlib import Path

from tests.peers.cache import build_once
from tests.peers.kafka import missing_tools

_POM = Path(__file__).parents[2] / "benchmarks" / "spark" / "connector.pom.xml"


def connector_jars() -> str:
    """The paths of its jars, separated by commas; none where they cannot be fetched."""
    if missing_tools() is not None:
        return ""
    fetch = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
    home = build_once("spark-kafka-connector-4.2.0", lambda home: [[*fetch, f"-DoutputDirectory={home}"]])
    return ",".join(str(each) for each in sorted(home.glob("*.jar")))
