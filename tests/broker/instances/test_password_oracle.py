"""No listener but that of her instance tells whether `acme.alice` exists, or whether a password is hers."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.user_admin import UserAdmin
from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.security.sasl import scram
from headrace.security.sasl.scram_client import ScramClient
from tests.broker.instances.houses import Houses
from tests.broker.test_authentication import authenticate, handshake, is_closed, serves
from tests.harness import free_ports
from tests.wire import Wire

MECHANISM = "SCRAM-SHA-256"
RIGHT, WRONG = "wonder", "another"
KNOWN, UNKNOWN, OTHER = "acme.alice", "acme.nobody", "own.alice"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NAMES = ("STAFF", "BROKERS", "TENANTS")


class Doors:
    """A broker with SASL listeners of the operator's, one for users of instances, and one of an instance."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        own = Instance("own", "CCCCCCCCQCCCCCCCCCCCCA", protocol="SASL_PLAINTEXT")
        listed = Instance("listed", "DDDDDDDDQDCDDDDDDDDDDA", port=None, deny=("127.0.0.0/8",))
        acme = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", port=None)
        settings: Mapping[str, str] = {
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[name]}" for name in NAMES),
            "listener.security.protocol.map": "STAFF:SASL_PLAINTEXT,TENANTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            **{
                f"listener.name.{name}.plain.sasl.jaas.config": f'{MODULE} user_acme.carol="{RIGHT}" '
                f'user_staff="{RIGHT}";'
                for name in ("staff", "tenants")
            },
            "headrace.instances.listener": "TENANTS",
            "connection.failed.authentication.delay.ms": "0",
            "connections.max.reauth.ms": "3600000",
        }
        self._houses = Houses(directory, (own,), settings)
        self._others = acme, listed

    def __enter__(self) -> "Doors":
        houses = self._houses.__enter__()
        for instance in self._others:
            houses.run(partial(houses.broker.instances.create, instance))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()} | houses.addresses
        with Cluster(self.addresses["BROKERS"]) as cluster:
            for user in (KNOWN, OTHER, "listed.alice", "staff"):
                UserAdmin(cluster).set_password(user, RIGHT)
        return self

    def __exit__(self, *error: object) -> None:
        self._houses.__exit__(*error)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with Doors(tmp_path_factory.mktemp("doors") / "data") as found:
        yield found


def log_in(wire: Wire, mechanism: str, user: str, password: str, authzid: str = "") -> tuple[Any, ...]:
    """What the broker tells a client: salt and iterations, the last error with its text, and whether it closes."""
    assert handshake(wire, mechanism)[0] == 0
    if mechanism == "PLAIN":
        done = authenticate(wire, f"{authzid}\0{user}\0{password}".encode())
        return done.error_code, done.error_message, bool(done.error_code) and is_closed(wire)
    client = ScramClient(mechanism, user, password, "nonce")
    challenge = bytes(authenticate(wire, client.respond(None)).auth_bytes)
    first = scram.read_server_first(challenge)
    done = authenticate(wire, client.respond(challenge))
    told = done.error_code, done.error_message, bool(done.error_code) and is_closed(wire)
    return first.salt, first.iterations, *told


def told(doors: Doors, listener: str, mechanism: str, user: str, password: str, authzid: str = "") -> tuple[Any, ...]:
    with Wire(doors.addresses[listener]) as wire:
        return log_in(wire, mechanism, user, password, authzid)


@pytest.mark.parametrize(("listener", "user"), [
    ("STAFF", KNOWN), ("STAFF", OTHER), ("STAFF", "listed.alice"), ("STAFF", "acme.carol"),
    ("TENANTS", OTHER), ("TENANTS", "listed.alice"), ("own", KNOWN),
])  # fmt: skip
@pytest.mark.parametrize("mechanism", ["PLAIN", MECHANISM])
def test_a_right_password_is_answered_like_a_wrong_one(doors: Doors, listener: str, mechanism: str, user: str) -> None:
    right, wrong = (told(doors, listener, mechanism, user, password) for password in (RIGHT, WRONG))
    assert right == wrong
    assert right[-3] == ErrorCode.SASL_AUTHENTICATION_FAILED
    if mechanism == "PLAIN":
        nobody = told(doors, listener, mechanism, f"{user.partition('.')[0]}.nobody", WRONG)
        assert right == nobody
        assert told(doors, listener, mechanism, user, RIGHT, authzid="other") == wrong, "also with another id"


def test_salts_do_not_tell_who_exists(doors: Doors) -> None:
    """They are the same at each listener, whether they are stored or made up."""
    for user in (KNOWN, UNKNOWN):
        salts = {told(doors, listener, MECHANISM, user, WRONG)[:2] for listener in ("STAFF", "TENANTS")}
        assert len(salts) == 1, user


def test_a_client_that_authenticates_again_cannot_try_the_password_of_another_instance(doors: Doors) -> None:
    answers = []
    for password in (RIGHT, WRONG):
        with Wire(doors.addresses["STAFF"]) as wire:
            assert log_in(wire, "PLAIN", "staff", RIGHT)[0] == 0
            assert serves(wire)
            answers.append([log_in(wire, "PLAIN", "acme.carol", password)])
        with Wire(doors.addresses["STAFF"]) as wire:
            assert log_in(wire, MECHANISM, "staff", RIGHT)[2] == 0
            answers[-1].append(log_in(wire, MECHANISM, KNOWN, password))
    assert answers[0] == answers[1]


def test_those_who_may_log_in_do(doors: Doors) -> None:
    for mechanism in ("PLAIN", MECHANISM):
        with Wire(doors.addresses["TENANTS"]) as wire:
            assert log_in(wire, mechanism, KNOWN, RIGHT)[-3] == 0
            assert serves(wire)
        assert told(doors, "STAFF", mechanism, "staff", RIGHT)[-3] == 0
    assert told(doors, "own", MECHANISM, "alice", RIGHT)[-3] == 0
