"""The authentication gate over the wire: right and wrong orders, old clients, time-outs, sessions.

Written out by hand (`tests.wire`), so that any order of any bytes can be sent.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.broker.security import authentication
from headrace.broker.security.gate import Gate
from headrace.broker.security.session import Session
from headrace.controller.controller import Controller
from headrace.errors import ErrorCode
from headrace.limits import LOGGED_NAME_CHARS_MAX
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.eventually import WITHIN_SECONDS, eventually
from tests.examples import examples
from tests.harness import free_ports, receive_frame
from tests.wire import Wire, frame, string

HANDSHAKE, API_VERSIONS, AUTHENTICATE, METADATA, CREATE_TOPICS = 17, 18, 36, 3, 19
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder" user_bob="builder";'
SETTINGS: Mapping[str, str | int] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 3_600_000,
    "connection.failed.authentication.delay.ms": 0,
}
INVALID_CREDENTIALS = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        yield wire


def handshake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> tuple[int, list[str]]:
    """The error code and the mechanisms that the broker answers with."""
    answer, _ = m.SaslHandshakeResponse.decode(version, wire.ask(HANDSHAKE, version, string(mechanism)))
    return answer.error_code, list(answer.mechanisms)


def authenticate(wire: Wire, message: bytes, version: int = 1) -> m.SaslAuthenticateResponse:
    """The broker's answer to one message of a mechanism."""
    body = struct.pack(">i", len(message)) + message
    return m.SaslAuthenticateResponse.decode(version, wire.ask(AUTHENTICATE, version, body))[0]


def is_closed(wire: Wire) -> bool:
    """Whether the broker closes the connection without another byte."""
    try:
        return wire.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def serves(wire: Wire) -> bool:
    """Whether an ordinary request is answered."""
    return len(wire.ask(METADATA, 1, struct.pack(">i", 0))) > 0


def test_serves_a_client_after_api_versions_handshake_and_authentication(wire: Wire) -> None:
    assert wire.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    assert handshake(wire) == (0, ["PLAIN", "SCRAM-SHA-256"])
    done = authenticate(wire, b"\0alice\0wonder")
    assert (done.error_code, done.error_message, bytes(done.auth_bytes), done.session_lifetime_ms) == (
        0,
        "",
        b"",
        3_600_000,
    )
    assert serves(wire)


def test_serves_a_client_that_does_not_ask_for_versions(wire: Wire) -> None:
    assert handshake(wire)[0] == 0
    assert authenticate(wire, b"\0alice\0wonder", version=0).error_code == 0
    assert serves(wire)


def test_answers_tokens_without_requests_as_they_are_after_a_handshake_of_version_0(wire: Wire) -> None:
    assert handshake(wire, version=0)[0] == 0
    wire.socket.sendall(struct.pack(">i", 13) + b"\0alice\0wonder")
    assert receive_frame(wire.socket) == b""
    assert serves(wire)


def test_closes_the_connection_of_a_token_that_is_wrong_without_an_answer(wire: Wire) -> None:
    assert handshake(wire, version=0)[0] == 0
    wire.socket.sendall(struct.pack(">i", 12) + b"\0alice\0wonde")
    assert is_closed(wire)


@pytest.mark.parametrize("password", [b"\0alice\0wrong", b"\0nobody\0wrong"])
def test_refuses_a_wrong_password_and_an_unknown_user_alike(wire: Wire, password: bytes) -> None:
    handshake(wire)
    failed = authenticate(wire, password)
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(wire)


def test_refuses_an_unknown_user_of_scram_with_the_last_message_only(wire: Wire) -> None:
    handshake(wire, "SCRAM-SHA-256")
    first = authenticate(wire, b"n,,n=nobody,r=client")
    assert first.error_code == 0
    nonce = bytes(first.auth_bytes).split(b",")[0]
    proof = b"p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    failed = authenticate(wire, b"c=biws," + nonce + b"," + proof)
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.error_message == f"{INVALID_CREDENTIALS}SCRAM-SHA-256"
    assert is_closed(wire)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-512", "", "plain", "x" * 1000])
