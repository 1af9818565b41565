"""GSSAPI's messages behind the context, with a context that needs no realm: the order, the layers, the names.

The library and real tickets are in `tests/broker/test_kerberos.py`, where MIT Kerberos is installed.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.kerberos_names import NoName
from headrace.security.sasl.exchange import Authenticated, Blocking, Challenge, ExchangeRefused, Malformed
from headrace.security.sasl.gssapi import GssapiClient, GssapiServer

LAYER = b"\1\0\0\0"


class Context:
    """One side of a context of two tokens. Wrapping puts a mark before the message."""

    client = "alice@EXAMPLE.COM"

    def __init__(self, *, is_server: bool) -> None:
        self._expected: list[bytes | None] = [b"ap-req"] if is_server else [None, b"ap-rep"]
        self._answers = [b"ap-rep"] if is_server else [b"ap-req", b""]

    @property
    def is_complete(self) -> bool:
        return not self._expected

    def step(self, token: bytes | None) -> bytes:
        if token != self._expected.pop(0):
            raise Malformed("no token")
        return self._answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"W" + message

    def unwrap(self, wrapped: bytes) -> bytes:
        if wrapped[:1] != b"W":
            raise Malformed("not wrapped")
        return wrapped[1:]


def server(name_of: Callable[[str], str] = lambda principal: principal.partition("@")[0]) -> GssapiServer:
    return GssapiServer(Context(is_server=True), name_of)


def client() -> GssapiClient:
    return GssapiClient(Context(is_server=False))


def step(side: GssapiServer, message: bytes) -> Challenge | Authenticated:
    found = side.respond(message)
    assert isinstance(found, Blocking)
    return found.work()


def test_both_sides_agree_in_three_messages() -> None:
    us, them = client(), server()
    challenge = step(them, us.respond(None))
    assert challenge == Challenge(b"ap-rep")
    assert us.respond(challenge.data) == b""
    offer = step(them, b"")
    assert offer == Challenge(b"W" + LAYER)
    choice = us.respond(offer.data)
    assert (choice, us.is_complete) == (b"W" + LAYER, False)
    assert step(them, choice) == Authenticated(None, "alice")
    assert us.respond(b"") == b""
    assert us.is_complete


def test_nothing_runs_before_the_caller_runs_it() -> None:
    them = server()
    for _ in range(3):
        them.respond(b"ap-req")  # not run: the context is as it was
    assert step(them, b"ap-req") == Challenge(b"ap-rep")


def test_a_client_that_waits_for_the_server_is_told_to_begin() -> None:
    them = server()
    assert step(them, b"") == Challenge(b"")
    assert step(them, b"ap-req") == Challenge(b"ap-rep")


@pytest.mark.parametrize(
    "choice", [b"", LAYER, b"W", b"W\1\0\0", b"W\0\0\0\0", b"W\2\0\0\0", b"W\3\0\0\0", b"W\4\0\xff\xff"]
)
def test_a_server_refuses_a_layer_that_it_did_not_offer(choice: bytes) -> None:
    them = server()
    step(them, b"ap-req")
    step(them, b"")
    with pytest.raises(Malformed):
        step(them, choice)


def test_a_server_expects_nothing_before_its_offer_and_behind_the_end() -> None:
    them = server()
    step(them, b"ap-req")
    with pytest.raises(Malformed, match="an empty one is expected"):
        step(them, b"W" + LAYER)
    them = server()
    step(them, b"ap-req")
    step(them, b"")
    assert step(them, b"W" + LAYER + b"bob") == Authenticated(None, "alice")
    with pytest.raises(Malformed, match="behind the end"):
        step(them, b"W" + LAYER)


def test_a_principal_without_a_name_is_refused_with_the_reason_in_the_log_only() -> None:
    def nobody(principal: str) -> str:
        raise NoName(f"no rule applies to {principal}")

    them = server(nobody)
    step(them, b"ap-req")
    step(them, b"")
    with pytest.raises(Malformed, match="no rule applies to alice@EXAMPLE.COM"):
        step(them, b"W" + LAYER)
    assert them.claimed == "alice@EXAMPLE.COM"


@pytest.mark.parametrize("offer", [b"W\6\0\xff\xff", b"W\0\0\0\0", b"W\1", b"W"])
def test_a_client_refuses_a_server_that_demands_a_layer(offer: bytes) -> None:
    us = client()
    us.respond(None)
    us.respond(b"ap-rep")
    with pytest.raises(ExchangeRefused, match="SASL_SSL"):
        us.respond(offer)


def test_a_client_refuses_a_server_that_skips_its_proof_or_goes_on_behind_the_end() -> None:
    us = client()
    us.respond(None)
    with pytest.raises(ExchangeRefused, match="did not answer with a token"):
        us.respond(b"")
    us = client()
    for message in (None, b"ap-rep", b"W\7\0\0\0"):
        us.respond(message)
    with pytest.raises(ExchangeRefused, match="behind the end"):
        us.respond(b"more")
    assert not us.is_complete


@given(st.lists(st.sampled_from([b"", b"ap-req", b"ap-rep", b"W" + LAYER, b"W", LAYER]) | st.binary(max_size=8)))
def test_only_the_right_messages_in_the_right_order_authenticate(messages: list[bytes]) -> None:
    them = server()
    taken = []
    for each in messages:
        try:
            found = step(them, each)
        except Malformed:
            return
        taken.append(each)
        if isinstance(found, Authenticated):
            meant = [message for number, message in enumerate(taken) if message or number > taken.index(b"ap-req")]
            assert meant[:2] == [b"ap-req", b""]
            assert meant[2][:5] == b"W" + LAYER
            return
