"""A program of Kafka Streams, built once with Maven and javac."""

import os
import subprocess
from pathlib import Path

from tests.conformance.programs import hash_of
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "streams"

VERSION = "4.3.1"

LOG_WITH = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
"""What Kafka Streams and its clients tell of rebalances, tasks and lost connections, without their settings."""


def start_word_count(
    bootstrap: str,
    source: str,
    target: str,
    directory: Path,
    protocol: str = "classic",
    version: str = VERSION,
    session_ms: int = 2_000,
) -> subprocess.Popen[bytes]:
    """WordCount.java in a JVM of its own, in a group of this protocol (classic or streams).

    Its state and its log are in `directory`, where a next one finds them. A killed process leaves a classic group
    after `session_ms`. Releases before 4.1 have no streams protocol.
    """
    home = build_word_count(version)
    path = f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*"
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *LOG_WITH]
    guarantee = "exactly_once_beta" if version.startswith("2.") else "exactly_once_v2"  # the same by its first name
    arguments = [bootstrap, source, target, str(directory / "state"), protocol, guarantee, str(session_ms)]
    command = ["java", *options, "-cp", path, "WordCount", *arguments]
    with (directory / "streams.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def build_word_count(version: str = VERSION) -> Path:
    """The directory of WordCount's classes and of what a release of Kafka Streams needs; made by the first call."""
    sources = hash_of(HERE / "pom.xml", HERE / "WordCount.java")
    return build_once(f"kafka-streams-{version}-{sources}", lambda home: _commands(home, version))


def _commands(home: Path, version: str) -> list[list[str]]:
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={version}"]
    fetch = [*maven, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
    compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
    return [fetch, [*compiler, str(HERE / "WordCount.java")]]
