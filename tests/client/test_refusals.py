"""A misconfigured client is told in one line what to set, against real brokers."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BrokerUnreachable, SecurityMismatch
from headrace.client.operations.admin import Admin
from headrace.client.security.client_options import client_settings
from headrace.errors import AuthenticationFailed, KafkaError
from headrace.testing import Broker, Security
from tests import certificates

pytestmark = pytest.mark.slow
Brokers = Mapping[str, Broker]
SECURITY = {
    "plain": Security("PLAINTEXT"),
    "tls": Security("SSL"),
    "mtls": Security("SSL", client_certificates=True),
    "sasl": Security("SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-512", "PLAIN")),
}
WRONG_PASSWORD = "wrong-but-not-to-be-shown"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = tmp_path_factory.mktemp("keys")
    with ExitStack() as stack:
        found = {name: stack.enter_context(Broker(security=each)) for name, each in SECURITY.items()}
        other = certificates.write_pem(directory / "other.pem", certificates.identity("far", hosts=("far.example",)))
        settings = {"ssl.keystore.location": str(other)}
        found["far"] = stack.enter_context(Broker(security="SSL", settings=settings))
        yield found


def refusal(bootstrap: str, options: Mapping[str, str]) -> KafkaError:
    with pytest.raises(KafkaError) as refused, Admin(bootstrap, client_settings(options)) as admin:
        admin.list_topics()
    assert "\n" not in refused.value.message
    return refused.value


def test_a_client_with_the_right_options_is_served(brokers: Brokers) -> None:
    for name in SECURITY:
        with Admin(brokers[name].bootstrap, brokers[name].client_settings()) as admin:
            assert admin.list_topics() == []


def test_plain_text_to_a_tls_port(brokers: Brokers) -> None:
    error = refusal(brokers["tls"].bootstrap, {})
    assert isinstance(error, SecurityMismatch)
    assert "speaks TLS" in error.message and "set security.protocol=SSL" in error.message


def test_tls_to_a_plain_port(brokers: Brokers) -> None:
    for name in ("plain", "sasl"):
        error = refusal(brokers[name].bootstrap, brokers["tls"].client_options())
        assert isinstance(error, SecurityMismatch)
        assert "security.protocol without SSL" in error.message


def test_sasl_to_a_listener_without(brokers: Brokers) -> None:
    error = refusal(brokers["plain"].bootstrap, brokers["sasl"].client_options())
    assert "has no SASL on this port" in error.message and "security.protocol" in error.message


def test_no_sasl_to_a_listener_with_it(brokers: Brokers) -> None:
    error = refusal(brokers["sasl"].bootstrap, {})
    assert isinstance(error, BrokerUnreachable)
    assert "set security.protocol=SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism" in error.message


def test_a_mechanism_that_the_broker_does_not_have_is_told_with_those_that_it_has(brokers: Brokers) -> None:
    options = {**brokers["sasl"].client_options(), "sasl.mechanism": "SCRAM-SHA-256"}
    error = refusal(brokers["sasl"].bootstrap, options)
    assert "SCRAM-SHA-512, PLAIN" in error.message and "set sasl.mechanism" in error.message


def test_a_wrong_password_is_no_more_than_that(brokers: Brokers) -> None:
    for mechanism in SECURITY["sasl"].mechanisms:
        options = brokers["sasl"].client_options("alice", mechanism)
        wrong = options["sasl.jaas.config"].replace("alice-secret", WRONG_PASSWORD)
        error = refusal(brokers["sasl"].bootstrap, {**options, "sasl.jaas.config": wrong})
        assert isinstance(error, AuthenticationFailed)
        assert WRONG_PASSWORD not in f"{error} {error!r}" and "alice-secret" not in f"{error} {error!r}"
        assert f"refused the authentication by {mechanism}" in error.message


def test_a_certificate_of_an_unknown_authority(brokers: Brokers, tmp_path: Path) -> None:
    trust = certificates.write_trust(tmp_path / "ca.pem")
    options = {**brokers["tls"].client_options(), "ssl.truststore.location": str(trust)}
    error = refusal(brokers["tls"].bootstrap, options)
    assert "not trusted" in error.message and "ssl.truststore.location" in error.message


def test_a_certificate_with_another_name(brokers: Brokers, tmp_path: Path) -> None:
    trust = certificates.write_trust(tmp_path / "ca.pem")
    options = {**brokers["far"].client_options(), "ssl.truststore.location": str(trust)}
    error = refusal(brokers["far"].bootstrap, options)
    assert "not for this address" in error.message
    unchecked = {**options, "ssl.endpoint.identification.algorithm": ""}
    with Admin(brokers["far"].bootstrap, client_settings(unchecked)) as admin:
        assert admin.list_topics() == []


def test_a_missing_and_an_unknown_certificate_of_the_client(brokers: Brokers, tmp_path: Path) -> None:
    options = brokers["mtls"].client_options()
    missing = {name: value for name, value in options.items() if "keystore" not in name}
    assert "set ssl.keystore.location" in refusal(brokers["mtls"].bootstrap, missing).message
    stranger = certificates.write_pem(tmp_path / "stranger.pem", certificates.identity("stranger"))
    error = refusal(brokers["mtls"].bootstrap, {**options, "ssl.keystore.location": str(stranger)})
    assert "certificate" in error.message and "ssl.truststore.location" in error.message, error


def test_what_is_certainly_wrong_is_not_tried_again(brokers: Brokers) -> None:
    with Cluster(brokers["plain"].bootstrap) as cluster:
        calls = 0

        def attempt() -> None:
            nonlocal calls
            calls += 1
            raise SecurityMismatch("wrong")

        cluster.refresh(None)
        with pytest.raises(SecurityMismatch):
            cluster.retry(attempt, cluster.deadline())
    assert calls == 1
