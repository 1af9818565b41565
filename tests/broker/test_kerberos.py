"""GSSAPI on a broker's listener, in a real realm of MIT Kerberos: who comes in, under which name, and who does not.

Messages are sent by hand (`tests.wire`), so that any order of any bytes can be sent. Clients of others are in
`test_kerberos_clients`.
"""

import os
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.broker.security import authentication
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.errors import AuthenticationFailed, ErrorCode
from headrace.network.sasl.kerberos import Initiator
from headrace.protocol import messages as m
from headrace.security.kerberos_login import KerberosLogin
from headrace.testing import Broker
from tests import rotation
from tests.broker.test_authentication import AUTHENTICATE, authenticate, handshake, is_closed, serves
from tests.harness import receive_frame
from tests.kerberos import KEYTAB_LOGIN, MODULE, Realm, client_options, missing_tools, server_settings
from tests.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "")]

REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
RULES = r"RULE:[1:$1@$0](r.*@EXAMPLE\.COM)s/@.*//U, RULE:[2:$1-$2](job-.*)/L, RULE:[1:$1](carol)s/$/@x/, DEFAULT"
NO_LAYER = bytes([1, 0, 0, 0])


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Realm(tmp_path_factory.mktemp("realm")) as realm, realm.used():
        realm.add("kafka/127.0.0.1", "other/127.0.0.1")
        realm.add("alice", "root", "job/Night", "carol")
        yield realm


@pytest.fixture(scope="module")
def broker(realm: Realm) -> Iterator[Broker]:
    settings = {
        **server_settings(realm),
        "sasl.kerberos.principal.to.local.rules": RULES,
        "connections.max.reauth.ms": 3_600_000,
        "connection.failed.authentication.delay.ms": 0,
    }
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _every_failure_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "FAILED_AUTHENTICATIONS_LOGGED_PER_SECOND_MAX", 1 << 30)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


class Client:
    """A client's side, of which any part can be wrong."""

    def __init__(self, realm: Realm, principal: str = "alice", service: str = "kafka") -> None:
        login = KerberosLogin(principal, str(realm.directory / "alice.keytab"))
        self.context = Initiator(login, service).context("127.0.0.1")
        self.first = self.context.step(None)

    def establish(self, wire: Wire) -> bytes:
        """Establishes the context; returns the server's offer of layers."""
        assert handshake(wire, "GSSAPI")[0] == 0
        self.take(authenticate(wire, self.first))
        return self.context.unwrap(bytes(authenticate(wire, b"").auth_bytes))

    def take(self, answer: m.SaslAuthenticateResponse) -> None:
        assert answer.error_code == 0, answer.error_message
        assert self.context.step(bytes(answer.auth_bytes)) == b""
        assert self.context.is_complete

    def choose(self, wire: Wire, choice: bytes = NO_LAYER) -> m.SaslAuthenticateResponse:
        return authenticate(wire, self.context.wrap(choice))


def is_refused(answer: m.SaslAuthenticateResponse) -> bool:
    return (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)


