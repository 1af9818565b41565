"""How the programs of old releases come to be."""

import os
from pathlib import Path

from tests.conformance.programs import hash_of
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "java"
SOURCES = {
    "0.8.2.2": ("0.8",),
    "0.9.0.1": ("consumer", "0.9"),
    "0.10.2.2": ("consumer", "0.10"),
    "1.1.1": ("consumer", "1.1"),
}
"""What a release is compiled with, beside Old.java."""


class OldJavaProgram:
    """Old.java with a release of Apache Kafka's client; with all of 0.8.2, whose consumer is in the broker's jar."""

    tools = ("java", "javac", "mvn")

    def __init__(self, version: str) -> None:
        self.version = version

    def command(self) -> list[str]:
        """A JVM that stops optimizing early: it lives for seconds."""
        name = f"kafka-old-clients-{self.version}-{hash_of(HERE / 'pom.xml', *self._sources())}"
        home = build_once(name, self._build)
        path = f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*"
        return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "Old"]

    def _sources(self) -> list[Path]:
        return [
            HERE / "Old.java",
            *(each for part in SOURCES[self.version] for each in sorted((HERE / part).iterdir())),
        ]

    def _build(self, home: Path) -> list[list[str]]:
        artifact = "kafka_2.11" if self.version.startswith("0.8") else "kafka-clients"
        maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml")]
        release = [f"-Dkafka.version={self.version}", f"-Dkafka.artifact={artifact}"]
        fetch = ["dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
        compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
        return [[*maven, *release, *fetch], [*compiler, *map(str, self._sources())]]
