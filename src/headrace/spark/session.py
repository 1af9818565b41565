"""A Spark session that starts quickly and logs errors only: a local one, or one of a cluster.

Differences from Spark's defaults, in a local session:

    JAVA_HOME                              found or made by `headrace.spark.java`
    PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON  this interpreter, or workers are whatever python3 is on PATH
    SPARK_LOCAL_IP, driver host            127.0.0.1: nothing listens beyond this machine
    UI off, 2 shuffle partitions           a local job's data fits, and a listener would cost a second
    SPARK_HOME                             links to the installed pyspark without its zip file, unless you set it
                                           (`spark_home`): the first read takes two thirds of the time
    Unix sockets to Python                 over TCP, each task waits 40 ms for a delayed acknowledgement; they are in a
                                           directory of this user's own
    C1 compiler, serial collector          `short_lived` only: a job of seconds ends before big ones pay
    Parquet timestamps as microseconds     INT96, Spark's default, has no statistics and is deprecated
    Arrow's checks in Java off             each value that Java takes out of a batch is compared with its bounds again
                                           otherwise, a tenth or more of a read; batches come from our own pyarrow
    java.io.tmpdir                         Python's temporary directory, so that $TMPDIR moves both
    secret options hidden                  Spark's own pattern does not know kafka.sasl.jaas.config or a key in PEM
    logs                                   errors only, on stderr (log4j2.properties beside this file)

With the master of a cluster, the settings of addresses, of the workers' Python, of the UI and of shuffles stay Spark's
or yours: the workers must reach the driver, and have a Python of their own. Under spark-submit, its options and
spark-defaults.conf decide, and only the settings of SQL above are made. A session that is built without this module
works as well: `spark.read.format("headrace")` needs none of these settings.
"""

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.security.secrets import SECRET_PATTERN
from headrace.spark import spark_home
from headrace.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LOCAL = re.compile(r"local(\[.*\])?")
_LOCAL_MASTER = "local[*]"
_SOCKET_FOLDER_BYTES_MAX = 40
"""A path of a socket has 107 bytes; Spark's names have 43 to 50, our directory's 18."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def session(
    app_name: str = "headrace",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    short_lived: bool = False,
) -> "SparkSession":
    """Start (or get) a session; `settings` are Spark's own and override the defaults here.

    `master` is that of spark-submit by default, and without spark-submit local[*]. Streams with a kafka.group.id show
    their progress as that group's offsets (`headrace.spark.progress`). `short_lived` is for local jobs of up to about a
    million records: a fifth less from start to result, but half the speed once warm. JavaNotFoundError when there is no
    Java.
    """
    given = dict(settings or {})
    chosen = master or given.get("spark.master")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, with its options
    if chosen is None and not is_submitted:
        chosen = _LOCAL_MASTER
    is_local = not is_submitted and chosen is not None and _LOCAL.fullmatch(chosen) is not None
    if not is_submitted:
        _prepare_environment(is_local)
    from pyspark.sql import SparkSession

    from headrace.spark.progress import watch_progress

    builder = SparkSession.builder.appName(app_name)
    if chosen is not None:
        builder = builder.master(chosen)
    defaults = _SQL_SETTINGS if is_submitted else {**_SQL_SETTINGS, **_driver_settings(short_lived and is_local)}
    if is_local:
        defaults = {**defaults, **_LOCAL_SETTINGS, **_socket_settings()}
    for key, value in {**defaults, **given}.items():
        builder = builder.config(key, value)
    with spark_home.of_links() if is_local else nullcontext():
        made = builder.getOrCreate()
    watch_progress(made)
    return made


def _prepare_environment(is_local: bool) -> None:
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Arrow's and pandas' notes about each other, once per worker process, are not for our users.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")


_SQL_SETTINGS: Mapping[str, str] = {
    "spark.sql.redaction.options.regex": f"(?i)url|{SECRET_PATTERN}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
_LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def _socket_settings() -> dict[str, str]:
    """Unix sockets between Java and Python, where there are such and their paths are short enough."""
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(tempfile.gettempdir())) > _SOCKET_FOLDER_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _socket_directory(),
    }


@cache
def _socket_directory() -> str:
    """A directory of this process, which no other user may enter: Spark lets in whoever finds a Unix socket."""
    directory = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _driver_settings(short_lived: bool) -> dict[str, str]:
    """Settings of a driver's JVM that starts on this machine."""
    compiler = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if short_lived else ""
    return {
        "spark.driver.extraJavaOptions": (
            f'-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} "-Djava.io.tmpdir={tempfile.gettempdir()}" '
            f"{_ARROW_OPTIONS}{compiler}"
        ),
        "spark.ui.showConsoleProgress": "false",
    }
