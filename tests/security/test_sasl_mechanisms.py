"""PLAIN, SCRAM and OAUTHBEARER: both sides against each other, against the RFCs' examples, and against bad input."""

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sasl import scram
from headrace.security.sasl.exchange import (
    Authenticated,
    Blocking,
    Challenge,
    ClientExchange,
    ExchangeRefused,
    Malformed,
    ServerExchange,
    Step,
    Unverified,
)
from headrace.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, VerifiedToken
from headrace.security.sasl.plain import PlainClient, PlainServer
from headrace.security.sasl.scram import ScramCredential
from headrace.security.sasl.scram_client import ScramClient
from headrace.security.sasl.scram_server import Account, ScramServer, decoys

MECHANISMS = tuple(scram.HASHES)
DECOY = decoys(b"secret", lambda _: {4096: 7})
CREDENTIALS = {mechanism: scram.credential(mechanism, "pencil", b"c2FsdA", 4096) for mechanism in MECHANISMS}


def scram_server(mechanism: str = "SCRAM-SHA-256", nonce: str = "server") -> ScramServer:
    """A server that knows the user `alice` and the token `token-1` of `bob`, both with the password pencil."""

    def lookup(name: str, is_token: bool) -> Account | None:
        if is_token:
            return Account(CREDENTIALS[mechanism], "bob", 7) if name == "token-1" else None
        return Account(CREDENTIALS[mechanism], name) if name == "alice" else None

    return ScramServer(mechanism, lookup, lambda name: DECOY(mechanism, name), nonce)


def answer(server: ServerExchange, message: bytes) -> bytes:
    """What the server sends in response."""
    step = server.respond(message)
    if isinstance(step, Blocking):
        step = step.work()
    assert isinstance(step, Challenge | Authenticated)
    return step.data or b""


def run(client: ClientExchange, server: ServerExchange) -> Step:
    """The last step of the server, which the client has accepted."""
    message = client.respond(None)
    while True:
        step = server.respond(message)
        if isinstance(step, Unverified):
            return step
        if isinstance(step, Blocking):
            step = step.work()
        message = client.respond(step.data)
        if isinstance(step, Authenticated):
            assert client.is_complete
            return step


class TestPlain:
    def test_accepts_the_right_password_and_nothing_else(self) -> None:
        users = {"alice": "wonder", "ä": "ö"}.get
        assert run(PlainClient("alice", "wonder"), PlainServer(users)) == Authenticated(b"", "alice")
        assert run(PlainClient("ä", "ö"), PlainServer(users)) == Authenticated(b"", "ä")
        for name, password in (("alice", "wonde"), ("alice", "wonderr"), ("bob", "wonder"), ("Alice", "wonder")):
            with pytest.raises(ExchangeRefused, match="Invalid username or password"):
                run(PlainClient(name, password), PlainServer(users))

    def test_accepts_a_stored_password_beside_a_configured_one(self) -> None:
        def server() -> PlainServer:
            return PlainServer({"alice": "wonder"}.get, lambda name, password: (name, password) == ("bob", "builder"))

        assert run(PlainClient("alice", "wonder"), server()) == Authenticated(b"", "alice")
        assert run(PlainClient("bob", "builder"), server()) == Authenticated(b"", "bob")
        for name, password in (("bob", "wonder"), ("alice", "builder"), ("carol", "builder")):
            with pytest.raises(ExchangeRefused, match="Invalid username or password"):
                run(PlainClient(name, password), server())
        step = server().respond(b"alice\0bob\0builder")
        assert isinstance(step, Blocking)
        with pytest.raises(ExchangeRefused, match="different from username"):
            step.work()

    def test_refuses_a_user_whose_password_is_empty(self) -> None:
        with pytest.raises(ExchangeRefused, match="Invalid username or password"):
            PlainServer({"alice": ""}.get).respond(b"\0alice\0x")

    def test_accepts_the_own_name_as_authorization_id_but_no_other(self) -> None:
        users = {"alice": "wonder"}.get
        assert PlainServer(users).respond(b"alice\0alice\0wonder") == Authenticated(b"", "alice")
        with pytest.raises(ExchangeRefused, match="different from username"):
            PlainServer(users).respond(b"bob\0alice\0wonder")

    @pytest.mark.parametrize("message", [b"", b"alice", b"\0alice", b"\0\0x", b"\0alice\0", b"\0a\0b\0c", b"\0\xff\0x"])
    def test_tells_a_malformed_message_from_a_wrong_password(self, message: bytes) -> None:
        with pytest.raises((ExchangeRefused, Malformed)) as raised:
            PlainServer({"alice": "wonder"}.get).respond(message)
        assert "Invalid username or password" not in str(raised.value)


