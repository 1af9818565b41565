"""Who is vouched for by an identity provider, or has a delegation token, enters the instances that name him alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.security.delegation_tokens import password_of
from headrace.security.sasl import scram
from headrace.security.sasl.scram_client import ScramClient
from tests.bearer_tokens import Issuer
from tests.broker.instances.houses import Houses
from tests.broker.test_authentication import authenticate, handshake, serves
from tests.eventually import eventually
from tests.harness import free_ports
from tests.wire import Wire

NAMED, PATTERN, OTHER, SHARED, CLOSED = "named", "pattern", "other", "shared", "closed"
MECHANISM = "SCRAM-SHA-512"


class Doors(Houses):
    """A broker with an identity provider for all its instances."""

    def __init__(self, directory: Path) -> None:
        self.issuer = Issuer()
        (directory / "jwks.json").write_bytes(self.issuer.jwks())
        brokers, tenants = free_ports(2)
        settings = {
            "listeners": f"BROKERS://127.0.0.1:{brokers},TENANTS://127.0.0.1:{tenants}",
            "listener.security.protocol.map": "BROKERS:PLAINTEXT,TENANTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": f"OAUTHBEARER,{MECHANISM}",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "issuer",
            "sasl.oauthbearer.jwks.endpoint.url": (directory / "jwks.json").as_uri(),
            "headrace.instances.listener": "TENANTS",
            "connection.failed.authentication.delay.ms": "0",
            "delegation.token.secret.key": "the secret of the cluster",
        }
        own = (
            Instance(NAMED, "AAAAAAAAQACAAAAAAAAAAA", principals=("User:alice",), protocol="SASL_PLAINTEXT"),
            Instance(
                PATTERN, "BBBBBBBBQBCBBBBBBBBBBA", principals=("*@acme",), admins=("root",), protocol="SASL_PLAINTEXT"
            ),
            Instance(OTHER, "CCCCCCCCQCCCCCCCCCCCCA", protocol="SASL_PLAINTEXT"),
        )
        super().__init__(directory / "data", own, settings)
        self.tenants = f"127.0.0.1:{tenants}"

    def share(self, name: str, instance_id: str, *principals: str) -> None:
        """Makes an instance that its users choose."""
        instance = Instance(name, instance_id, port=None, principals=principals)
        self.run(lambda: self.broker.instances.create(instance))
        eventually(lambda: name in self.broker.instances.endpoints(), "its address")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with Doors(tmp_path_factory.mktemp("principals")) as found:
        found.share(SHARED, "DDDDDDDDQDCDDDDDDDDDDA", "alice")
        found.share(CLOSED, "EEEEEEEEQECEEEEEEEEEEA")
        yield found


def enters(doors: Doors, address: str, subject: str) -> bool:
    """Whether the subject of a good token may enter, and is served."""
    with Wire(address) as wire:
        assert handshake(wire, "OAUTHBEARER")[0] == 0
        token = doors.issuer.token(sub=subject)
        done = authenticate(wire, f"n,,\1auth=Bearer {token}\1\1".encode())
        assert done.error_code in (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
        return not done.error_code and serves(wire)


@pytest.mark.parametrize(("instance", "subject", "may"), [
    (NAMED, "alice", True), (NAMED, "bob", False), (NAMED, "named.alice", False), (NAMED, "ANONYMOUS", False),
    (PATTERN, "bob@acme", True), (PATTERN, "root", True), (PATTERN, "bob@acme.example", False),
    (OTHER, "alice", False), (OTHER, "other.alice", False), (OTHER, "ANONYMOUS", False),
])  # fmt: skip
def test_a_good_token_enters_the_instances_that_name_its_subject(
    doors: Doors, instance: str, subject: str, may: bool
) -> None:
    assert enters(doors, doors.addresses[instance], subject) == may


@pytest.mark.parametrize(("subject", "may"), [
    ("shared.alice", True), ("shared.bob", False), ("closed.alice", False), ("nobody.alice", False), ("alice", True),
])  # fmt: skip
def test_at_the_listener_of_users_too(doors: Doors, subject: str, may: bool) -> None:
    """`alice` is one of the operator's."""
    assert enters(doors, doors.tenants, subject) == may


@pytest.mark.parametrize(("owner", "may"), [("shared.alice", True), ("shared.bob", False), ("closed.alice", False)])
def test_a_delegation_token_of_its_owner_likewise(doors: Doors, owner: str, may: bool) -> None:
    tokens = doors.broker.delegation_tokens
    assert tokens is not None
    made = doors.run(lambda: tokens.create(f"User:{owner}", "User:operator", (), -1))
    client = ScramClient(MECHANISM, made.id, password_of(tokens.hmac_of(made.id)), "nonce", is_token=True)
    with Wire(doors.tenants) as wire:
        assert handshake(wire, MECHANISM)[0] == 0
        challenge = bytes(authenticate(wire, client.respond(None)).auth_bytes)
        assert scram.read_server_first(challenge).iterations
        done = authenticate(wire, client.respond(challenge))
        assert done.error_code == (0 if may else ErrorCode.SASL_AUTHENTICATION_FAILED)
        assert not may or serves(wire)


def test_who_is_named_no_more_is_closed(doors: Doors) -> None:
    name = NAMED
    with Wire(doors.addresses[name]) as wire:
        assert handshake(wire, "OAUTHBEARER")[0] == 0
        authenticate(wire, f"n,,\1auth=Bearer {doors.issuer.token(sub='alice')}\1\1".encode())
        assert serves(wire)
        doors.run(lambda: doors.broker.instances.change(name, lambda each: each.altered({"principals": ["bob"]})))
        assert wire.socket.recv(1) == b""
    doors.run(lambda: doors.broker.instances.change(name, lambda each: each.altered({"principals": ["alice"]})))
    eventually(lambda: enters(doors, doors.addresses[name], "alice"), "the change to be known")
