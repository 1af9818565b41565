"""OAUTHBEARER against a running broker: good and bad tokens, new keys, clients, and the unsecured validator."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.errors import AuthenticationFailed, InvalidConfig
from headrace.network.tls.contexts import server_context
from headrace.testing import Broker
from headrace.testing.host import BrokerFailed
from tests.bearer_tokens import Issuer, served
from tests.broker.conftest import PEER
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS, eventually
from tests.peers import kafka

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
UNSECURED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerUnsecuredValidatorCallbackHandler"
SETTINGS: dict[str, str | int | bool] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "issuer",
    "connection.failed.authentication.delay.ms": 10,
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with served(Issuer()) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[Broker]:
    with Broker(settings={**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/jwks"}) as broker:
        yield broker


def log_in(broker: Broker, directory: Path, token: str) -> None:
    """Raises `AuthenticationFailed`."""
    file = directory / "token"
    file.write_text(f"{token}\n")
    log_in_by(broker, {"sasl.oauthbearer.token.endpoint.url": file.as_uri()})


def log_in_by(broker: Broker, options: dict[str, str]) -> None:
    """Raises `AuthenticationFailed`."""
    sasl = {"sasl.mechanism": "OAUTHBEARER", **options}
    with Cluster(broker.bootstrap, ClientSettings(sasl=sasl, api_timeout_ms=20_000)) as cluster:
        cluster.refresh([])


def test_accepts_a_good_token(broker: Broker, issuer: Issuer, tmp_path: Path) -> None:
    log_in(broker, tmp_path, issuer.token())


@pytest.mark.parametrize("claims", [{"exp": 1}, {"aud": "other"}, {"iss": "other"}, {"nbf": 1 << 33}, {"sub": ""}])
def test_refuses_bad_claims(broker: Broker, issuer: Issuer, tmp_path: Path, claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed, match='{"status":"invalid_token"}'):
        log_in(broker, tmp_path, issuer.token(**claims))


def test_refuses_tokens_without_a_signature_of_the_issuer(broker: Broker, issuer: Issuer, tmp_path: Path) -> None:
    good, other = issuer.token(), Issuer().token()
    head, payload, signed = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    public = issuer.keys["first"][0].public_key()
    unsigned = jwt.encode(claims, "", "none", headers={"kid": "first"})
    # The attack on libraries that take the public key for HMAC's secret.
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = _hmac_token(claims, pem)
    for token in (
        unsigned, other, confused, f"{head}.{payload}.", f"{head}.{payload}.{signed[:-4]}AAAA", f"{head}.{payload}",
        issuer.token(header={"crit": ["exp"]}), issuer.token(header={"kid": "unknown"}), "x", "a.b.c",
    ):  # fmt: skip
        with pytest.raises(AuthenticationFailed):
            log_in(broker, tmp_path, token)


def _hmac_token(claims: dict[str, object], secret: bytes) -> str:
    import hmac
    import json
    from base64 import urlsafe_b64encode

    def part(data: bytes) -> str:
        return urlsafe_b64encode(data).decode().rstrip("=")

    signed = f"{part(json.dumps({'alg': 'HS256', 'kid': 'first'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.digest(secret, signed.encode(), 'sha256'))}"


def test_fetches_keys_again_for_a_new_key_but_not_for_every_token(tmp_path: Path) -> None:
    issuer, file = Issuer(), tmp_path / "jwks.json"
    file.write_bytes(issuer.jwks())
    with Broker(settings={**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": file.as_uri()}) as broker:
        log_in(broker, tmp_path, issuer.token())
        issuer.add_key("second", "ES256")
        file.write_bytes(issuer.jwks())

        def is_known() -> bool:
            try:
                log_in(broker, tmp_path, issuer.token())
            except AuthenticationFailed:
                return False
            return True

        eventually(is_known, "the new key to be read")
        log_in(broker, tmp_path, issuer.token("first"))


def test_a_key_that_is_replaced_under_its_name_counts_no_more(tmp_path: Path) -> None:
    """Its successor has the same name: whoever has the old one could log in for an hour."""
    old, new, file = Issuer(), Issuer(), tmp_path / "jwks.json"
    file.write_bytes(old.jwks())
    with Broker(settings={**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": file.as_uri()}) as broker:
        log_in(broker, tmp_path, old.token())
        (tmp_path / "next.json").write_bytes(new.jwks())
        (tmp_path / "next.json").rename(file)

        def is_refused(issuer: Issuer) -> bool:
            try:
                log_in(broker, tmp_path, issuer.token())
            except AuthenticationFailed:
                return True
            return False

        eventually(lambda: is_refused(old), "the end of the old key")
        eventually(lambda: not is_refused(new), "the new key")
        file.unlink()
        log_in(broker, tmp_path, new.token())


@pytest.mark.parametrize("kind", [["RSA"], {"RSA": 1}, None, 7, "oct"])
def test_a_key_that_makes_no_sense_costs_no_other_key(tmp_path: Path, kind: object) -> None:
    issuer, file = Issuer(), tmp_path / "jwks.json"
    keys = json.loads(issuer.jwks())["keys"]
    file.write_text(json.dumps({"keys": [{"kty": kind}, *keys]}))
    with Broker(settings={**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": file.as_uri()}) as broker:
        log_in(broker, tmp_path, issuer.token())


def test_an_endpoint_is_not_asked_for_each_unknown_key(broker: Broker, issuer: Issuer, tmp_path: Path) -> None:
    before = issuer.fetches
    for number in range(20):
        with pytest.raises(AuthenticationFailed):
            log_in(broker, tmp_path, issuer.token(header={"kid": f"unknown-{number}"}))
    assert issuer.fetches - before <= 3


def test_the_session_ends_with_the_token(broker: Broker, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(exp=int(time.time()) + 5))
    sasl = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    with Cluster(broker.bootstrap, ClientSettings(sasl=sasl)) as cluster:
        cluster.refresh([])
        assert cluster._control is not None
        assert cluster._control._renewal is not None
        assert cluster._control._renewal.remaining_s <= 5


def test_takes_tokens_from_the_environment_and_by_client_credentials(
    broker: Broker, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TOKEN", issuer.token())
    log_in_by(broker, {"sasl.jaas.config": f'{MODULE} tokenEnvironment="KAFKA_TOKEN";'})
    url, client = f"{issuer.url}/token", f'{MODULE} clientId="robot" clientSecret="s3=cret" scope="a b";'
    log_in_by(broker, {"sasl.oauthbearer.token.endpoint.url": url, "sasl.jaas.config": client})
    for wrong in (
        {"sasl.oauthbearer.token.endpoint.url": url, "sasl.jaas.config": client.replace("s3=cret", "hunter2")},
        {"sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/elsewhere", "sasl.jaas.config": client},
        {"sasl.oauthbearer.token.endpoint.url": "file:///nonexistent/token"},
    ):
        with pytest.raises(AuthenticationFailed) as raised:
            log_in_by(broker, wrong)
        assert "hunter2" not in str(raised.value)
        assert "s3" not in str(raised.value)
    for unusable in (
        {},
        {"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"},
        {"sasl.oauthbearer.token.endpoint.url": url},
    ):
        with pytest.raises(InvalidConfig):
            log_in_by(broker, unusable)


def test_the_authority_of_an_endpoint_stands_in_the_login_module(tmp_path: Path) -> None:
    """For the broker's keys and the client's tokens alike; without it, the system's authorities count."""
    trust = " ".join(f'{name}="{text}"' for name, text in client_settings(tmp_path).items())
    name = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    client = f'{MODULE} clientId="robot" clientSecret="s3=cret" {{}};'
    with served(Issuer(), server_context(server_settings(tmp_path)).context) as issuer:
        url, token_url = f"{issuer.url}/jwks", f"{issuer.url}/token"
        settings = {**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": url, name: f"{MODULE} {trust};"}
        with Broker(settings=settings) as broker:
            given = {"sasl.oauthbearer.token.endpoint.url": token_url}
            log_in_by(broker, {**given, "sasl.jaas.config": client.format(trust)})
            with pytest.raises(AuthenticationFailed, match="(?i)certificate"):
                log_in_by(broker, {**given, "sasl.jaas.config": client.format("")})
            with pytest.raises(InvalidConfig, match=r"sasl.jaas.config: ssl.trust is no option of TLS"):
                log_in_by(broker, {**given, "sasl.jaas.config": client.format('ssl.trust="x"')})
            missing = client.format('ssl.truststore.type=PEM ssl.truststore.location="/nowhere"')
            with pytest.raises(InvalidConfig, match=r"sasl.jaas.config: ssl.truststore.location=.*nowhere"):
                log_in_by(broker, {**given, "sasl.jaas.config": missing})
        del settings[name]
        with Broker(settings=settings) as broker, pytest.raises(AuthenticationFailed):
            log_in(broker, tmp_path, issuer.token())
        settings[name] = f'{MODULE} ssl.truststore.location="/nowhere";'
        with pytest.raises(BrokerFailed, match=f"{name}: ssl.truststore.location"):
            Broker(settings=settings).start()


def test_the_environment_can_restrict_where_options_may_lead(
    broker: Broker, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token())
    monkeypatch.setenv("KAFKA_TOKEN", issuer.token())
    by_variable = {"sasl.jaas.config": f'{MODULE} tokenEnvironment="KAFKA_TOKEN";'}
    by_file = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    monkeypatch.setenv("HEADRACE_ALLOWED_OAUTHBEARER_URLS", f"https://provider/token, {file.as_uri()}")
    log_in_by(broker, by_file)
    for others in (by_variable, {"sasl.oauthbearer.token.endpoint.url": f"{file.as_uri()}2"}):
        with pytest.raises(InvalidConfig, match="HEADRACE_ALLOWED_OAUTHBEARER_URLS allows"):
            log_in_by(broker, others)
    with pytest.raises(BrokerFailed, match=r"jwks\.endpoint\.url: the URL is none of those"):
        Broker(settings={**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/jwks"}).start()
    monkeypatch.setenv("HEADRACE_ALLOWED_OAUTHBEARER_URLS", "env:KAFKA_TOKEN")
    log_in_by(broker, by_variable)


def test_librdkafka_and_aiokafka_log_in(broker: Broker, issuer: Issuer) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (issuer.token(), time.time() + 600),  # type: ignore[dict-item]
        }
    )
    admin.poll(1)
    assert admin.list_topics(timeout=WITHIN_SECONDS).brokers

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    async def run() -> None:
        client = AIOKafkaAdminClient(
            bootstrap_servers=broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )  # fmt: skip
        await client.start()
        await client.list_topics()
        await client.close()

    asyncio.run(run())


def test_kafka_python_logs_in(broker: Broker, issuer: Issuer) -> None:
    class Tokens(KafkaPythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token()

    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )  # fmt: skip
    admin.list_topics()
    admin.close()


@pytest.mark.parametrize("_", [pytest.param("Java", marks=PEER)])
def test_kafkas_client_logs_in(broker: Broker, issuer: Issuer, tmp_path: Path, _: str) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={MODULE} clientId="robot" clientSecret="s3=cret";\n'
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={issuer.url}/token\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/token"
    tool = ("org.apache.kafka.tools.TopicCommand", "--command-config", str(config), "--list")
    command = [*kafka.java_command(tmp_path, "-Xmx256m", allowed), *tool, "--bootstrap-server", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_accepts_unsecured_tokens_only_where_a_setting_says_so(tmp_path: Path) -> None:
    token = jwt.encode({"sub": "alice", "exp": int(time.time()) + 60, "aud": "kafka", "iss": "issuer"}, "", "none")
    enabled = {**SETTINGS, "headrace.sasl.oauthbearer.unsecured.validator.enable": True}
    handler = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    with Broker(settings={**enabled, handler: UNSECURED}) as broker:
        log_in(broker, tmp_path, token)
        with pytest.raises(AuthenticationFailed):
            log_in(broker, tmp_path, Issuer().token())
    for settings, said in (
        ({**SETTINGS, handler: UNSECURED}, "without a signature"),
        ({**SETTINGS, handler: "org.example.Handler"}, "Java class"),
        (SETTINGS, "jwks.endpoint.url must be"),
        ({**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "no").as_uri()}, "cannot be read"),
    ):
        with pytest.raises(BrokerFailed, match=said):
            Broker(settings=settings).start()
