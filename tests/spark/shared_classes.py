"""Spark as the drivers of the tests use it: they start in half the processor time, and so do their Python processes.

Most of what a driver does in the tests is to read and verify some fifteen thousand classes. A first one runs
`typical_job.py` and writes them down (class data sharing); it takes half a minute, once on a machine. The optimising
compiler, which pays after minutes only, is off as well. A JVM that cannot use the archive ignores it.

SPARK_HOME is that of a local session (`headrace.spark.spark_home`), also of drivers that do without `session()`.
Drivers of `test_session.py` and `test_standalone_cluster.py` do without all this.
"""

import hashlib
import os
import sys
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from tests.peers.cache import build_once

JOB = Path(__file__).with_name("typical_job.py")
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def use() -> None:
    """Makes all Spark drivers that are started from now on use it, those of subprocesses too."""
    from headrace.spark import spark_home
    from headrace.spark.java import find_java_home

    spark = find_spec("pyspark")
    assert spark is not None
    os.environ.pop("SPARK_HOME", None)
    with spark_home.of_links():
        home = {name: os.environ[name] for name in ("SPARK_HOME",) if name in os.environ}
    key = f"{spark.origin} {home} {find_java_home()} {JOB.read_text()}"
    name = f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    archive = build_once(name, partial(_build, home)) / "classes.jsa"
    os.environ.update(home)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:SharedArchiveFile={archive} -Xlog:disable"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_START


def _build(home: dict[str, str], place: Path) -> list[list[str]]:
    options = f"{QUICK_START} -XX:ArchiveClassesAtExit={place / 'classes.jsa'} -Xlog:disable"
    given = [f"{name}={value}" for name, value in {**home, "SPARK_SUBMIT_OPTS": options}.items()]
    return [["env", *given, sys.executable, str(JOB), str(place / "files")]]
