"""The broker that the tests of known mistakes ask."""

import base64
import hashlib
import os
from collections.abc import Iterator

import pytest

from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.eventually import eventually
from tests.security.clients import (
    PLAIN,
    SCRAM_256,
    SCRAM_ITERATIONS,
    USERS,
    Client,
    Refused,
    Scram,
    as_user,
)


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """A broker with one listener, SASL_PLAINTEXT, an authorizer, the super user `admin`, and `alice` and `mallory`, who
    may do nothing until a test says so."""
    settings: dict[str, str | int | float | bool] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "connection.failed.authentication.delay.ms": 0,
    }
    with Broker(settings=settings, subprocess=True) as found:
        yield found


@pytest.fixture(scope="package")
def scram_user(broker: Broker) -> str:
    """A user with SCRAM credentials."""
    salt = base64.b32encode(os.urandom(20))[:26].lower()  # as Apache Kafka's tools make them
    salted = hashlib.pbkdf2_hmac("sha256", b"of-carol", salt, SCRAM_ITERATIONS)
    entry = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="carol", mechanism=SCRAM_256, iterations=SCRAM_ITERATIONS, salt=salt, salted_password=salted
    )
    with as_user(broker, "admin") as admin:
        answer = admin.ask(m.AlterUserScramCredentialsRequest(upsertions=[entry]), 0)
        assert [each.error_code for each in answer.results] == [0]

    def logs_in() -> bool:
        with Client(broker) as client:
            client.mechanism("SCRAM-SHA-256")
            scram = Scram("carol", "of-carol")
            try:
                client.authenticate(scram.final(client.authenticate(scram.first())))
            except Refused:
                return False
            return True

    eventually(logs_in, "the new user")
    return "carol"
