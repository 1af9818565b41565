"""Sessions that are not local: what they leave to Spark's settings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from headrace.spark.java import find_java_home
from tests.spark.conftest import TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.slow]
JOB = Path(__file__).with_name("remote_job.py")
RECORDS = 140


def run(command: list[str], scratch: Path, **environment: str) -> dict[str, Any]:
    """What the job printed."""
    known = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    paths = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "SPARK_WORKER_DIR": str(scratch)}
    ended = subprocess.run(
        command, env={**known, **paths, **environment}, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_workers_of_a_cluster_keep_their_python_and_reach_the_driver(readings: str, tmp_path: Path) -> None:
    """A worker is a process with an environment of its own; its Python is what the administrator says."""
    own = tmp_path / "python-of-the-workers"
    own.symlink_to(sys.executable)
    environment = {
        "PYSPARK_PYTHON": str(own),
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }
    command = [sys.executable, str(JOB), readings, TOPIC, "local-cluster[1,1,1024]"]
    found = run(command, tmp_path, **environment)
    assert (found["records"], found["python"], found["host"]) == (RECORDS, str(own), "localhost")


def test_under_spark_submit_its_options_decide(readings: str, tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    options = ["--master", "local[1]", "--conf", "spark.driver.host=localhost"]
    environment = {"JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": sys.executable}
    found = run([submit, *options, str(JOB), readings, TOPIC], tmp_path, **environment)
    assert (found["records"], found["master"], found["host"]) == (RECORDS, "local[1]", "localhost")
