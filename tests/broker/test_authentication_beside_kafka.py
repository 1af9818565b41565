"""Right and wrong authentications, sent to Apache Kafka and to headrace byte for byte: the answers are the same.

Two differences are deliberate. Apache Kafka refuses an unknown user of SCRAM at the first message. Where a message of
the mechanism is due, it parses any other request to answer it with ILLEGAL_SASL_STATE; headrace closes the connection.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.user_admin import UserAdmin
from headrace.testing import Broker
from tests.broker.conftest import PEER
from tests.harness import free_ports, receive_frame
from tests.peers import kafka
from tests.wire import Wire, string

pytestmark = PEER

HANDSHAKE, API_VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder" user_bob="builder";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PREFIX = "listener.name.sasl_plaintext"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}.plain.sasl.jaas.config": USERS,
    f"{PREFIX}.plain.connections.max.reauth.ms": "3600000",
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": SCRAM,
    "connection.failed.authentication.delay.ms": "50",
}

Story = Callable[["Told"], None]


class Told:
    """A connection that writes down what the broker answers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.answers: list[str] = []

    def ask(self, key: int, version: int, body: bytes, *, size: int | None = None) -> bytes:
        """The answer, of which `size` bytes are compared; empty when the connection is closed instead."""
        try:
            answer = self._wire.ask(key, version, body)
        except (ConnectionError, BrokenPipeError):
            self.answers.append("closed")
            return b""
        self.answers.append(answer[:size].hex(" "))
        return answer

    def raw(self, token: bytes) -> None:
        """A message without a request around it."""
        self._wire.socket.sendall(struct.pack(">i", len(token)) + token)
        try:
            self.answers.append(f"raw {receive_frame(self._wire.socket).hex(' ')}")
        except ConnectionError:
            self.answers.append("closed")

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        """SaslHandshake."""
        self.ask(HANDSHAKE, version, string(mechanism))

    def token(self, token: bytes, version: int = 1, *, size: int | None = None) -> bytes:
        """SaslAuthenticate."""
        return self.ask(AUTHENTICATE, version, struct.pack(">i", len(token)) + token, size=size)

    def versions(self, version: int = 0) -> None:
        """ApiVersions; its error code is compared."""
        self.ask(API_VERSIONS, version, b"\0" if version > 2 else b"", size=2)

    def is_served(self) -> None:
        """An ordinary request, whose being answered is compared."""
        self.ask(METADATA, 1, struct.pack(">i", 0), size=0)


def _scram(told: Told, final: bytes) -> None:
    told.handshake("SCRAM-SHA-256")
    first = told.token(b"n,,n=alice,r=abcdefgh", size=4)
    nonce = first[first.index(b"r=") + 2 :].split(b",")[0]
    told.token(final.replace(b"NONCE", nonce))


STORIES: dict[str, Story] = {}


def story(tell: Story) -> Story:
    """Registers a story."""
    STORIES[tell.__name__] = tell
    return tell


@story
def right_password(told: Told) -> None:
    told.versions()
    told.handshake()
    told.token(b"\0alice\0wonder")
    told.is_served()


@story
def right_password_in_old_versions(told: Told) -> None:
    told.handshake()
    told.token(b"alice\0alice\0wonder", 0)
    told.is_served()


@story
def wrong_password(told: Told) -> None:
    told.handshake()
    told.token(b"\0alice\0wrong")
    told.is_served()


@story
def unknown_user(told: Told) -> None:
    told.handshake()
    told.token(b"\0nobody\0wrong", 0)
    told.is_served()


@story
def malformed_messages(told: Told) -> None:
    told.handshake()
    told.token(b"alice")


@story
def no_name(told: Told) -> None:
    told.handshake()
    told.token(b"\0\0wonder")


@story
def another_authorization_id(told: Told) -> None:
    told.handshake()
    told.token(b"bob\0alice\0wonder")


@story
def unknown_mechanism(told: Told) -> None:
    told.handshake("GSSAPI")
    told.handshake()


