"""Delegation tokens: made, used as passwords, renewed, expired and described; who may, and over which channels."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from headrace.broker.handlers import describe_delegation_token
from headrace.broker.security.delegation_tokens import DelegationTokens
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.user_admin import UserAdmin
from headrace.errors import AuthenticationFailed, ErrorCode
from headrace.metadata.stored_tokens import StoredTokens, decode_token, encode_token
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.embedded import EmbeddedStore
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.security.delegation_tokens import DelegationToken, password_of
from headrace.security.sasl import scram
from headrace.security.sasl.scram import ScramCredential
from headrace.testing import Broker
from tests.broker.conftest import PEER
from tests.eventually import WITHIN_SECONDS, eventually
from tests.peers import kafka

pytestmark = pytest.mark.slow

R = TypeVar("R", bound=Message)

USERS = {"alice": "wonder", "bob": "builder"}
SETTINGS: dict[str, str | int] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=wonder user_bob=builder;"
    ),
    "connection.failed.authentication.delay.ms": 10,
    "delegation.token.secret.key": "the secret of the cluster",
    "delegation.token.expiry.check.interval.ms": 200,
}
DAY_MS = 86_400_000


def by_password(user: str) -> ClientSettings:
    """The settings of a client with the password of a user."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{module} username="{user}" password="{USERS[user]}";'
    return ClientSettings(sasl={"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, api_timeout_ms=20_000)


def by_token(token: m.CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-512") -> ClientSettings:
    """The settings of a client with a token."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    password = password_of(bytes(token.hmac))
    jaas = f'{module} username="{token.token_id}" password="{password}" tokenauth="true";'
    return ClientSettings(sasl={"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}, api_timeout_ms=20_000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


def ask(broker: Broker, settings: ClientSettings, request: Message, answer: type[R]) -> R:
    """The broker's answer, in the newest version."""
    with Cluster(broker.bootstrap, settings) as cluster:
        cluster.refresh([])
        assert cluster._control is not None
        return cluster._control.call(request, answer, cluster.deadline(), type(request).VERSIONS[-1])


def create(broker: Broker, settings: ClientSettings, **fields: object) -> m.CreateDelegationTokenResponse:
    """A new token."""
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return ask(broker, settings, request, m.CreateDelegationTokenResponse)


def describe(broker: Broker, settings: ClientSettings) -> m.DescribeDelegationTokenResponse:
    """The tokens that the client may see."""
    return ask(broker, settings, m.DescribeDelegationTokenRequest(owners=None), m.DescribeDelegationTokenResponse)


def renew(broker: Broker, settings: ClientSettings, hmac: bytes, period_ms: int) -> m.RenewDelegationTokenResponse:
    """Renews a token."""
    request = m.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return ask(broker, settings, request, m.RenewDelegationTokenResponse)


def expire(broker: Broker, settings: ClientSettings, hmac: bytes, period_ms: int) -> m.ExpireDelegationTokenResponse:
    """Expires a token."""
    request = m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return ask(broker, settings, request, m.ExpireDelegationTokenResponse)


def renewer(name: str, kind: str = "User") -> m.CreateDelegationTokenRequest.CreatableRenewers:
    """A renewer."""
    return m.CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)


def test_renewers_have_the_names_that_were_given(broker: Broker) -> None:
    odd = ["a/b", "../../x", "..", "%2F", "a b", "a\0b", "line\nbreak", "\u00e9", "\U0001f600", "", ":", "x" * 10_000]
    token = create(broker, by_password("alice"), renewers=[renewer(each) for each in odd])
    assert token.error_code == 0
    [shown] = [each for each in describe(broker, by_password("alice")).tokens if each.token_id == token.token_id]
    assert [each.principal_name for each in shown.renewers] == odd
    assert expire(broker, by_password("alice"), bytes(token.hmac), -1).error_code == 0


def test_renewers_whose_names_are_too_long_together_are_refused(broker: Broker) -> None:
    """Anybody may make a thousand tokens, which every broker keeps in memory."""
    for renewers in ([renewer("x" * 20_000)], [renewer(f"name-{number}") for number in range(4_000)]):
        assert create(broker, by_password("alice"), renewers=renewers).error_code == ErrorCode.INVALID_REQUEST


def test_a_token_is_a_password_of_its_owner_until_it_is_removed(broker: Broker) -> None:
    token = create(broker, by_password("alice"))
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY_MS
    assert len(token.hmac) == 64
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with Cluster(broker.bootstrap, by_token(token, mechanism)) as cluster:
            cluster.refresh([])
            assert cluster._control is not None
            assert cluster._control._renewal is not None, "the session ends with the token"
    ended = expire(broker, by_password("alice"), bytes(token.hmac), -1)
    assert ended.error_code == 0
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
        describe(broker, by_token(token))
    assert renew(broker, by_password("alice"), bytes(token.hmac), 1).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_login_with_a_token_that_has_just_been_made_does_not_hold_the_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its credential takes milliseconds of PBKDF2, on a thread; here the broker's own derivation comes too late."""
    threads: list[str] = []
    is_over, derive = threading.Event(), scram.credential

    def noted(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        threads.append(threading.current_thread().name)
        if not threads[-1].startswith("authenticate"):
            assert is_over.wait(WITHIN_SECONDS)
        return derive(mechanism, password, salt, iterations)

    monkeypatch.setattr(scram, "credential", noted)
    try:
        token = create(broker, by_password("alice"))
        with Cluster(broker.bootstrap, by_token(token)) as cluster:
            assert cluster.refresh(None).brokers
    finally:
        is_over.set()
    assert any(name.startswith("authenticate") for name in threads)


def test_many_tokens_and_owners_are_described_in_slices(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client may ask, and any may create tokens: the event loop serves others meanwhile."""
    asked: list[object] = []

    async def noted(elements: Iterable[DelegationToken]) -> AsyncIterator[DelegationToken]:
        for each in elements:
            asked.append(each)
            yield each

    monkeypatch.setattr(describe_delegation_token, "in_slices", noted)
    token = create(broker, by_password("alice"))
    owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    owners = [owner(principal_type="User", principal_name=name) for name in ("nobody", "alice")]
    found = ask(
        broker,
        by_password("alice"),
        m.DescribeDelegationTokenRequest(owners=owners),
        m.DescribeDelegationTokenResponse,
    )
    assert token.token_id in [each.token_id for each in found.tokens]
    assert asked


def test_an_owner_has_no_more_tokens_than_the_setting_says() -> None:
    """So no user fills the memory of every broker, nor takes the tokens of others away."""
    with Broker(settings=SETTINGS | {"headrace.delegation.tokens.per.owner.max": 2}) as broker:
        made = [create(broker, by_password("alice")) for _ in range(3)]
        assert [each.error_code for each in made] == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert create(broker, by_password("bob")).error_code == 0
        expire(broker, by_password("alice"), bytes(made[0].hmac), -1)
        assert create(broker, by_password("alice")).error_code == 0


def test_a_token_is_no_password_of_a_user_and_no_user_a_token(broker: Broker) -> None:
    token = create(broker, by_password("alice"))
    settings = by_token(token)
    assert settings.sasl is not None
    without = {**settings.sasl, "sasl.jaas.config": settings.sasl["sasl.jaas.config"].replace('tokenauth="true"', "")}
    with Cluster(broker.bootstrap, by_password("alice")) as cluster:
        UserAdmin(cluster).set_password("carol", "secret")
    as_token = without["sasl.jaas.config"].replace(token.token_id, "carol")
    as_token = as_token.replace(password_of(bytes(token.hmac)), "secret").replace(";", ' tokenauth="true";')
    for jaas in (without["sasl.jaas.config"], as_token):
        sasl = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
        with pytest.raises(AuthenticationFailed):
            describe(broker, ClientSettings(sasl=sasl))


def test_owner_and_renewers_move_its_end_and_nobody_else(broker: Broker) -> None:
    alice, bob = by_password("alice"), by_password("bob")
    token = create(broker, alice, renewers=[renewer("bob")], max_lifetime_ms=1_000_000)
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 1_000_000
    assert token.expiry_timestamp_ms == token.max_timestamp_ms
    sooner = expire(broker, bob, bytes(token.hmac), 60_000)
    assert token.issue_timestamp_ms < sooner.expiry_timestamp_ms < token.expiry_timestamp_ms
    later = renew(broker, bob, bytes(token.hmac), -1)
    assert later.expiry_timestamp_ms == token.max_timestamp_ms
    own = create(broker, alice)
    for refused in (renew(broker, bob, bytes(own.hmac), 1), expire(broker, bob, bytes(own.hmac), -1)):
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert refused.expiry_timestamp_ms == -1
    unknown = expire(broker, alice, b"x" * 64, -1)
    assert unknown.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_is_over_is_refused_and_then_removed(broker: Broker) -> None:
    alice = by_password("alice")
    token = create(broker, alice, max_lifetime_ms=1500)

    def is_gone() -> bool:
        return token.token_id not in [each.token_id for each in describe(broker, alice).tokens]

    eventually(is_gone, "the controller to remove the token")
    with pytest.raises(AuthenticationFailed):
        describe(broker, by_token(token))


def test_no_token_begets_a_token(broker: Broker) -> None:
    token = create(broker, by_password("alice"))
    settings = by_token(token)
    digest = bytes(token.hmac)
    for answer in (
        create(broker, settings), renew(broker, settings, digest, 1), expire(broker, settings, digest, -1),
        describe(broker, settings),
    ):  # fmt: skip
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_owners_and_renewers_must_be_users(broker: Broker) -> None:
    alice = by_password("alice")
    assert create(broker, alice, renewers=[renewer("x", "Group")]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    other = create(broker, alice, owner_principal_type="Group", owner_principal_name="alice")
    assert other.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (other.principal_type, other.principal_name, bytes(other.hmac)) == ("Group", "alice", b"")


def test_a_token_of_another_owner_names_its_requester(broker: Broker) -> None:
    token = create(broker, by_password("alice"), owner_principal_type="User", owner_principal_name="bob")
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")
    [seen] = [each for each in describe(broker, by_password("alice")).tokens if each.token_id == token.token_id]
    assert (seen.principal_name, seen.token_requester_principal_name) == ("bob", "alice")
    assert bytes(seen.hmac) == bytes(token.hmac)


@pytest.mark.parametrize("version", range(4))
def test_old_versions_have_no_requester(broker: Broker, version: int) -> None:
    alice = by_password("alice")
    token = create(broker, alice)
    with Cluster(broker.bootstrap, alice) as cluster:
        cluster.refresh([])
        assert cluster._control is not None
        owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
            principal_type="User", principal_name="alice"
        )
        request = m.DescribeDelegationTokenRequest(owners=[owner])
        answer = cluster._control.call(request, m.DescribeDelegationTokenResponse, cluster.deadline(), version)
        asked = m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        made = cluster._control.call(asked, m.CreateDelegationTokenResponse, cluster.deadline(), version)
    assert made.error_code == 0
    [found] = [each for each in answer.tokens if each.token_id == token.token_id]
    assert found.token_requester_principal_name == ("alice" if version >= 3 else "")


def test_without_a_secret_key_there_are_none() -> None:
    with Broker(settings={**SETTINGS, "delegation.token.secret.key": ""}) as broker:
        for answer in (create(broker, by_password("alice")), describe(broker, by_password("alice"))):
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_clients_that_have_not_authenticated_get_none() -> None:
    with Broker(settings={"delegation.token.secret.key": "x"}) as broker:
        answer = create(broker, ClientSettings())
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data", settings={**SETTINGS, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as broker:
        token = create(broker, by_password("alice"))
        broker.restart()
        assert describe(broker, by_token(token)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("_", [pytest.param("Java", marks=PEER)])
def test_kafkas_tool_manages_tokens(broker: Broker, tmp_path: Path, _: str) -> None:
    config = tmp_path / "alice.properties"
    sasl = by_password("alice").sasl
    assert sasl is not None
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\n" + "".join(f"{name}={value}\n" for name, value in sasl.items())
    )

    def tool(*arguments: str) -> str:
        return kafka.run_tool(
            "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", broker.bootstrap,
            "--command-config", str(config), *arguments, logs=tmp_path,
        )  # fmt: skip

    created = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, digest = created.split("\n")[-2].split()[:2] if created.split("\n")[-2].split() else ("", "")
    assert token_id in tool("--describe", "--owner-principal", "User:alice")
    assert "Completed renew operation" in tool("--renew", "--renew-time-period", "-1", "--hmac", digest)
    assert "Completed expire operation" in tool("--expire", "--expiry-time-period", "-1", "--hmac", digest)
    assert token_id not in tool("--describe", "--owner-principal", "User:alice")


TOKEN = DelegationToken("id-1", "User:a b", "User:c", ("User:d,e",), 1, 2, 3)


def test_a_token_is_stored_as_apache_kafka_3_9_stores_it() -> None:
    assert encode_token(TOKEN) == (
        b'{"version":3,"owner":"User%3Aa%20b","tokenRequester":"User%3Ac","renewers":["User%3Ad%2Ce"],'
        b'"issueTimestamp":1,"maxTimestamp":2,"expiryTimestamp":3,"tokenId":"id-1"}'
    )
    assert decode_token(encode_token(TOKEN)) == TOKEN
    for data in (b"", b"[]", b"{}", encode_token(TOKEN).replace(b"User%3Aa", b"User"), b"\xff"):
        with pytest.raises(CorruptNode):
            decode_token(data)


async def test_a_broker_follows_the_changes_of_another(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    try:
        one, other = StoredTokens(store), StoredTokens(store)
        await one.start()
        await other.start()
        await one.create(TOKEN)
        await _until(lambda: other.get("id-1") == TOKEN)
        await other.change("id-1", lambda token: token._replace(expiry_ms=9))
        await _until(lambda: one.get("id-1") == TOKEN._replace(expiry_ms=9))
        await one.remove_expired(4)
        await _until(lambda: len(other) == 0)
        await one.close()
        await other.close()
    finally:
        await store.close()


@pytest.mark.parametrize(("owner", "is_known"), [("User:admin", True), ("Group:admin", False), ("user:admin", False)])
async def test_a_token_of_another_kind_of_owner_is_no_password_of_the_user_of_that_name(
    tmp_path: Path, owner: str, is_known: bool
) -> None:
    """Apache Kafka stores such tokens."""
    store = await EmbeddedStore.open(tmp_path)
    stored = StoredTokens(store)
    tokens = DelegationTokens(
        stored, b"key", max_lifetime_ms=DAY_MS, expiry_time_ms=DAY_MS, per_owner_max=10, now_ms=lambda: 1,
        random_bytes=bytes, loop=asyncio.get_running_loop(),
    )  # fmt: skip
    try:
        await tokens.start()
        await stored.create(TOKEN._replace(owner=owner, expiry_ms=1 << 40))
        account = tokens.account("SCRAM-SHA-256", TOKEN.id)
        assert (account is not None and account.name == "admin") is is_known
    finally:
        await tokens.close()
        await store.close()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - the store wakes nobody
            await asyncio.sleep(0.01)
