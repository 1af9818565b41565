"""No secret is in the log of the broker or of its clients at its most talkative, whatever has succeeded or failed."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.operations.user_admin import UserAdmin
from headrace.errors import AuthenticationFailed, KafkaError
from headrace.network.tls.contexts import client_context
from headrace.testing import Broker
from tests.bearer_tokens import Issuer, served
from tests.certificates import client_settings, identity, write_pkcs12, write_pkcs12_trust

STORE, ENCODER, TOKEN_KEY, DYNAMIC = "pkcs12-secret", "encoder-secret", "token-key-secret", "dynamic-secret"
ADMIN, CAROL, WRONG = "admin-secret", "carol-secret", "wrong-secret"
MODULE = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with served(Issuer()) as found:
        yield found


def settings(directory: Path, issuer: Issuer) -> dict[str, str | int | bool]:
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(write_pkcs12(directory / "key.p12", identity(), password=STORE)),
        "ssl.keystore.password": STORE,
        "ssl.truststore.location": str(write_pkcs12_trust(directory / "trust.p12", password=STORE)),
        "ssl.truststore.password": STORE,
        "password.encoder.secret": ENCODER,
        "delegation.token.secret.key": TOKEN_KEY,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{MODULE}.plain.PlainLoginModule required user_admin="{ADMIN}";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/jwks",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "issuer",
        "connection.failed.authentication.delay.ms": 0,
    }


def client(directory: Path, mechanism: str, **sasl: str) -> ClientSettings:
    options = {"sasl.mechanism": mechanism, **{name.replace("_", "."): text for name, text in sasl.items()}}
    return ClientSettings(tls=client_context(client_settings(directory)), sasl=options, api_timeout_ms=30_000)


def jaas(module: str, user: str, password: str) -> str:
    return f'{MODULE}.{module} required username="{user}" password="{password}";'


def test_no_secret_is_in_a_debug_log(tmp_path: Path, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [issuer.token(), issuer.token(aud="another")]
    plain, scram = "plain.PlainLoginModule", "scram.ScramLoginModule"
    with Broker(settings=settings(tmp_path, issuer)) as broker:
        as_admin = client(tmp_path, "PLAIN", sasl_jaas_config=jaas(plain, "admin", ADMIN))
        with Cluster(broker.bootstrap, as_admin) as cluster:
            UserAdmin(cluster).set_password("carol", CAROL)
        with Admin(broker.bootstrap, as_admin) as admin:
            name = "listener.name.sasl_ssl.ssl.key.password"
            with suppress(KafkaError):  # it is not that of the key, and is refused
                admin.alter_configs(4, "0", {name: DYNAMIC})
        for mechanism, module, user in (("PLAIN", plain, "admin"), ("SCRAM-SHA-256", scram, "carol")):
            wrong = client(tmp_path, mechanism, sasl_jaas_config=jaas(module, user, WRONG))
            with pytest.raises(AuthenticationFailed), Cluster(broker.bootstrap, wrong) as cluster:
                cluster.refresh([])
        right = client(tmp_path, "SCRAM-SHA-512", sasl_jaas_config=jaas(scram, "carol", CAROL))
        with Cluster(broker.bootstrap, right) as cluster:
            cluster.refresh([])
        for number, token in enumerate(tokens):
            (tmp_path / "token").write_text(token)
            url = (tmp_path / "token").as_uri()
            bearer = client(tmp_path, "OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url)
            with Cluster(broker.bootstrap, bearer) as cluster:
                if number == 0:
                    cluster.refresh([])
                else:
                    with pytest.raises(AuthenticationFailed):
                        cluster.refresh([])
    logged = "\n".join([caplog.text, *(f"{vars(each)}" for each in caplog.records)])
    assert "authentication" in logged.lower(), "nothing was logged"
    signatures = [each.rpartition(".")[2] for each in tokens]
    for secret in (STORE, ENCODER, TOKEN_KEY, DYNAMIC, ADMIN, CAROL, WRONG, *tokens, *signatures):
        assert secret not in logged
