"""A secured broker for tests: certificates, users and tokens, made when it starts and removed with its data.

    Broker(security="SASL_SSL")                                TLS, and users by SCRAM-SHA-512
    Broker(security=Security("SSL", client_certificates=True)) mTLS: a user is the name in the certificate
    Broker(security=Security("SASL_PLAINTEXT", mechanisms=("PLAIN", "OAUTHBEARER"), users={"eve": "secret"}))
    Broker(security=Security(acls=True))                       only `admin` may do anything, until a rule allows it

`Broker.client_options("alice")` are Kafka's options of a user; `as_librdkafka`, `as_aiokafka` and `as_kafka_python`
give the same to other clients. The authority is new for each broker; its files are in a private temporary directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.security.development_certificates import Identity

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS: Final[Mapping[str, str]] = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAYS: Final = 365
_ITERATIONS: Final = 4096
_ISSUER, _AUDIENCE, _KEY_ID = "headrace-tests", "headrace", "tests"
_LOGIN: Final = "org.apache.kafka.common.security"
_CALLBACKS: Final = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


@dataclass(frozen=True, slots=True)
class Security:
    """How a test's broker is secured."""

    protocol: str = "SASL_SSL"
    mechanisms: Sequence[str] = ("SCRAM-SHA-512",)
    users: Mapping[str, str] = field(default_factory=lambda: dict(USERS), repr=False)
    """Passwords by name; `admin` may do everything."""
    client_certificates: bool = False
    """Whether a client needs a certificate."""
    acls: bool = False
    """Whether requests need rules."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security {self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                raise ValueError(f"mechanism {mechanism!r} is none of {', '.join(MECHANISMS)}")

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether users authenticate by SASL."""
        return self.protocol.startswith("SASL_")


