"""Spark as the drivers of the tests use it: they start in half the processor time, and so do their Python processes.

Most of what a driver does in the tests is to read and verify some fifteen thousand classes. A first one runs
`typical_job.py` and writes them down (class data sharing); it takes half a minute, once on a machine. The optimising
compiler, which pays after minutes only, is off as well. A JVM that cannot use the archive ignores it.

Spark has its Python processes import pyspark from a zip file in SPARK_HOME. It has no bytecode, so each of them
compiles what it imports, for a second. Here SPARK_HOME lacks that file, and they import the installed package, which is
the same. `test_session.py` and `test_standalone_cluster.py` keep to the file.
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
PARTS = ("bin", "jars")
"""Of SPARK_HOME."""


@cache
def use() -> None:
    """Makes all Spark drivers that are started from now on use it, those of subprocesses too."""
    from headrace.spark.java import find_java_home

    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    key = f"{spark.origin} {find_java_home()} {JOB.read_text()} {PARTS}"
    name = f"spark-classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    home = build_once(name, partial(_build, Path(spark.origin).parent))
    os.environ["SPARK_HOME"] = str(home / "spark")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:SharedArchiveFile={home / 'classes.jsa'} -Xlog:disable"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_START


def _build(installed: Path, home: Path) -> list[list[str]]:
    spark = home / "spark"
    options = f"{QUICK_START} -XX:ArchiveClassesAtExit={home / 'classes.jsa'} -Xlog:disable"
    job = [sys.executable, str(JOB), str(home / "files")]
    return [
        ["mkdir", str(spark)],
        *(["ln", "-s", str(installed / part), str(spark / part)] for part in PARTS),
        ["env", f"SPARK_HOME={spark}", f"SPARK_SUBMIT_OPTS={options}", *job],
    ]
