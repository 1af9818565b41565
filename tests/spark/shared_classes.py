"""Spark's classes as an archive that all drivers of the tests share: a driver starts in half the processor time.

Most of what a driver does in the tests is to read and verify some fifteen thousand classes. A first one runs
`typical_job.py` and writes them down (class data sharing); it takes half a minute, once on a machine. The optimising
compiler, which pays after minutes only, is off as well. A JVM that cannot use the archive ignores it.
"""

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from tests.peers.cache import build_once

JOB = Path(__file__).with_name("typical_job.py")
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def use() -> None:
    """Makes all Spark drivers that are started from now on use it, those of subprocesses too."""
    from headrace.spark.java import find_java_home

    key = f"{sys.prefix} {find_java_home()} {JOB.read_text()}"
    name = f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    archive = build_once(name, _build) / "classes.jsa"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:SharedArchiveFile={archive} -Xlog:disable"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_START


def _build(home: Path) -> list[list[str]]:
    options = f"{QUICK_START} -XX:ArchiveClassesAtExit={home / 'classes.jsa'} -Xlog:disable"
    return [["env", f"SPARK_SUBMIT_OPTS={options}", sys.executable, str(JOB), str(home / "files")]]