@story
def unknown_mechanism_of_old(told: Told) -> None:
    told.handshake("", 0)
    told.is_served()


@story
def raw_tokens(told: Told) -> None:
    told.handshake(version=0)
    told.raw(b"\0alice\0wonder")
    told.is_served()


@story
def wrong_raw_token(told: Told) -> None:
    told.handshake(version=0)
    told.raw(b"\0alice\0wrong")


@story
def message_without_handshake(told: Told) -> None:
    told.token(b"\0alice\0wonder")


@story
def ordinary_request_first(told: Told) -> None:
    told.is_served()


@story
def unknown_request_first(told: Told) -> None:
    told.ask(999, 0, b"")


@story
def versions_twice(told: Told) -> None:
    told.versions()
    told.versions()


@story
def versions_that_are_too_new(told: Told) -> None:
    told.versions(99)
    told.versions()
    told.handshake()
    told.token(b"\0alice\0wonder")


@story
def versions_too_late(told: Told) -> None:
    told.handshake()
    told.versions()
    told.is_served()


@story
def handshake_twice(told: Told) -> None:
    told.handshake()
    told.handshake()
    told.is_served()


@story
def handshake_of_an_unknown_version(told: Told) -> None:
    told.handshake(version=7)


@story
def message_of_an_unknown_version(told: Told) -> None:
    told.handshake()
    told.token(b"\0alice\0wonder", 9)


@story
def message_after_the_end(told: Told) -> None:
    right_password(told)
    told.token(b"\0alice\0wonder")
    told.is_served()


@story
def again(told: Told) -> None:
    right_password(told)
    told.handshake()
    told.token(b"\0alice\0wonder")
    told.is_served()
    told.handshake()
    told.is_served()


@story
def again_with_a_wrong_password(told: Told) -> None:
    right_password(told)
    told.handshake()
    told.token(b"alice")
    told.is_served()


@story
def again_as_another(told: Told) -> None:
    right_password(told)
    told.handshake()
    told.token(b"\0bob\0builder")
    told.is_served()


@story
def again_by_another_mechanism(told: Told) -> None:
    right_password(told)
    told.handshake("SCRAM-SHA-256")
    told.token(b"n,,n=alice,r=abcdefgh")


@story
def scram_with_a_wrong_proof(told: Told) -> None:
    _scram(told, b"c=biws,r=NONCE,p=" + b"A" * 43 + b"=")


@story
def scram_with_another_nonce(told: Told) -> None:
    _scram(told, b"c=biws,r=NONCEx,p=" + b"A" * 43 + b"=")


@story
def scram_with_a_malformed_end(told: Told) -> None:
    _scram(told, b"c=biws,r=NONCE")


@story
def scram_with_channel_binding(told: Told) -> None:
    told.handshake("SCRAM-SHA-256")
    told.token(b"p=tls-unique,,n=alice,r=abcdefgh")


@story
def scram_with_another_authorization_id(told: Told) -> None:
    told.handshake("SCRAM-SHA-256")
    told.token(b"n,a=bob,n=alice,r=abcdefgh")


@pytest.fixture(scope="module")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    directory: Path = tmp_path_factory.mktemp("kafka")
    settings = {**kafka.SHARED_SETTINGS, **SETTINGS}
    with kafka.run_kafka(directory, is_kept=False, settings=settings, listener=f"SASL_PLAINTEXT://{address}") as plain:
        with Cluster(plain) as cluster:
            UserAdmin(cluster).set_password("alice", "wonder")
        yield address


@pytest.fixture(scope="module")
def headrace_address() -> Iterator[str]:
    (port,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"
    with Broker(settings={**SETTINGS, "listeners": listeners}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            UserAdmin(cluster).set_password("alice", "wonder")
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("name", sorted(STORIES))
def test_answers_as_apache_kafka(kafka_address: str, headrace_address: str, name: str) -> None:
    told = []
    for address in (kafka_address, headrace_address):
        with Wire(address) as wire:
            told.append(Told(wire))
            STORIES[name](told[-1])
    assert told[1].answers == told[0].answers
