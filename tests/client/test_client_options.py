"""Kafka's security options: what is accepted, what is refused with which hint, and that no secret is ever shown."""

import pickle
from pathlib import Path

import pytest

from headrace.client.core.settings import ClientSettings
from headrace.client.security.client_options import client_settings, security_protocol
from headrace.client.security.providers import resolve
from headrace.client.security.secrets import HIDDEN, SecretOptions, holds_secret, is_secret, redacted, shown
from headrace.errors import InvalidConfig

SECRET = "hunter2-is-the-secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{SECRET}";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}


def refusal(options: dict[str, str], prefix: str = "") -> str:
    with pytest.raises(InvalidConfig) as refused:
        client_settings(options, prefix=prefix)
    return refused.value.message


def test_without_options_a_client_is_what_it_was() -> None:
    assert client_settings({}) == ClientSettings()


def test_options_of_others_are_ignored_and_our_own_are_taken() -> None:
    given = {"group.id": "g", "acks": "1", "client.id": "me", "request.timeout.ms": "123"}
    assert client_settings(given) == ClientSettings(client_id="me", request_timeout_ms=123)


def test_options_of_sasl_reach_the_client_and_no_repr() -> None:
    settings = client_settings(SASL)
    assert settings.sasl is not None and settings.sasl["sasl.jaas.config"] == JAAS
    assert SECRET not in f"{settings!r} {settings} {settings.sasl!r} {settings.sasl}"


def test_secret_options_travel_in_pickles() -> None:
    again = pickle.loads(pickle.dumps(SecretOptions(SASL)))  # noqa: S301
    assert again == SASL and SECRET not in repr(again)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"security.protocol": "TLS"}, "security.protocol='TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.mechanism": "PLAIN"}, "set security.protocol=SASL_SSL"),
        ({"ssl.truststore.location": "/ca.pem"}, "set security.protocol=SSL"),
        ({"security.protocol": "SSL", "ssl.trustore.location": "x"}, "did you mean ssl.truststore.location?"),
        ({"security.protocol": "SSL", "ssl.ca.location": "x"}, "the option is ssl.truststore.location"),
        ({**SASL, "sasl.password": SECRET}, "the option is sasl.jaas.config"),
        ({"security.protocol": "SASL_SSL", "ssl.engine.factory.class": "com.x.Y"}, "names a Java class"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is not set: say SCRAM-SHA-512"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms='soon' is not a whole number"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(options: dict[str, str], hint: str) -> None:
    message = refusal(options)
    assert hint in message
    assert SECRET not in message and "\n" not in message


def test_names_in_errors_have_the_prefix_of_the_options() -> None:
    assert refusal({"sasl.mechanism": "PLAIN"}, "kafka.").startswith("kafka.sasl.mechanism is set, but kafka.security.")


def test_the_callback_handler_that_java_needs_for_tokens_is_accepted() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    given = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": handler}
    assert security_protocol(given) == "SASL_PLAINTEXT"


def test_a_protocol_that_is_said_may_leave_other_options_without_effect() -> None:
    assert client_settings({**SASL, "security.protocol": "plaintext"}).sasl is None


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "kafka.ssl.truststore.password",
        "KAFKA.SASL.JAAS.CONFIG",
    ],
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert is_secret(name)
    assert shown(name, SECRET) == HIDDEN


@pytest.mark.parametrize("name", ["ssl.truststore.location", "key.serializer", "sasl.mechanism", "client.id"])
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert shown(name, "x") == "x"


def test_secrets_under_a_wrong_name_are_known_by_what_they_look_like() -> None:
    assert redacted({"sasl.jass.config": JAAS, "a": "-----BEGIN PRIVATE KEY-----"}) == {
        "sasl.jass.config": HIDDEN,
        "a": HIDDEN,
    }


def test_a_reference_is_shown_as_it_is() -> None:
    assert shown("sasl.jaas.config", "${env:JAAS}") == "${env:JAAS}"
    assert shown("sasl.jaas.config", f"${{env:JAAS}} {SECRET}") == HIDDEN


@pytest.mark.parametrize(
    ("value", "is_literal"),
    [
        (JAAS, True),
        ('a.PlainLoginModule required username="u" password="${env:P}";', False),
        ('a.PlainLoginModule required username="u" password=${file:/a:b};', False),
        ("a.OAuthBearerLoginModule required;", False),
        ('a.OAuthBearerLoginModule required clientId="i" clientSecret="s";', True),
        ("${file:/a:jaas}", False),
        ("", False),
    ],
)
def test_a_login_with_references_in_it_holds_no_secret(value: str, is_literal: bool) -> None:
    assert holds_secret("sasl.jaas.config", value) is is_literal


def test_references_are_replaced_by_what_they_refer_to(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={SECRET}\n")
    (tmp_path / "token").write_text("abc\n")
    environ = {"USER_NAME": "alice"}
    text = f'user="${{env:USER_NAME}}" password="${{file:{secrets}:password}}" token=${{directory:{tmp_path}:token}}'
    assert resolve("x", text, environ) == f'user="alice" password="{SECRET}" token=abc'
    assert resolve("x", "${vault:a:b} ${", environ) == "${vault:a:b} ${"


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("${env:NOT_THERE}", "the environment has no variable NOT_THERE"),
        ("${file:/not/there:key}", "there is no file /not/there"),
        ("${file:TMP/f:key}", "has no line key=..."),
        ("${file:TMP:key}", "is not a file"),
        ("${file:key}", "is not ${file:PATH:KEY}"),
        ("${directory:TMP:../f}", "is not ${directory:PATH:FILE}"),
        ("${context:TMP:x}", "use letters"),
    ],
)
def test_a_reference_to_nothing_is_an_error_that_names_the_option(tmp_path: Path, reference: str, hint: str) -> None:
    (tmp_path / "f").write_text(f"other={SECRET}\n")
    with pytest.raises(InvalidConfig) as refused:
        resolve("sasl.jaas.config", reference.replace("TMP", str(tmp_path)), {})
    assert refused.value.message.startswith("sasl.jaas.config: ")
    assert hint in refused.value.message and SECRET not in refused.value.message
