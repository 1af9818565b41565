"""The mistakes that Kafka, Pulsar and Redpanda have published as CVEs, about logins and sessions.

Each test names the CVE whose class of mistake it holds off. Mistakes of parts that headrace does not have (Connect's
REST API, ZooKeeper's own quorum, Log4j) are left out. `conftest.broker` tells what the broker is like.
"""

import hmac

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.eventually import eventually
from tests.security.clients import (
    PLAIN,
    USERS,
    Client,
    Refused,
    Scram,
    as_user,
)


def test_nobody_logs_in_as_one_user_and_acts_as_another(broker: Broker) -> None:
    """CVE-2017-12610: a crafted authorization id made one user another, with PLAIN and with SCRAM."""
    with Client(broker) as client, pytest.raises(Refused) as refused:
        client.plain("mallory", authzid="admin")
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_nobody_logs_in_by_scram_and_acts_as_another(broker: Broker, scram_user: str) -> None:
    """CVE-2017-12610."""
    with Client(broker) as client:
        client.mechanism("SCRAM-SHA-256")
        scram = Scram(scram_user, "of-carol", header="n,a=admin,")
        with pytest.raises(Refused) as refused:
            client.authenticate(scram.final(client.authenticate(scram.first())))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("change", ["own", "shortened", "other"])
def test_the_final_nonce_is_compared(broker: Broker, scram_user: str, change: str) -> None:
    """CVE-2024-56128: the nonce of the client's last message was not compared with the server's."""
    with Client(broker) as client:
        client.mechanism("SCRAM-SHA-256")
        scram = Scram(scram_user, "of-carol")
        server_first = client.authenticate(scram.first())
        nonce = server_first.decode().split(",")[0].removeprefix("r=")
        assert nonce.startswith(scram.nonce) and len(nonce) > len(scram.nonce)
        sent = {"own": scram.nonce, "shortened": nonce[:-1], "other": scram.nonce + "x" * 20}[change]
        with pytest.raises(Refused) as refused:
            client.authenticate(scram.final(server_first, nonce=sent))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_recorded_exchange_cannot_be_sent_again(broker: Broker, scram_user: str) -> None:
    """CVE-2024-56128."""
    scram = Scram(scram_user, "of-carol")
    with Client(broker) as client:
        client.mechanism("SCRAM-SHA-256")
        recorded = scram.final(client.authenticate(scram.first()))
        client.authenticate(recorded)
    with Client(broker) as client:
        client.mechanism("SCRAM-SHA-256")
        client.authenticate(scram.first())
        with pytest.raises(Refused):
            client.authenticate(recorded)


def test_an_unknown_user_cannot_be_told_from_a_wrong_password(broker: Broker, scram_user: str) -> None:
    """The salt of an unknown user is stable, and texts are equal."""

    def attempt(user: str) -> tuple[str, str, str]:
        with Client(broker) as client:
            client.mechanism("SCRAM-SHA-256")
            scram = Scram(user, "wrong")
            first = client.authenticate(scram.first())
            _, salt, iterations = first.decode().split(",")
            with pytest.raises(Refused) as refused:
                client.authenticate(scram.final(first))
            return salt, iterations, refused.value.message

    known, unknown, again = attempt(scram_user), attempt("nobody"), attempt("nobody")
    assert unknown == again, "a salt that changes tells that the user does not exist"
    assert known[1:] == unknown[1:]
    # Base64 of a random number's 25 or 26 digits, and of 24 once in 60 times: salts of both kinds of users are such.
    assert {len(known[0]), len(unknown[0])} <= {len("s=") + 36, len("s=") + 32}
    messages = []
    for user in ("alice", "nobody"):
        with Client(broker) as client, pytest.raises(Refused) as refused:
            client.plain(user, password="wrong")
        messages.append(refused.value.message)
    assert messages[0] == messages[1]


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153, CVE-2023-51437: passwords and signatures were compared up to the first difference."""
    compared = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((bytes(a), bytes(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    settings: dict[str, str | int | float | bool] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
    }
    with Broker(settings=settings) as broker:
        as_user(broker, "alice").socket.close()
    assert len(compared) == 1


def test_an_expired_session_ends_on_a_connection_that_is_open() -> None:
    """CVE-2023-31007: a connection outlived the credentials that had opened it."""
    settings: dict[str, str | int | float | bool] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
        "connections.max.reauth.ms": 300,
    }
    with Broker(settings=settings) as broker, as_user(broker, "alice") as client:

        def is_closed() -> bool:
            try:
                client.ask(m.MetadataRequest(topics=[]), 4)
            except (ConnectionError, OSError):
                return True
            return False

        eventually(is_closed, "the end of the session")
