"""Commands against a secured broker: by a file, the environment, and contexts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker, Security
from tests.eventually import WITHIN_SECONDS

pytestmark = pytest.mark.slow
SECRET = "hunter2-is-the-secret"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=Security("SASL_SSL", users={"alice": SECRET})) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, broker: Broker) -> Path:
    """A configuration directory with the context `prod`, and the options as client.properties."""
    options = broker.client_options("alice")
    jaas = options["sasl.jaas.config"]
    contexts = tmp_path / "headrace"
    contexts.mkdir()
    lines = "".join(f'"{name}" = {value!r}\n' for name, value in {**options, "sasl.jaas.config": jaas}.items())
    (contexts / "prod.toml").write_text(f'bootstrap = "{broker.bootstrap}"\n[options]\n{lines}')
    (contexts / "prod.toml").chmod(0o600)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    file.chmod(0o600)
    return tmp_path


def run(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        env={**base, "XDG_CONFIG_HOME": str(home), "COLUMNS": "200", **environ},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WITHIN_SECONDS,
    )  # fmt: skip
    assert SECRET not in done.stdout and SECRET not in done.stderr
    return done


def test_a_command_takes_a_file_of_kafkas_options(home: Path, broker: Broker) -> None:
    file = str(home / "client.properties")
    made = run(home, "topic", "create", "t", "-b", broker.bootstrap, "--command-config", file)
    assert (made.returncode, made.stderr) == (0, "")
    listed = run(home, "topic", "list", HEADRACE_COMMAND_CONFIG=file, HEADRACE_BOOTSTRAP=broker.bootstrap)
    assert "t" in listed.stdout.split()


def test_a_command_takes_options_from_the_environment(home: Path, broker: Broker) -> None:
    options = broker.client_options("alice")
    environ = {f"HEADRACE_{name.upper().replace('.', '_')}": value for name, value in options.items()}
    done = run(home, "cluster", "status", HEADRACE_BOOTSTRAP=broker.bootstrap, **environ)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_takes_a_context(home: Path, broker: Broker) -> None:
    for arguments in (["--context", "prod", "topic", "list"], ["topic", "list", "--context", "prod"]):
        done = run(home, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
    assert run(home, "topic", "list", HEADRACE_CONTEXT="prod").returncode == 0
    assert run(home, "context", "use", "prod").stdout == "context prod is current\n"
    assert run(home, "topic", "list").returncode == 0
    assert run(home, "context", "list").stdout.splitlines()[1].split()[:2] == ["*", "prod"]
    refused = run(home, "topic", "list", "-b", broker.bootstrap)
    assert refused.returncode == 1 and "security.protocol=SSL, or SASL_SSL" in refused.stderr


def test_a_context_is_shown_without_its_secrets(home: Path) -> None:
    done = run(home, "context", "show", "prod")
    assert "[hidden]" in done.stdout and "SCRAM-SHA-512" in done.stdout
    assert "[hidden]" in run(home, "context", "show", "prod", "--json").stdout


def test_a_file_of_secrets_that_others_can_read_is_a_warning(home: Path) -> None:
    (home / "headrace" / "prod.toml").chmod(0o644)
    done = run(home, "--context", "prod", "topic", "list")
    assert done.returncode == 0 and "warning: " in done.stderr and "chmod 600" in done.stderr


def test_a_mistake_is_one_line(home: Path, broker: Broker) -> None:
    text = (home / "client.properties").read_text()
    for old, new, code, hint in (
        (SECRET, "wrong", 1, "refused the authentication by SCRAM-SHA-512"),
        ("SCRAM-SHA-512", "SCRAM-SHA-256", 1, "set sasl.mechanism"),
        ("security.protocol=SASL_SSL", "security.protocol=SASL_PLAINTEXT", 1, "speaks TLS"),
        ("ssl.truststore.location=", "ssl.truststore.location=/nowhere", 2, "/nowhere"),
        ("sasl.mechanism", "sasl.mechanisms", 2, "sasl.mechanism"),
        ("security.protocol=SASL_SSL", "", 2, "security.protocol=SASL_SSL"),
    ):
        (home / "client.properties").write_text(text.replace(old, new))
        done = run(home, "topic", "list", "-b", broker.bootstrap, "--command-config", str(home / "client.properties"))
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert hint in done.stderr