def test_lists_the_mechanisms_when_another_is_asked_for(wire: Wire, mechanism: str) -> None:
    assert handshake(wire, mechanism) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "SCRAM-SHA-256"])
    assert is_closed(wire)


@pytest.mark.parametrize("key", [METADATA, 0, 1, 19, 36, 999, -1])
def test_closes_the_connection_of_any_other_request_before_the_handshake(wire: Wire, key: int) -> None:
    wire.send(key, 1, b"\0" * 20)
    assert is_closed(wire)


def test_closes_the_connection_of_a_second_api_versions(wire: Wire) -> None:
    wire.ask(API_VERSIONS, 0, b"")
    wire.send(API_VERSIONS, 0, b"")
    assert is_closed(wire)


def test_lets_a_client_ask_again_for_versions_when_its_version_is_too_new(wire: Wire) -> None:
    assert wire.ask(API_VERSIONS, 99, b"\0")[:2] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    assert wire.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    assert handshake(wire)[0] == 0


def test_says_that_api_versions_or_a_handshake_comes_too_late(broker: Broker) -> None:
    for key, body in ((API_VERSIONS, b""), (HANDSHAKE, string("PLAIN"))):
        with Wire(broker.bootstrap) as wire:
            handshake(wire)
            assert wire.ask(key, 0, body)[:2] == struct.pack(">h", ErrorCode.ILLEGAL_SASL_STATE)
            assert is_closed(wire)


def test_closes_the_connection_of_any_other_request_instead_of_a_message(wire: Wire) -> None:
    handshake(wire)
    wire.send(METADATA, 1, struct.pack(">i", 0))
    assert is_closed(wire)


def test_dispatches_nothing_that_follows_a_failed_authentication(wire: Wire) -> None:
    handshake(wire)
    message = b"\0alice\0wrong"
    wire.socket.sendall(
        frame(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message) + frame(METADATA, 1, struct.pack(">i", 0))
    )
    answer, _ = m.SaslAuthenticateResponse.decode(1, receive_frame(wire.socket)[4:])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(wire)


def test_serves_requests_that_are_sent_right_behind_the_password(wire: Wire) -> None:
    handshake(wire)
    message = b"\0alice\0wonder"
    wire.socket.sendall(
        frame(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message, 7) + frame(METADATA, 1, b"\0\0\0\0", 8)
    )
    assert receive_frame(wire.socket)[:6] == struct.pack(">ih", 7, 0)
    assert receive_frame(wire.socket)[:4] == struct.pack(">i", 8)


def test_reads_no_large_request_before_the_authentication_and_large_ones_after_it(broker: Broker) -> None:
    for is_authenticated in (False, True):
        with Wire(broker.bootstrap) as wire:
            handshake(wire)
            if is_authenticated:
                authenticate(wire, b"\0alice\0wonder")
            body = struct.pack(">i", 1) + string("x" * 10_000)
            wire.socket.sendall(struct.pack(">i", 20_000) + frame(METADATA, 1, body)[4:])
            if is_authenticated:
                wire.socket.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    wire.socket.recv(1)
            else:
                assert is_closed(wire)


def test_a_message_behind_the_authentication_is_an_error(wire: Wire) -> None:
    handshake(wire)
    authenticate(wire, b"\0alice\0wonder")
    again = authenticate(wire, b"\0alice\0wonder")
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert again.error_message == "SaslAuthenticate request received after successful authentication"
    assert serves(wire)


def test_a_client_authenticates_again_as_the_same_user_once_a_second(wire: Wire) -> None:
    handshake(wire)
    authenticate(wire, b"\0alice\0wonder")
    assert handshake(wire)[0] == 0
    assert authenticate(wire, b"\0alice\0wonder").error_code == 0
    assert serves(wire)
    assert handshake(wire) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert serves(wire)


def test_a_session_without_an_end_cannot_be_renewed() -> None:
    settings = {**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 0}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wonder").session_lifetime_ms == 0
        assert handshake(wire) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert serves(wire)


def test_a_client_that_authenticates_again_cannot_become_another_user(wire: Wire) -> None:
    handshake(wire)
    authenticate(wire, b"\0alice\0wonder")
    handshake(wire)
    failed = authenticate(wire, b"\0bob\0builder")
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert is_closed(wire)


