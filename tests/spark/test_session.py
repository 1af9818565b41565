"""Sessions: sockets of local ones; what others leave to Spark's settings."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.spark import spark_home
from headrace.spark.java import find_java_home
from headrace.spark.session import _socket_settings
from tests import rotation
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


def test_java_and_python_of_a_local_session_talk_over_sockets_that_no_other_user_reaches(spark: SparkSession) -> None:
    assert spark.range(3).rdd.map(lambda row: row.id).sum() == 3
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.python.unix.domain.socket.enabled") == "true"
    directory = Path(str(settings.get("spark.python.unix.domain.socket.dir")))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(stat.S_ISSOCK(one.stat().st_mode) for one in directory.iterdir())


def test_a_temporary_directory_whose_path_is_too_long_for_sockets_leaves_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 60)
    assert _socket_settings() == {}


WHERE_FROM = """
import json, os, pyspark
from headrace.spark.session import session

spark = session(short_lived=True)
workers = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).first()
print(json.dumps({"workers": workers, "driver": pyspark.__file__, "home": os.environ.get("SPARK_HOME")}))
spark.stop()
"""


def test_workers_of_a_local_session_import_the_installed_pyspark_and_not_its_source_in_a_zip_file(
    tmp_path: Path,
) -> None:
    found = run([sys.executable, "-c", WHERE_FROM], tmp_path)
    assert found == {"workers": pyspark.__file__, "driver": pyspark.__file__, "home": None}


def test_links_of_another_installation_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    installed, home = Path(pyspark.__file__).parent, tmp_path
    for _ in range(2):
        with spark_home.of_links():
            home = Path(os.environ["SPARK_HOME"])
            assert (home / "jars").readlink() == installed / "jars"
            assert not (home / "python").exists()
        (home / "jars").unlink()
        (home / "jars").symlink_to(tmp_path)
    assert home.parent == tmp_path / "headrace"
    assert "SPARK_HOME" not in os.environ


def test_a_directory_that_cannot_be_written_leaves_spark_home_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setattr(spark_home, "writable_bases", lambda environ: iter([tmp_path / "file"]))
    with spark_home.of_links():
        assert "SPARK_HOME" not in os.environ


def test_a_spark_home_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with spark_home.of_links():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@rotation.on_its_day(0, of=2)
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


@rotation.on_its_day(1, of=2)
def test_under_spark_submit_its_options_decide(readings: str, tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    options = ["--master", "local[1]", "--conf", "spark.driver.host=localhost"]
    environment = {"JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": sys.executable}
    found = run([submit, *options, str(JOB), readings, TOPIC], tmp_path, **environment)
    assert (found["records"], found["master"], found["host"]) == (RECORDS, "local[1]", "localhost")
