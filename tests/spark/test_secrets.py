"""Spark over SASL and TLS, with the password in the options: it is in no plan, log, error, event log or checkpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from headrace.testing import Broker, Security
from tests import rotation
from tests.harness import child_environment
from tests.spark import shared_classes
from tests.spark.connector import connector_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow]
SECRET = "hunter2-is-the-secret"
JOB = Path(__file__).with_name("secret_job.py")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    security = Security("SASL_SSL", users={"admin": "admin-secret", "alice": SECRET})
    with Broker(security=security, subprocess=True) as running:
        settings = running.client_settings("admin")
        with Admin(running.bootstrap, settings) as admin:
            admin.create_topics([NewTopic("secured", 1), NewTopic("copied", 1)])
        with Producer(running.bootstrap, client=settings) as producer:
            for n in range(5):
                producer.send("secured", b"%d" % n)
        yield running


def spark_options(broker: Broker) -> dict[str, str]:
    options = {f"kafka.{name}": value for name, value in broker.client_options("alice").items()}
    return {"kafka.bootstrap.servers": broker.bootstrap, **options}


def holders(directory: Path) -> list[str]:
    """The files below a directory that have the secret."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@rotation.on_its_day(1, of=2)
def test_a_password_in_the_options_is_nowhere_to_be_read(broker: Broker, tmp_path: Path) -> None:
    shared_classes.use()
    jars = connector_jars()
    given = json.dumps({**spark_options(broker), "connector.jars": jars})
    done = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path / "job")],
        input=given, capture_output=True, text=True, env=child_environment(), timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rows 5\n" in done.stdout and "copied 10\n" in done.stdout
    assert done.stdout.count("refused ") == 3
    assert not jars or "connector 5\n" in done.stdout
    assert SECRET not in done.stdout and SECRET not in done.stderr
    assert list((tmp_path / "job" / "events").rglob("events_*")) and (tmp_path / "job" / "checkpoint").is_dir()
    assert holders(tmp_path) == []


@rotation.on_its_day(0, of=2)
def test_the_loader_takes_a_file_of_options_and_gives_spark_references(broker: Broker, tmp_path: Path) -> None:
    shared_classes.use()
    config = tmp_path / "client.properties"
    options = {"bootstrap.servers": broker.bootstrap, **broker.client_options("alice")}
    config.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    config.chmod(0o600)
    table = tmp_path / "table"
    events = f"spark.eventLog.dir={(tmp_path / 'events').as_uri()}"
    (tmp_path / "events").mkdir()
    more = ["--conf", events, "--conf", "spark.eventLog.enabled=true", "--conf", "spark.eventLog.compress=false"]
    command = [
        sys.executable,
        "-m",
        "headrace",
        "load",
        "secured",
        "--command-config",
        str(config),
        "--table",
        str(table),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_BOOTSTRAP")}
    done = subprocess.run([*command, *more], capture_output=True, text=True, env=environment, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "5 rows" in done.stdout and done.stderr.count("warning") == 0
    assert SECRET not in done.stdout and SECRET not in done.stderr
    assert holders(tmp_path) == [str(config)]


def test_the_loader_takes_no_password_on_the_command_line(broker: Broker, tmp_path: Path) -> None:
    jaas = broker.client_options("alice")["sasl.jaas.config"]
    command = [sys.executable, "-m", "headrace", "load", "secured", "--table", str(tmp_path / "t")]
    done = subprocess.run([*command, "--kafka", f"sasl.jaas.config={jaas}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "use --command-config" in done.stderr
    assert SECRET not in done.stderr