def names(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The principals of the clients that were authenticated."""
    return [vars(each)["principal"] for each in caplog.records if each.message == "a client is authenticated"]


def reasons(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Who was refused, and why."""
    failed = [vars(each) for each in caplog.records if each.message == "an authentication failed"]
    return [(each["user"], each["reason"]) for each in failed]


def test_offers_no_layer_but_none_and_serves_who_takes_it(realm: Realm, wire: Wire) -> None:
    client = Client(realm)
    assert client.establish(wire) == NO_LAYER
    done = client.choose(wire)
    assert (done.error_code, bytes(done.auth_bytes), done.session_lifetime_ms) == (0, b"", 3_600_000)
    assert serves(wire)


@pytest.mark.parametrize(
    ("principal", "name"), [("alice", "User:alice"), ("root", "User:ROOT"), ("job/Night", "User:job-night")]
)
def test_names_a_principal_by_the_rules(
    realm: Realm, wire: Wire, caplog: pytest.LogCaptureFixture, principal: str, name: str
) -> None:
    client = Client(realm, principal)
    client.establish(wire)
    with caplog.at_level("DEBUG"):
        assert client.choose(wire).error_code == 0
    assert names(caplog) == [name]


def test_refuses_a_principal_for_which_the_rules_make_no_plain_name(
    realm: Realm, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(realm, "carol")
    client.establish(wire)
    assert is_refused(client.choose(wire))
    assert is_closed(wire)
    [(user, reason)] = reasons(caplog)
    assert user == "carol@EXAMPLE.COM"
    assert "'carol@x'" in reason


@pytest.mark.parametrize("authzid", [b"root", b"kafka@127.0.0.1", b"\xff\0" * 1000])
def test_an_authzid_makes_nobody_another_one(
    realm: Realm, wire: Wire, caplog: pytest.LogCaptureFixture, authzid: bytes
) -> None:
    client = Client(realm)
    client.establish(wire)
    with caplog.at_level("DEBUG"):
        assert client.choose(wire, NO_LAYER + authzid).error_code == 0
    assert names(caplog) == ["User:alice"]


@pytest.mark.parametrize("choice", [b"", b"\1\0\0", b"\0\0\0\0", b"\2\0\0\0", b"\4\0\xff\xff", b"\7\0\0\0"])
def test_refuses_a_layer_that_was_not_offered(realm: Realm, wire: Wire, choice: bytes) -> None:
    client = Client(realm)
    client.establish(wire)
    assert is_refused(client.choose(wire, choice))
    assert is_closed(wire)


def test_refuses_a_choice_that_is_not_from_the_client(realm: Realm, wire: Wire) -> None:
    client = Client(realm)
    client.establish(wire)
    wrapped = bytearray(client.context.wrap(NO_LAYER))
    wrapped[-1] ^= 1
    assert is_refused(authenticate(wire, bytes(wrapped)))
    assert is_closed(wire)


def test_refuses_a_message_where_the_server_is_to_offer_its_layers(realm: Realm, wire: Wire) -> None:
    client = Client(realm)
    assert handshake(wire, "GSSAPI")[0] == 0
    client.take(authenticate(wire, client.first))
    assert is_refused(client.choose(wire))
    assert is_closed(wire)


def test_refuses_a_replayed_token(realm: Realm, broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(realm)
    client.establish(wire)
    with Wire(broker.bootstrap) as again:
        assert handshake(again, "GSSAPI")[0] == 0
        assert is_refused(authenticate(again, client.first))
        assert is_closed(again)
    assert "replay" in reasons(caplog)[0][1].lower()


def test_refuses_a_ticket_for_another_service_of_the_same_key_table(
    realm: Realm, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    handshake(wire, "GSSAPI")
    assert is_refused(authenticate(wire, Client(realm, service="other").first))
    assert is_closed(wire)
    assert "other/127.0.0.1" in reasons(caplog)[0][1]


def test_refuses_a_token_of_another_time(realm: Realm, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(realm)
    time.sleep(2.1)  # the broker forgives one second
    with realm.used(is_strict=True):
        handshake(wire, "GSSAPI")
        assert is_refused(authenticate(wire, client.first))
    assert "clock skew" in reasons(caplog)[0][1].lower()


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "one byte": lambda token: b"\x60",
    "cut off": lambda token: token[: len(token) // 2],
    "flipped": lambda token: token[:-20] + bytes([token[-20] ^ 1]) + token[-19:],
    "a length that lies": lambda token: token[:2] + b"\xff\xff" + token[4:],
    "text": lambda token: b"n,,n=alice,r=nonce",
    "100 KiB": lambda token: token + rotation.random_bytes("kerberos", 100 << 10),
    "zeros": lambda token: bytes(4096),
    "of another mechanism": lambda token: token.replace(bytes.fromhex("2a864886f712010202"), b"\x2b" * 9),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_refuses_garbage(realm: Realm, broker: Broker, wire: Wire, what: str) -> None:
    handshake(wire, "GSSAPI")
    assert is_refused(authenticate(wire, GARBAGE[what](Client(realm).first)))
    assert is_closed(wire)


@pytest.mark.parametrize("stage", ["the first token", "the choice of a layer", "a token without a request"])
def test_a_token_that_comes_byte_by_byte_holds_no_connection_beyond_its_time(realm: Realm, stage: str) -> None:
    settings = {**server_settings(realm), "headrace.authentication.timeout.ms": 1000}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        client = Client(realm)
        if stage == "the choice of a layer":
            client.establish(wire)
        else:
            assert handshake(wire, "GSSAPI", version=0 if stage == "a token without a request" else 1)[0] == 0
        wire.socket.settimeout(0.05)
        began = time.monotonic()
        with suppress(OSError):
            wire.socket.sendall(struct.pack(">i", 20_000))
            while time.monotonic() - began < 30:
                wire.socket.sendall(b"\0")
                with suppress(TimeoutError):
                    assert wire.socket.recv(1) == b""
                    break
        assert 0.5 < time.monotonic() - began < 30


def test_closes_the_connection_of_a_token_that_is_too_large(wire: Wire) -> None:
    handshake(wire, "GSSAPI")
    wire.socket.sendall(struct.pack(">i", (128 << 10) + 1))
    assert is_closed(wire)


def test_ends_a_conversation_that_does_not_end(wire: Wire) -> None:
    handshake(wire, "GSSAPI")
    for _ in range(16):
        answer = authenticate(wire, b"")
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert is_refused(authenticate(wire, b""))
    assert is_closed(wire)


def bare(wire: Wire, message: bytes) -> None:
    """Sends a message without a request around it."""
    wire.socket.sendall(struct.pack(">i", len(message)) + message)


@pytest.mark.parametrize("has_handshake", [True, False], ids=["handshake 0", "Kafka 0.9"])
def test_serves_clients_whose_tokens_have_no_requests_around_them(
    realm: Realm, wire: Wire, *, has_handshake: bool
) -> None:
    """Nothing follows the client's last message: an old client would take it for its first answer."""
    if has_handshake:
        assert handshake(wire, "GSSAPI", version=0)[0] == 0
    client = Client(realm)
    bare(wire, client.first)
    assert client.context.step(receive_frame(wire.socket)) == b""
    bare(wire, b"")
    assert client.context.unwrap(receive_frame(wire.socket)) == NO_LAYER
    bare(wire, client.context.wrap(NO_LAYER))
    assert serves(wire)


def test_a_client_authenticates_again_as_itself_only(realm: Realm, broker: Broker, wire: Wire) -> None:
    with Wire(broker.bootstrap) as traitor:
        for each in (wire, traitor):
            client = Client(realm)
            client.establish(each)
            assert client.choose(each).error_code == 0
        time.sleep(1.05)  # earlier is refused (KIP-368)
        again, other = Client(realm), Client(realm, "root")
        again.establish(wire)
        assert again.choose(wire).error_code == 0
        assert serves(wire)
        other.establish(traitor)
        answer = other.choose(traitor)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in (answer.error_message or "")
        assert is_closed(traitor)


def test_new_keys_of_the_broker_count_at_once(realm: Realm, tmp_path: Path) -> None:
    keytab = realm.add("kafka/localhost")
    settings = {**server_settings(realm, "kafka/localhost", keytab), "connection.failed.authentication.delay.ms": 0}
    options = client_options(realm, "alice", realm.directory / "alice.keytab")
    with Broker(settings=settings) as broker:
        bootstrap = f"localhost:{broker.port}"
        with Cluster(bootstrap, ClientSettings(sasl=options)) as cluster:
            assert cluster.refresh(None).brokers
        realm.export(keytab, "kafka/localhost", is_new=True)
        fresh = client_options(realm, "root", realm.directory / "alice.keytab")  # has no ticket for the old key
        with Cluster(bootstrap, ClientSettings(sasl=fresh)) as cluster:
            assert cluster.refresh(None).brokers


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        ("", "has GSSAPI but no keys of Kerberos: set {name}"),
        (f"{MODULE} required useTicketCache=true;", "{name}: a broker needs its keys: set useKeyTab=true"),
        (f'{KEYTAB_LOGIN} keyTab="/nowhere" principal="kafka/127.0.0.1";', "/nowhere has no key of .*not found"),
        (f'{KEYTAB_LOGIN} keyTab="{{keytab}}" principal="kafka/elsewhere";', "has no key of kafka/elsewhere"),
        (f'{KEYTAB_LOGIN} keyTab="{{keytab}}" principal="kafka";', "set principal=.SERVICE/HOST@REALM"),
        (f'{KEYTAB_LOGIN} keyTab="{{keytab}}";', "set principal=.SERVICE/HOST@REALM"),
    ],
)
def test_keys_that_are_missing_or_wrong_are_told_at_the_start(realm: Realm, jaas: str, said: str) -> None:
    settings = server_settings(realm)
    name = next(each for each in settings if each.endswith("jaas.config"))
    settings[name] = jaas.replace("{keytab}", str(realm.directory / "kafka-127.0.0.1.keytab"))
    with pytest.raises(Exception, match=said.replace("{name}", name)):
        Broker(settings=settings).start()


def test_the_missing_package_is_named_at_the_start(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(Exception, match=r"pip install 'headrace\[gssapi\]'"):
        Broker(settings=server_settings(realm)).start()


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "no such service": (
        {"sasl.kerberos.service.name": "kavka"},
        "Server kavka/127.0.0.1@EXAMPLE.COM not found in Kerberos database; sasl.kerberos.service.name and the host",
    ),
    "no such principal": ({"sasl.jaas.config": "nobody"}, "has no key of nobody@EXAMPLE.COM"),
    "a principal that is gone": ({"sasl.jaas.config": "gone"}, "'gone@EXAMPLE.COM' not found in Kerberos database"),
    "an old key": ({"sasl.jaas.config": "stale"}, "export it again"),
    "no key table": (
        {"sasl.jaas.config": f'{KEYTAB_LOGIN} keyTab="/nowhere" principal="alice";'},
        "/nowhere has no key of alice: Key table file '/nowhere' not found",
    ),
    "no tickets": ({"sasl.jaas.config": f"{MODULE} required useTicketCache=true;"}, "run kinit, or use a key table"),
    "another service's name twice": (
        {"sasl.jaas.config": f'{MODULE} required useTicketCache=true serviceName="x";'},
        "sasl.kerberos.service.name and serviceName in sasl.jaas.config differ",
    ),
    "no service": ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name is not set"),
    "nothing": ({"sasl.jaas.config": f"{MODULE} required;"}, "headrace asks for no password"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_client_says_what_is_wrong_and_what_to_change(realm: Realm, broker: Broker, mistake: str) -> None:
    changes, said = MISTAKES[mistake]
    jaas = changes.get("sasl.jaas.config", "")
    keytab = realm.directory / "alice.keytab"
    if jaas in ("gone", "stale") and not (realm.directory / f"{jaas}.keytab").exists():
        keytab = realm.add(jaas)
        realm.forget(jaas) if jaas == "gone" else realm.export(realm.directory / "newer.keytab", jaas, is_new=True)
    options = client_options(realm, "alice", realm.directory / "alice.keytab") | changes
    if jaas in ("nobody", "gone", "stale"):
        options |= client_options(realm, jaas, keytab)
    with (
        pytest.raises(Exception, match=".") as caught,
        Cluster(broker.bootstrap, ClientSettings(sasl=options)) as cluster,
    ):
        cluster.refresh(None)
    assert said in str(caught.value)


def test_the_client_takes_the_tickets_of_kinit(realm: Realm, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = realm.tickets(realm.directory / "alice.keytab", "alice")
    named = client_options(realm, "alice", cache)
    named["sasl.jaas.config"] = f'{MODULE} required useTicketCache=true ticketCache="{cache}";'
    with Cluster(broker.bootstrap, ClientSettings(sasl=named)) as cluster:
        assert cluster.refresh(None).brokers
    del named["sasl.jaas.config"]
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    with Cluster(broker.bootstrap, ClientSettings(sasl=named)) as cluster:
        assert cluster.refresh(None).brokers


def test_a_realm_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with Realm(tmp_path) as gone, gone.used():
        keytab = gone.add("alice")
    options = client_options(gone, "alice", keytab)
    with (
        gone.used(),
        Broker() as broker,
        pytest.raises(AuthenticationFailed, match=r"Cannot contact any KDC.*krb5.conf"),
        Cluster(broker.bootstrap, ClientSettings(sasl=options)) as cluster,
    ):
        cluster.refresh(None)


def test_a_library_that_blocks_stops_nobody_else(realm: Realm, wire: Wire, tmp_path: Path) -> None:
    """Each step reads the key table, which here is a pipe that nobody writes to for a while."""
    keytab = tmp_path / "keytab"
    shutil.copy(realm.directory / "kafka-127.0.0.1.keytab", keytab)
    with Broker(settings=server_settings(realm, keytab=keytab)) as broker, Wire(broker.bootstrap) as served:
        client = Client(realm)
        client.establish(served)
        assert client.choose(served).error_code == 0
        content = keytab.read_bytes()
        keytab.unlink()
        os.mkfifo(keytab)
        with Wire(broker.bootstrap) as waiting:
            assert handshake(waiting, "GSSAPI")[0] == 0
            token = Client(realm).first
            waiting.send(AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
            with keytab.open("wb") as pipe:  # opens when the broker reads
                assert serves(served)
                with Wire(broker.bootstrap) as third:
                    assert handshake(third, "GSSAPI")[0] == 0
                pipe.write(content)
            assert waiting.receive()[1]
