"""Contexts, and which of the places where a command's options may be wins."""

from pathlib import Path

import pytest

from headrace.client.security.command_options import command_options
from headrace.client.security.contexts import context_names, current_context, read_context, use_context
from headrace.client.security.providers import resolve
from headrace.errors import InvalidConfig

PROD = """
bootstrap = "kafka:9093"
[options]
security.protocol = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.jaas.config" = "password=hunter2"
request.timeout.ms = 5000
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "headrace").mkdir()
    prod = tmp_path / "headrace" / "prod.toml"
    prod.write_text(PROD)
    prod.chmod(0o600)
    (tmp_path / "headrace" / "local.toml").write_text("")
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_a_context_is_an_address_and_options(environ: dict[str, str]) -> None:
    assert context_names(environ) == ["local", "prod"]
    found = read_context("prod", environ)
    assert (found.bootstrap, found.warning) == ("kafka:9093", None)
    assert dict(found.options) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "password=hunter2",
        "request.timeout.ms": "5000",
    }
    assert "hunter2" not in repr(found)


def test_a_file_with_secrets_that_others_can_read_is_a_warning(environ: dict[str, str]) -> None:
    found = read_context("prod", environ)
    found.path.chmod(0o644)
    warning = read_context("prod", environ).warning
    assert warning is not None and "chmod 600" in warning and "hunter2" not in warning
    found.path.write_text(PROD.replace("password=hunter2", "${env:JAAS}"))
    assert read_context("prod", environ).warning is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("bootstrap = 'hunter2", "is not TOML (at "),
        ("sasl.mechanism = 'PLAIN'", "'sasl' is neither bootstrap nor options"),
        ("bootstrap = 1", "bootstrap is text"),
        ("[options]\na = 2024-01-01", "option a is neither text nor a number"),
    ],
)
def test_a_wrong_file_is_one_line_without_its_content(environ: dict[str, str], text: str, hint: str) -> None:
    path = read_context("prod", environ).path
    path.write_text(text)
    with pytest.raises(InvalidConfig) as refused:
        read_context("prod", environ)
    assert str(path) in refused.value.message and hint in refused.value.message
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize("name", ["../prod", "", ".", "a/b", "nope"])
def test_there_is_no_context_by_another_name(environ: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidConfig, match="context"):
        read_context(name, environ)


def test_the_current_context_is_one_that_was_chosen(environ: dict[str, str]) -> None:
    assert current_context(environ) is None
    use_context("prod", environ)
    assert current_context(environ) == "prod"
    assert command_options(environ=environ).bootstrap == "kafka:9093"
    use_context(None, environ)
    assert current_context(environ) is None
    with pytest.raises(InvalidConfig, match="there is no context 'nope'"):
        use_context("nope", environ)


def test_the_password_of_the_current_context_is_not_sent_to_an_address_that_was_typed(environ: dict[str, str]) -> None:
    use_context("prod", environ)
    assert command_options("other:9092", environ=environ).options == {}
    assert command_options(environ={**environ, "HEADRACE_BOOTSTRAP": "other:9092"}).options == {}
    assert command_options("other:9092", context="prod", environ=environ).options["sasl.mechanism"] == "PLAIN"


def test_flags_win_over_the_environment_and_files_over_contexts(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsasl.mechanism=FROM-FILE\n")
    named = {**environ, "HEADRACE_SASL_MECHANISM": "FROM-ENV", "HEADRACE_BOOTSTRAP": "env:1"}
    assert command_options(environ=named).options == {"sasl.mechanism": "FROM-ENV"}
    assert command_options(context="prod", environ=named).options["sasl.mechanism"] == "PLAIN"
    assert command_options(environ={**named, "HEADRACE_CONTEXT": "prod"}).options["sasl.mechanism"] == "FROM-ENV"
    both = command_options(None, str(file), "prod", named)
    assert (both.options["sasl.mechanism"], both.bootstrap) == ("FROM-FILE", "file:1")
    assert command_options("typed:1", str(file), "prod", named).bootstrap == "typed:1"


def test_every_option_can_be_referred_to_where_it_is(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.password=a b\n")
    found = command_options(None, str(file), "prod", environ={**environ, "HEADRACE_SSL_KEYSTORE_TYPE": "PEM"})
    all_there = {**environ, "HEADRACE_SSL_KEYSTORE_TYPE": "PEM"}
    assert found.options == {name: resolve(name, text, all_there) for name, text in found.references.items()}


def test_a_misspelt_variable_of_the_environment_is_not_ignored(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="HEADRACE_SASL_MECHANISMS is no option"):
        command_options(environ={**environ, "HEADRACE_SASL_MECHANISMS": "PLAIN"})