class TestScram:
    def test_is_the_exchange_of_rfc_7677(self) -> None:
        first = scram.read_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
        assert (first.header, first.bare) == ("n,,", "n=user,r=rOprNGfwEbeRWgbNEkqO")
        salt = scram.read_server_first(
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        ).salt
        stored = scram.credential("SCRAM-SHA-256", "pencil", salt, 4096)
        server = ScramServer(
            "SCRAM-SHA-256",
            lambda name, _: Account(stored, name) if name == "user" else None,
            lambda name: DECOY("SCRAM-SHA-256", name),
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
        message = client.respond(None)
        assert message == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        challenge = answer(server, message)
        assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        message = client.respond(challenge)
        assert message == (
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        step = server.respond(message)
        assert step == Authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")
        client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        assert client.is_complete

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_accepts_the_right_password_and_nothing_else(self, mechanism: str) -> None:
        client = ScramClient(mechanism, "alice", "pencil", "client")
        step = run(client, scram_server(mechanism))
        assert isinstance(step, Authenticated)
        assert (step.name, step.is_token) == ("alice", False)
        for name, password in (("alice", "pencils"), ("bob", "pencil")):
            with pytest.raises(Malformed, match="^Invalid client credentials$"):
                run(ScramClient(mechanism, name, password, "client"), scram_server(mechanism))

    def test_authenticates_the_owner_of_a_delegation_token(self) -> None:
        client = ScramClient("SCRAM-SHA-512", "token-1", "pencil", "client", is_token=True)
        step = run(client, scram_server("SCRAM-SHA-512"))
        assert isinstance(step, Authenticated)
        assert step[1:] == ("bob", True, 7)
        with pytest.raises(Malformed, match="^Invalid client credentials$"):
            run(ScramClient("SCRAM-SHA-512", "alice", "pencil", "client", is_token=True), scram_server("SCRAM-SHA-512"))

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_answers_an_unknown_user_as_a_known_one(self, mechanism: str) -> None:
        answers = []
        for name in ("alice", "nobody", "nobody", "none"):
            step = scram_server(mechanism).respond(f"n,,n={name},r=client".encode())
            assert isinstance(step, Challenge)
            answers.append(scram.read_server_first(step.data))
        assert [each[0::2] for each in answers] == [("clientserver", 4096)] * 4
        assert answers[1] == answers[2] != answers[3], "the salt is of the name"
        for each in (answers[1], answers[3]):
            assert each.salt.isalnum()
            assert 20 <= len(each.salt) <= 26

    def test_makes_salts_as_kafkas_tools(self) -> None:
        salt = scram.new_salt(b"\xff" * scram.SALT_BYTES)
        assert int(salt, 36) == (1 << 130) - 1

    def test_refuses_a_nonce_that_is_not_its_own(self) -> None:
        server, client = scram_server(), ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        message = client.respond(answer(server, client.respond(None)))
        for other in (b"r=clientserve,", b"r=server,", b"r=clientserverr,", b"r=xlientserver,"):
            with pytest.raises(Malformed, match="nonce"):
                replayed = scram_server()
                replayed.respond(client.respond(None))
                replayed.respond(message.replace(b"r=clientserver,", other))

    def test_accepts_the_nonce_of_old_librdkafka_which_repeats_its_own_part(self) -> None:
        server = scram_server()
        first = answer(server, b"n,,n=alice,r=client").decode()
        parts = scram.read_server_first(first.encode())
        salted = scram.salted_password("SCRAM-SHA-256", "pencil", parts.salt, parts.iterations)
        keys = scram.keys_of("SCRAM-SHA-256", salted)
        stored = scram.digest("SCRAM-SHA-256", keys.client_key)
        final = "c=biws,r=clientclientserver"
        signed = scram.signature("SCRAM-SHA-256", stored, f"n=alice,r=client,{first},{final}")
        proof = b64encode(scram.xor(keys.client_key, signed)).decode()
        step = server.respond(f"{final},p={proof}".encode())
        assert isinstance(step, Authenticated) and step.name == "alice"

    def test_refuses_a_replayed_proof(self) -> None:
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        message = client.respond(answer(scram_server(nonce="one"), client.respond(None)))
        other = scram_server(nonce="two")
        other.respond(b"n,,n=alice,r=client")
        with pytest.raises(Malformed):
            other.respond(message)
        with pytest.raises(Malformed):
            other.respond(message.replace(b"one", b"two"))

    def test_refuses_a_changed_channel_binding(self) -> None:
        server, client = scram_server(), ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        message = client.respond(answer(server, client.respond(None)))
        with pytest.raises(Malformed, match="channel binding"):
            server.respond(message.replace(b"c=biws", b"c=eSws"))

    @pytest.mark.parametrize("header", ["y,,", "p=tls-unique,,", "n", "", "n,a=,", "n,,m=x,"])
    def test_refuses_other_headers(self, header: str) -> None:
        with pytest.raises(Malformed):
            scram_server().respond(f"{header}n=alice,r=client".encode())

    def test_refuses_the_authorization_id_of_another_user(self) -> None:
        assert isinstance(scram_server().respond(b"n,a=alice,n=alice,r=client"), Challenge)
        for name in ("alice", "nobody"):
            with pytest.raises(ExchangeRefused, match="different from username"):
                scram_server().respond(f"n,a=bob,n={name},r=client".encode())

    def test_refuses_messages_of_many_bytes(self) -> None:
        with pytest.raises(Malformed, match="bytes"):
            scram_server().respond(b"n,,n=alice,r=" + b"x" * scram.MESSAGE_BYTES_MAX)

    def test_a_stored_credential_with_few_iterations_counts_as_none(self) -> None:
        weak = scram.credential("SCRAM-SHA-256", "pencil", b"salt", 4095)
        server = ScramServer(
            "SCRAM-SHA-256", lambda name, _: Account(weak, name), lambda name: DECOY("SCRAM-SHA-256", name), "server"
        )
        assert b"i=4096" in answer(server, b"n,,n=alice,r=client")

    def test_a_credential_that_is_yet_to_be_derived_is_not_derived_by_the_caller(self) -> None:
        derived: list[ScramCredential] = []

        def derive() -> ScramCredential:
            derived.append(scram.credential("SCRAM-SHA-256", "pencil", b"c2FsdA", 4096))
            return derived[0]

        server = ScramServer(
            "SCRAM-SHA-256", lambda name, _: Account(derive, name), lambda name: DECOY("SCRAM-SHA-256", name), "server"
        )
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        step = server.respond(client.respond(None))
        assert isinstance(step, Blocking)
        assert not derived
        done = server.respond(client.respond(step.work().data))
        assert isinstance(done, Authenticated)
        assert (done.name, len(derived)) == ("alice", 1)

    @pytest.mark.parametrize("iterations", [1, 4095, 16_385, 999_999_999])
    def test_a_client_refuses_absurd_iterations(self, iterations: int) -> None:
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        client.respond(None)
        with pytest.raises(ExchangeRefused, match="iterations"):
            client.respond(f"r=clientserver,s=c2FsdA==,i={iterations}".encode())

    @pytest.mark.parametrize("nonce", ["client", "other", "clien"])
    def test_a_client_refuses_a_nonce_that_does_not_continue_its_own(self, nonce: str) -> None:
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        client.respond(None)
        with pytest.raises(ExchangeRefused, match="nonce"):
            client.respond(f"r={nonce},s=c2FsdA==,i=4096".encode())

    def test_a_client_refuses_a_server_that_does_not_know_the_password(self) -> None:
        client = ScramClient("SCRAM-SHA-256", "alice", "pencil", "client")
        client.respond(None)
        client.respond(b"r=clientserver,s=c2FsdA==,i=4096")
        for final in (b"v=AAAA", b"v=", b"e=other-error", b"", b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="):
            with pytest.raises(ExchangeRefused):
                client.respond(final)
        assert not client.is_complete

    def test_a_client_derives_its_keys_once(self) -> None:
        keys: dict[tuple[bytes, int], scram.ScramKeys] = {}
        for _ in range(2):
            run(ScramClient("SCRAM-SHA-256", "alice", "pencil", "client", keys=keys), scram_server())
        assert len(keys) == 1

    @given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
    def test_any_name_survives_the_message(self, name: str) -> None:
        first = scram.write_client_first(name, "client")
        assert scram.read_client_first((first.header + first.bare).encode()) == first

    @pytest.mark.parametrize("iterations", ["0", "-1", "1000001", "9" * 5000, "x", "1e4", ""])
    def test_a_credential_with_absurd_iterations_is_none(self, iterations: str) -> None:
        text = scram.format_credential(CREDENTIALS["SCRAM-SHA-256"])
        with pytest.raises(ValueError, match="iterations"):
            scram.parse_credential(text.replace("iterations=4096", f"iterations={iterations}"))

    def test_a_credential_survives_its_text_which_no_error_and_no_repr_shows(self) -> None:
        stored = CREDENTIALS["SCRAM-SHA-256"]
        text = scram.format_credential(stored)
        assert text.startswith("salt=YzJGc2RB,stored_key=")
        assert scram.parse_credential(text) == stored
        assert repr(stored) == "ScramCredential(iterations=4096)"
        for wrong in ("", text[5:], text.replace("4096", "many"), text.replace("stored_key=", "stored_key=!")):
            with pytest.raises(ValueError) as raised:
                scram.parse_credential(wrong)
            assert "=" not in str(raised.value)


class TestOAuthBearer:
    def test_asks_for_the_verification_of_the_token(self) -> None:
        client, server = OAuthBearerClient("abc.def-._~+/==", {"tenant": "a b"}), OAuthBearerServer()
        step = run(client, server)
        assert step == Unverified("abc.def-._~+/==")
        done = server.verified(VerifiedToken("alice", 12))
        assert done == Authenticated(b"", "alice", expires_at_ms=12)
        client.respond(done.data)
        assert client.is_complete

    def test_says_that_a_token_is_invalid_and_not_why(self) -> None:
        client, server = OAuthBearerClient("abc"), OAuthBearerServer()
        run(client, server)
        step = server.refused("expired")
        assert step.data == b'{"status":"invalid_token"}'
        confirmation = client.respond(step.data)
        assert confirmation == b"\x01"
        with pytest.raises(ExchangeRefused, match='{"status":"invalid_token"}'):
            server.respond(confirmation)

    def test_a_refused_client_cannot_try_another_token(self) -> None:
        server = OAuthBearerServer()
        run(OAuthBearerClient("abc"), server)
        server.refused("expired")
        with pytest.raises(Malformed):
            server.respond(OAuthBearerClient("def").respond(None))

    def test_refuses_the_authorization_id_of_another_user(self) -> None:
        for authzid, is_own in ((b"alice", True), (b"bob", False)):
            server = OAuthBearerServer()
            server.respond(b"n,a=" + authzid + b",\x01auth=Bearer abc\x01\x01")
            with suppress(ExchangeRefused):
                assert server.verified(VerifiedToken("alice", 1)).name == "alice"
                assert is_own
                continue
            assert not is_own

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\x01",
            b"n,,\x01\x01",
            b"n,,\x01auth=Bearer\x01\x01",
            b"n,,\x01auth=Basic abc\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"n,,\x01auth=Bearer abc\x01",
            b"y,,\x01auth=Bearer abc\x01\x01",
            b"n,,\x01auth=Bearer \xff\x01\x01",
        ],
    )
    def test_refuses_malformed_messages(self, message: bytes) -> None:
        with pytest.raises(Malformed):
            OAuthBearerServer().respond(message)

    @pytest.mark.parametrize(
        ("token", "extensions"), [("a b", {}), ("", {}), ("a", {"auth": "x"}), ("a", {"x": "\x01"})]
    )
    def test_a_client_refuses_what_it_cannot_send(self, token: str, extensions: dict[str, str]) -> None:
        with pytest.raises(ValueError, match="characters"):
            OAuthBearerClient(token, extensions)


SERVERS: list[Callable[[], ServerExchange]] = [
    lambda: PlainServer({"alice": "wonder"}.get),
    scram_server,
    lambda: scram_server("SCRAM-SHA-512"),
    OAuthBearerServer,
]


@pytest.mark.parametrize("make", SERVERS)
@given(messages=st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([
    b"n,,n=alice,r=client", b"c=biws,r=clientserver,p=AAAA", b"\0alice\0w", b"\x01", b"n,,\x01auth=Bearer a\x01\x01",
])), max_size=4))  # fmt: skip
def test_bad_messages_end_in_one_of_two_failures(make: Callable[[], ServerExchange], messages: list[bytes]) -> None:
    server = make()
    for message in messages:
        try:
            assert not isinstance(server.respond(message), Authenticated)
        except (ExchangeRefused, Malformed):
            return


def test_as_many_unknown_names_have_other_iterations_as_users_have_them() -> None:
    """If all had the most usual ones, others would tell that a user exists."""
    names = [f"user-{number}" for number in range(1000)]

    def drawn(users: dict[int, int]) -> list[int]:
        made = decoys(b"secret", lambda _: users)
        return [made("SCRAM-SHA-256", name).iterations for name in names]

    found = drawn({4096: 30, 8192: 10})
    assert found == drawn({8192: 10, 4096: 30})
    assert set(found) == {4096, 8192} and 200 < found.count(8192) < 300
    changed = [before for before, after in zip(found, drawn({4096: 31, 8192: 10}), strict=True) if before != after]
    assert set(changed) <= {8192} and len(changed) < 30, "a further user changes what is said of many names"
    assert set(drawn({})) == {4096} and set(drawn({10_000: 1})) == {10_000}