def test_a_client_that_authenticates_again_cannot_take_another_mechanism(wire: Wire) -> None:
    handshake(wire)
    authenticate(wire, b"\0alice\0wonder")
    assert handshake(wire, "SCRAM-SHA-256")[0] == 0
    wire.send(AUTHENTICATE, 1, struct.pack(">i", 1) + b"x")
    assert is_closed(wire)


def test_a_failed_second_authentication_says_which_it_was(wire: Wire) -> None:
    handshake(wire)
    authenticate(wire, b"\0alice\0wonder")
    handshake(wire)
    failed = authenticate(wire, b"\xff")
    assert failed.error_message == INVALID_CREDENTIALS.replace("during a", "during re-a") + "PLAIN"
    assert is_closed(wire)


def test_a_listener_without_sasl_says_so() -> None:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        assert handshake(wire) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert authenticate(wire, b"\0alice\0wonder").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert serves(wire)


@pytest.mark.slow
def test_closes_the_connections_of_clients_that_do_not_authenticate_in_time() -> None:
    with (
        Broker(settings={**SETTINGS, "headrace.authentication.timeout.ms": 2000}) as broker,
        Wire(broker.bootstrap) as silent,
        Wire(broker.bootstrap) as slow,
        Wire(broker.bootstrap) as done,
    ):
        handshake(slow)
        slow.socket.sendall(b"\0\0")
        handshake(done)
        authenticate(done, b"\0alice\0wonder")
        assert is_closed(silent)
        assert is_closed(slow)
        assert serves(done)


@pytest.mark.slow
def test_closes_the_connection_of_a_session_that_is_over_unless_the_client_authenticates_again() -> None:
    with (
        Broker(settings={**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 1500}) as broker,
        Wire(broker.bootstrap) as wire,
        Wire(broker.bootstrap) as other,
    ):
        for each in (wire, other):
            handshake(each)
            assert authenticate(each, b"\0alice\0wonder").session_lifetime_ms == 1500
        eventually(lambda: _is_refused(other), "the session to end")
        assert handshake(wire)[0] == 0
        assert authenticate(wire, b"\0alice\0wonder").session_lifetime_ms == 1500
        assert serves(wire)


@pytest.mark.parametrize("version", [1, 99])
def test_a_refused_handshake_does_not_revive_a_session_that_is_over(version: int) -> None:
    """A client may authenticate again once a second. One that asks too early, behind its end, gets no new session."""
    settings = {**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 100}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        handshake(wire)
        authenticate(wire, b"\0alice\0wonder")
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wonder").session_lifetime_ms == 100
        time.sleep(0.3)
        body = struct.pack(">hhih", HANDSHAKE, version, 7, -1) + string("PLAIN")
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        body = struct.pack(">hhih", METADATA, 1, 8, -1) + struct.pack(">i", 0)
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        answers = b""
        with suppress(ConnectionResetError):
            while received := wire.socket.recv(4096):
                answers += received
                assert struct.pack(">i", 8) not in answers, "an ordinary request is served"


@pytest.mark.slow
def test_a_session_may_end_while_its_client_authenticates_again() -> None:
    settings = {**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 700}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        handshake(wire)
        authenticate(wire, b"\0alice\0wonder")
        assert handshake(wire)[0] == 0
        time.sleep(1)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0