class SecurityFiles:
    """The certificates, keys and tokens of one broker, in a directory."""

    def __init__(self, security: Security, directory: Path) -> None:
        """Writes what the broker needs; `directory` is private."""
        self.security: Security = security
        self.directory: Path = directory
        self._authority: Identity | None = None
        if security.has_tls:
            self._make_authority()
        if security.has_sasl and "OAUTHBEARER" in security.mechanisms:
            self._make_tokens()

    @property
    def ca(self) -> Path:
        """The certificate of the authority, as PEM."""
        return self.directory / "ca.pem"

    def certificate(self, name: str) -> Path:
        """Key and certificate of a name in one PEM file."""
        from headrace.security.development_certificates import issue

        path = self.directory / f"{name}.pem"
        if not path.exists():
            assert self._authority is not None, f"{self.security.protocol} has no certificates"
            made = issue(self._authority, name, _HOSTS, datetime.now(UTC), _DAYS)
            _write(path, made.key_pem() + made.certificate_pem())
        return path

    def token(self, name: str) -> Path:
        """A file with the bearer token of a user."""
        import jwt

        path = self.directory / f"{name}.jwt"
        if not path.exists():
            now = datetime.now(UTC)
            claims = {"sub": name, "iss": _ISSUER, "aud": _AUDIENCE, "iat": now, "exp": now + timedelta(days=1)}
            key = (self.directory / "tokens.key").read_bytes()
            _write(path, jwt.encode(claims, key, "RS256", {"kid": _KEY_ID}).encode())
        return path

    def broker_settings(self) -> dict[str, str]:
        """The settings of the broker, for its only listener."""
        security = self.security
        found: dict[str, str] = {}
        if security.has_tls:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate("broker"))}
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if security.client_certificates:
            found["ssl.client.auth"] = "required"
            found["ssl.principal.mapping.rules"] = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"
        if security.has_sasl:
            found["sasl.enabled.mechanisms"] = ",".join(security.mechanisms)
            found |= self._mechanism_settings(f"listener.name.{security.protocol.lower()}.")
        if security.acls:
            found |= {"authorizer.class.name": _AUTHORIZER, "super.users": "User:admin;User:ANONYMOUS"}
            if security.has_sasl or security.client_certificates:
                found["super.users"] = "User:admin"
        return found

    def client_options(self, user: str, mechanism: str | None = None) -> dict[str, str]:
        """Kafka's options of a user, for Java and for headrace. Raises `ValueError` for one that there is not."""
        security = self.security
        if user not in security.users:
            raise ValueError(f"there is no user {user!r}: the broker has {', '.join(security.users)}")
        found = {"security.protocol": security.protocol}
        if security.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if security.client_certificates:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate(user))}
        if security.has_sasl:
            chosen = mechanism or security.mechanisms[0]
            if chosen not in security.mechanisms:
                raise ValueError(f"the broker does not have {chosen!r}, but {', '.join(security.mechanisms)}")
            found |= {"sasl.mechanism": chosen, **self._login(user, chosen)}
        return found

    def _login(self, user: str, mechanism: str) -> dict[str, str]:
        if mechanism == "OAUTHBEARER":
            return {
                "sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": _CALLBACKS,
                "sasl.oauthbearer.token.endpoint.url": self.token(user).as_uri(),
            }
        module = f"{_LOGIN}.plain.PlainLoginModule" if mechanism == "PLAIN" else f"{_LOGIN}.scram.ScramLoginModule"
        password = _quoted(self.security.users[user])
        return {"sasl.jaas.config": f"{module} required username={_quoted(user)} password={password};"}

    def _mechanism_settings(self, prefix: str) -> dict[str, str]:
        found = {}
        if "PLAIN" in self.security.mechanisms:
            users = " ".join(f"user_{name}={_quoted(password)}" for name, password in self.security.users.items())
            found[f"{prefix}plain.sasl.jaas.config"] = f"{_LOGIN}.plain.PlainLoginModule required {users};"
        if "OAUTHBEARER" in self.security.mechanisms:
            own = f"{prefix}oauthbearer.sasl."
            found[f"{own}jaas.config"] = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
            found["sasl.oauthbearer.jwks.endpoint.url"] = (self.directory / "jwks.json").as_uri()
            found["sasl.oauthbearer.expected.audience"] = _AUDIENCE
            found["sasl.oauthbearer.expected.issuer"] = _ISSUER
        return found

    def _make_authority(self) -> None:
        from headrace.security.development_certificates import make_authority

        self._authority = make_authority("headrace.testing", datetime.now(UTC), _DAYS)
        _write(self.ca, self._authority.certificate_pem())

    def _make_tokens(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from jwt.algorithms import RSAAlgorithm

        key = rsa.generate_private_key(65537, 2048)
        _write(self.directory / "tokens.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": _KEY_ID, "use": "sig", "alg": "RS256"}
        _write(self.directory / "jwks.json", json.dumps({"keys": [public]}).encode())


async def add_scram_users(data: Path, security: Security) -> None:
    """Writes the users of SCRAM into the metadata store of a broker that does not run, as `/config/users/NAME`."""
    from headrace.metadata.entity_configs import sanitize
    from headrace.metastore.embedded import EmbeddedStore
    from headrace.metastore.store import ensure_path
    from headrace.security.sasl.scram import SALT_BYTES, credential, format_credential

    mechanisms = [each for each in security.mechanisms if each.startswith("SCRAM-")]
    if not security.has_sasl or not mechanisms:
        return
    store = await EmbeddedStore.open(data)
    try:
        for name, password in security.users.items():
            path = f"/config/users/{sanitize(name)}"
            configs = {
                each: format_credential(credential(each, password, os.urandom(SALT_BYTES), _ITERATIONS))
                for each in mechanisms
            }
            await ensure_path(store, path)
            await store.set(path, json.dumps({"version": 1, "config": configs}).encode())
    finally:
        await store.close()


def as_librdkafka(options: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's options as librdkafka has them (confluent-kafka, kcat)."""
    found: dict[str, Any] = {"security.protocol": options["security.protocol"]}
    if "ssl.truststore.location" in options:
        found["ssl.ca.location"] = options["ssl.truststore.location"]
    if "ssl.keystore.location" in options:
        found["ssl.certificate.location"] = found["ssl.key.location"] = options["ssl.keystore.location"]
    if "sasl.mechanism" in options:
        found["sasl.mechanisms"] = options["sasl.mechanism"]
        if options["sasl.mechanism"] == "OAUTHBEARER":
            token = token_of_options(options)
            found["oauth_cb"] = lambda _config: (token, _expiry(token))
        else:
            found["sasl.username"], found["sasl.password"] = login_of_options(options)
    return found


def as_aiokafka(options: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's options as the arguments of aiokafka's clients."""
    found = _python_arguments(options)
    if "sasl_oauth_token_provider" in found:
        from aiokafka.abc import AbstractTokenProvider

        text = token_of_options(options)

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
            async def token(self) -> str:
                return text

        found["sasl_oauth_token_provider"] = Provider()
    return found


def as_kafka_python(options: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's options as the arguments of kafka-python's clients."""
    found = _python_arguments(options)
    if "sasl_oauth_token_provider" in found:
        try:
            from kafka.net.sasl.oauth import AbstractTokenProvider
        except ImportError:  # before 3.0
            from kafka.sasl.oauth import AbstractTokenProvider

        text = token_of_options(options)

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
            def token(self) -> str:
                return text

        found["sasl_oauth_token_provider"] = Provider()
    return found


def _python_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": options["security.protocol"]}
    if options["security.protocol"].endswith("SSL"):
        from headrace.network.tls.contexts import client_context

        found["ssl_context"] = client_context(options)
    mechanism = options.get("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        found |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": None}
    elif mechanism is not None:
        name, password = login_of_options(options)
        found |= {"sasl_mechanism": mechanism, "sasl_plain_username": name, "sasl_plain_password": password}
    return found


def login_of_options(options: Mapping[str, str]) -> tuple[str, str]:
    """Name and password in Kafka's options."""
    from headrace.security.jaas import login_module

    found = login_module(options["sasl.jaas.config"], options["sasl.mechanism"]).options
    return found["username"], found["password"]


def token_of_options(options: Mapping[str, str]) -> str:
    """The bearer token in the file that Kafka's options name."""
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(options["sasl.oauthbearer.token.endpoint.url"]).path)).read_text()


def _expiry(token: str) -> float:
    import jwt

    return float(jwt.decode(token, options={"verify_signature": False})["exp"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
