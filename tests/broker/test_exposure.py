"""What `headrace serve` opens to other machines, and to other users of its own."""

import os
import stat
from pathlib import Path

import pytest

from headrace.broker.exposure import is_loopback, readable_directories, refuse_exposure
from headrace.broker.options import INSECURE, StartRefused, parse_options
from headrace.config import parse_broker
from headrace.security.sasl.oauthbearer import UNSECURED
from tests.harness import HeadraceServer, tail

BEARER = {"listeners": "SASL_SSL://0.0.0.0:9093", "sasl.enabled.mechanisms": "OAUTHBEARER"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
)
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "127.example.com", "localhost.example.com", "kafka"])
def test_what_may_be_another_machine_is_taken_for_one(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"listeners": "0.0.0.0:9092"}, "listener PLAINTEXT://0.0.0.0:9092 can be reached"),
        (
            {"listeners": "IN://127.0.0.1:1,OUT://:2", "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT"},
            "OUT://",
        ),
        ({"listeners": "[::]:9092"}, "say --insecure"),
        ({"headrace.metrics.listen": "0.0.0.0:9404"}, "headrace.metrics.listen=0.0.0.0:9404 can be reached"),
        ({"headrace.metrics.listen": "[::]:9404"}, "say --insecure=metrics"),
        ({**BEARER, UNSECURED: "true"}, "the unsecured validator"),
        ({**BEARER, f"listener.name.sasl_ssl.{UNSECURED}": "true"}, "listener SASL_SSL://0.0.0.0:9093 can be reached"),
        ({"listeners": "SSL://0.0.0.0:9093", "ssl.client.auth": "requested"}, "ssl.client.auth=required"),
    ],
)
def test_strangers_are_not_served_unless_that_is_said(settings: dict[str, str], hint: str) -> None:
    config = parse_broker(settings)
    with pytest.raises(StartRefused) as refused:
        refuse_exposure(config, INSECURE[None])
    assert hint in str(refused.value) and "\n" not in str(refused.value)
    refuse_exposure(config, INSECURE["all"])


def test_each_kind_of_openness_is_said_by_itself() -> None:
    config = parse_broker({"listeners": "0.0.0.0:9092", "headrace.metrics.listen": "0.0.0.0:9404"})
    for given, left in (("listeners", "headrace.metrics.listen"), ("metrics", "listener PLAINTEXT")):
        options = parse_options([f"--insecure={given}"])
        assert not isinstance(options, str)
        with pytest.raises(StartRefused, match=f"^{left}"):
            refuse_exposure(config, options.insecure)


@pytest.mark.parametrize(
    "settings",
    [
        BEARER,
        {**BEARER, UNSECURED: "true", "sasl.enabled.mechanisms": "PLAIN"},
        {"listeners": "SSL://0.0.0.0:9093", "ssl.client.auth": "required"},
    ],
)
def test_whom_a_listener_knows_may_come_from_anywhere(settings: dict[str, str]) -> None:
    refuse_exposure(parse_broker(settings), INSECURE[None])


@pytest.mark.parametrize("settings", [{}, {"headrace.metrics.listen": ":9404"}, {"listeners": "[::1]:9092"}])
def test_loopback_is_served(settings: dict[str, str]) -> None:
    refuse_exposure(parse_broker(settings), INSECURE[None])


def test_a_secret_on_the_command_line_is_a_warning_without_the_secret() -> None:
    options = parse_options(["--set", "ssl.keystore.password=hunter2", "--set", "ssl.keystore.type=PEM"])
    assert not isinstance(options, str)
    [warning] = options.properties.warnings
    assert warning.startswith("ssl.keystore.password is on the command line") and "hunter2" not in warning


def test_a_directory_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    [warning] = readable_directories([str(tmp_path), str(tmp_path / "new")])
    assert f"chmod 700 {tmp_path}" in warning
    tmp_path.chmod(0o750)
    assert readable_directories([str(tmp_path)]) == []


@pytest.mark.slow
def test_files_of_a_broker_are_its_users_alone_and_name_no_secret(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        server = HeadraceServer(tmp_path / "data", {"zookeeper.ssl.keystore.password": "hunter2"}).start()
    finally:
        os.umask(before)
    assert server.stop() == 0, tail(server.stderr_file)
    found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert [path for path in found if path.is_file() and b"hunter2" in path.read_bytes()] == []
    assert "hunter2" not in tail(server.stderr_file)


@pytest.mark.slow
def test_serve_refuses_in_one_line_with_exit_code_2(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", listen="0.0.0.0:0")
    with pytest.raises(RuntimeError):
        server.start()
    assert server.process is not None and server.process.returncode == 2
    assert tail(server.stderr_file).count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "name", ["password.encoder.secret", "delegation.token.secret.key", "headrace.zookeeper.digest"]
)
def test_every_secret_on_the_command_line_is_warned_of(name: str) -> None:
    options = parse_options(["--set", f"{name}=user:hunter2"])
    assert not isinstance(options, str)
    assert [each for each in options.properties.warnings if each.startswith(f"{name} is on the command line")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delegation.token.secret.key", "${file:/run/secrets/kafka.properties:hunter2}"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", 'X required user_a="${env:HUNTER2}";'),
        ("ssl.key.password", "${directory:/run/secrets:hunter2}"),
    ],
)
def test_a_reference_is_never_taken_for_the_secret_itself(name: str, text: str) -> None:
    """Apache Kafka's brokers look it up. Here everybody could guess the secret."""
    with pytest.raises(StartRefused, match=f"{name} refers to a config provider") as refused:
        parse_options(["--set", f"{name}={text}"])
    assert "hunter2" not in str(refused.value).lower()