@pytest.mark.slow
def test_a_session_may_end_while_the_requests_before_the_handshake_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has begun in time; what it sent before is served, and so is the handshake."""
    create_topics = Controller.create_topics

    async def slowly(self: Controller, *args: Any, **named: Any) -> Any:
        await asyncio.sleep(1.2)
        return await create_topics(self, *args, **named)

    monkeypatch.setattr(Controller, "create_topics", slowly)
    settings = {**SETTINGS, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 700}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        handshake(wire)
        authenticate(wire, b"\0alice\0wonder")
        topic = string("t") + struct.pack(">ihiii", 1, 1, 0, 0, 10_000)
        wire.socket.sendall(frame(CREATE_TOPICS, 0, struct.pack(">i", 1) + topic) + frame(METADATA, 1, bytes(4)))
        wire.socket.sendall(frame(HANDSHAKE, 1, string("PLAIN")))
        for _ in range(3):
            receive_frame(wire.socket)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert serves(wire)


def test_a_session_ends_though_its_client_keeps_its_requests_held() -> None:
    """Only for as long as an authentication may take."""
    looked_at: list[float] = []

    class Host:
        """A host with a clock of its own, and a connection whose requests are always held."""

        gate_bytes_max, timeout_s, held, now = 1, 30.0, True, 0.0
        waiting: list[Any]

        def time(self) -> float:
            return self.now

        def call_later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
            looked_at.append(self.now)
            self.now += seconds
            self.waiting = [(call, args)]

        def hand_over(self, *_: object) -> None:
            self.held = False

    host: Any = Host()
    host.loop = host
    gate = object.__new__(Gate)
    gate._connection, gate._host = host, host
    gate._end(Session(gate, "PLAIN", host, is_token=False, expires_at_ms=None), 30.0)
    while host.held:
        [(call, args)] = host.waiting
        call(*args)
    assert 29.9 < looked_at[-1] < 30.1


def _is_refused(wire: Wire) -> bool:
    try:
        return not serves(wire)
    except ConnectionError:
        return True


def test_a_listener_without_users_or_with_an_unknown_mechanism_is_refused() -> None:
    for name, value, said in (
        ("sasl.enabled.mechanisms", "NTLM", "headrace has PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI"),
        ("sasl.enabled.mechanisms", "GSSAPI", "set listener.name.sasl_plaintext.gssapi.sasl.jaas.config"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            "",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
    ):
        with pytest.raises(Exception, match=said):
            Broker(settings={**SETTINGS, name: value}).start()


def test_many_connections_that_send_nothing_keep_no_client_out(broker: Broker) -> None:
    idle = [socket.create_connection(("127.0.0.1", broker.port), WITHIN_SECONDS) for _ in range(300)]
    try:
        for number, each in enumerate(idle):
            each.sendall(b"\0\0\0\x10\0\x11"[: number % 7])
        with Wire(broker.bootstrap) as wire:
            handshake(wire)
            assert authenticate(wire, b"\0alice\0wonder").error_code == 0
            assert serves(wire)
    finally:
        for each in idle:
            each.close()


def test_counts_who_has_authenticated_and_who_has_not() -> None:
    (port,) = free_ports(1)
    with Broker(settings={**SETTINGS, "headrace.metrics.listen": f"127.0.0.1:{port}"}) as broker:
        for password in (b"wonder", b"wrong", b"wrong"):
            with Wire(broker.bootstrap) as wire:
                handshake(wire)
                authenticate(wire, b"\0alice\0" + password)
                if password == b"wonder":
                    handshake(wire)
                    authenticate(wire, b"\0alice\0wonder")
        with Wire(broker.bootstrap) as wire:
            handshake(wire, "GSSAPI")
        connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN_SECONDS)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
    name, listener = "kafka_server_socket_server_metrics", 'listener="SASL_PLAINTEXT"'
    assert f'{name}_successful_authentication_total{{{listener},mechanism="PLAIN"}} 1.0' in page
    assert f'{name}_successful_reauthentication_total{{{listener},mechanism="PLAIN"}} 1.0' in page
    assert f'{name}_failed_authentication_total{{{listener},mechanism="PLAIN"}} 2.0' in page
    assert f'{name}_failed_authentication_total{{{listener},mechanism=""}} 1.0' in page


def test_the_longest_name_of_a_stranger_makes_no_long_line(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(settings=SETTINGS) as broker, Wire(broker.bootstrap) as wire:  # its own: lines of a second are counted
        handshake(wire)
        assert authenticate(wire, b"\0" + b"x" * 15_000 + b"\0y").error_code == 58
    [record] = [each for each in caplog.records if "x" * 100 in str(vars(each).get("user"))]
    assert vars(record)["user"] == "x" * LOGGED_NAME_CHARS_MAX + "… (15000 characters)"


def test_no_password_is_in_a_description_or_a_log_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with Wire(broker.bootstrap) as wire, caplog.at_level("DEBUG"):
        handshake(wire)
        authenticate(wire, b"\0alice\0hunter2")
        with Wire(broker.bootstrap) as other:
            handshake(other)
            authenticate(other, b"\0alice\0wonder")
            body = struct.pack(">ibh1sib", 1, 4, 1, b"0", -1, 1)
            described = other.ask(32, 1, body)
    assert b"sasl.enabled.mechanisms" in described
    for text in (described.decode(errors="replace"), caplog.text, *(str(vars(each)) for each in caplog.records)):
        for secret in ("hunter2", "wonder", "builder"):
            assert secret not in text


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_bytes_end_in_an_answer_or_a_closed_connection(broker: Broker, data: st.DataObject) -> None:
    """Frames in any order, some of them cut, grown or of random bytes."""
    token = b"n,,n=alice,r=x"
    whole = [
        frame(API_VERSIONS, 0, b""), frame(HANDSHAKE, 1, string("PLAIN")), frame(HANDSHAKE, 0, string("PLAIN")),
        frame(HANDSHAKE, 1, string("SCRAM-SHA-256")), frame(METADATA, 1, b"\0\0\0\0"),
        frame(AUTHENTICATE, 1, struct.pack(">i", len(token)) + token), frame(AUTHENTICATE, 1, struct.pack(">i", -1)),
        frame(AUTHENTICATE, 1, struct.pack(">i", 1 << 30)), struct.pack(">i", 3) + b"\0a\0",
    ]  # fmt: skip
    sent = b"".join(data.draw(st.lists(st.one_of(st.sampled_from(whole), st.binary(max_size=30)), max_size=5)))
    cut = data.draw(st.integers(0, 8))
    with Wire(broker.bootstrap) as wire:
        wire.socket.settimeout(WITHIN_SECONDS)
        try:
            wire.socket.sendall(sent[: len(sent) - cut] if cut else sent)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
    with Wire(broker.bootstrap) as wire:
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0


def test_a_flood_of_strangers_closes_no_client_that_authenticates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATING_MAX", 20)
    with Broker(settings=SETTINGS) as broker, Wire(broker.bootstrap) as wire, ExitStack() as stack:
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert handshake(wire)[0] == 0
        idle = [stack.enter_context(Wire(broker.bootstrap)) for _ in range(30)]
        for each in idle[:10]:
            assert is_closed(each)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert serves(wire)


def test_a_client_that_does_not_finish_to_authenticate_again_is_closed_in_time() -> None:
    settings = {**SETTINGS, "headrace.authentication.timeout.ms": 500}
    with Broker(settings=settings) as broker, Wire(broker.bootstrap) as wire:
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert handshake(wire)[0] == 0
        assert is_closed(wire)


def test_closes_the_oldest_of_too_many_connections_that_do_not_authenticate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATING_MAX", 20)
    with Broker(settings=SETTINGS) as broker, ExitStack() as stack:
        idle = [stack.enter_context(Wire(broker.bootstrap)) for _ in range(30)]
        with Wire(broker.bootstrap) as wire:
            handshake(wire)
            assert authenticate(wire, b"\0alice\0wonder").error_code == 0
            for each in idle[:10]:
                assert is_closed(each)
            assert handshake(idle[-1])[0] == 0
            assert serves(wire)


def test_a_flood_of_strangers_at_one_listener_closes_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATING_MAX", 20)
    flooded, other = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = {
        **SETTINGS,
        "listeners": f"SASL_PLAINTEXT://{flooded},OTHER://{other}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
        "listener.name.other.plain.sasl.jaas.config": PLAIN_USERS,
    }
    with Broker(settings=settings), ExitStack() as stack:
        guests = [stack.enter_context(Wire(other)) for _ in range(5)]
        assert [handshake(guest)[0] for guest in guests] == [0] * 5
        flood = [stack.enter_context(Wire(flooded)) for _ in range(60)]
        for each in flood[:45]:
            assert is_closed(each)
        for guest in guests:
            assert authenticate(guest, b"\0alice\0wonder").error_code == 0
