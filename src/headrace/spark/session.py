"""A local Spark session that starts quickly and logs errors only.

Differences from Spark's defaults:

    JAVA_HOME                              found or made by `headrace.spark.java`
    PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON  this interpreter, or workers are whatever python3 is on PATH
    SPARK_LOCAL_IP, driver host            127.0.0.1: nothing listens beyond this machine
    UI off, 2 shuffle partitions           a local job's data fits, and a listener would cost a second
    C1 compiler, serial collector          `short_lived` only: a job of seconds ends before big ones pay
    Parquet timestamps as microseconds     INT96, Spark's default, has no statistics and is deprecated
    Arrow's checks in Java off             each value that Java takes out of a batch is compared with its bounds again
                                           otherwise, a tenth or more of a read; batches come from our own pyarrow
    java.io.tmpdir                         Python's temporary directory, so that $TMPDIR moves both
    logs                                   errors only, on stderr (log4j2.properties beside this file)

For a cluster, build the session as usual: `spark.read.format("headrace")` needs none of these settings.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def session(
    app_name: str = "headrace",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    short_lived: bool = False,
) -> "SparkSession":
    """Start (or get) a local session; `settings` are Spark's own and override the defaults here.

    Streams with a kafka.group.id show their progress as that group's offsets (`headrace.spark.progress`).
    `short_lived` is for jobs of up to about a million records: a fifth less from start to result, but half the
    speed once warm. JavaNotFoundError when there is no Java.
    """
    _prepare_environment()
    from pyspark.sql import SparkSession

    from headrace.spark.progress import watch_progress

    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**_local_settings(short_lived), **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    watch_progress(made)
    return made


def _prepare_environment() -> None:
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Arrow's and pandas' notes about each other, once per worker process, are not for our users.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")


def _local_settings(short_lived: bool) -> dict[str, str]:
    compiler = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if short_lived else ""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (
            f'-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} "-Djava.io.tmpdir={tempfile.gettempdir()}" '
            f"{_ARROW_OPTIONS}{compiler}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }
