"""A program of Kafka Streams, built once with Maven and javac."""

import os
import subprocess
from pathlib import Path

from tests.conformance.programs import hash_of
from tests.peers.cache import build_once

HERE = Path(__file__).parent / "streams"


def start_word_count(bootstrap: str, source: str, target: str, directory: Path) -> subprocess.Popen[bytes]:
    """WordCount.java in a JVM of its own. Its state and its log are in `directory`, where a next one finds them."""
    sources = (HERE / "pom.xml", HERE / "WordCount.java")
    home = build_once(f"kafka-streams-{hash_of(*sources)}", _build)
    path = f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*"
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["java", *options, "-cp", path, "WordCount", bootstrap, source, target, str(directory / "state")]
    with (directory / "streams.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _build(home: Path) -> list[list[str]]:
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    fetch = [*maven, f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]
    compiler = ["javac", "-nowarn", "-d", str(home / "classes"), "-cp", f"{home / 'lib'}/*"]
    return [fetch, [*compiler, str(HERE / "WordCount.java")]]
