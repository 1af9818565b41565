"""Nodes that others have written: whatever is in one, the others count, and one line of the log names it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import znodes
from headrace.metadata.entity_configs import TYPES, USERS, EntityConfigs, sanitize
from headrace.metadata.registry import ensure_cluster
from headrace.metadata.scram_users import ScramUsers
from headrace.metadata.stored_acls import StoredAcls
from headrace.metadata.stored_tokens import CHANGES, TOKENS, StoredTokens, decode_token, encode_token
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import ensure_path
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission
from headrace.security.delegation_tokens import DelegationToken
from headrace.security.sasl import scram
from tests.eventually import eventually_async

DEEP = b'{"version":1,"config":' + b"[" * 100_000
"""What a parser that calls itself cannot read."""
HALF = b'"\\ud800"'
"""Half of a surrogate pair: JSON can say it, UTF-8 cannot."""
HUGE = json.dumps({"version": 1, "config": {"x" * 100: "y" * 900_000}}).encode()

BAD_CONFIGS: Mapping[str, bytes] = {
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe\xff",
    "deep": DEEP,
    "a list": b"[]",
    "a number": b"1e999",
    "configs that are a list": b'{"version":1,"config":[1]}',
    "a value of another type": b'{"version":1,"config":{"producer_byte_rate":1}}',
    "half a character as a value": b'{"version":1,"config":{"a":' + HALF + b"}}",
    "half a character as a name": b'{"version":1,"config":{' + HALF + b':"a"}}',
    "a credential of another form": b'{"version":1,"config":{"SCRAM-SHA-256":"salt=,,="}}',
    "a credential with absurd iterations": (
        b'{"version":1,"config":{"SCRAM-SHA-256":"salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=1e9"}}'
    ),
}
READABLE: Mapping[str, bytes] = {
    "nothing": b"",
    "another version": b'{"version":99,"config":{"a":"b"}}',
    "unknown fields": b'{"version":1,"config":{"a":"b"},"more":{"x":[1]}}',
    "huge": HUGE,
}
BAD_NOTICES = [
    b"", b"{", b"\xff", DEEP, b"[]", b"null",
    b'{"version":2,"entity_path":"users/.."}',
    b'{"version":2,"entity_path":"users/../../kafka-acl"}',
    b'{"version":2,"entity_path":"users/"}',
    b'{"version":2,"entity_path":"users//a"}',
    b'{"version":2,"entity_path":"users/a\\u0000b"}',
    b'{"version":2,"entity_path":"users/\\ud800"}',
    b'{"version":2,"entity_path":7}',
    b'{"version":1,"entity_type":"users","entity_name":".."}',
    b'{"version":2,"entity_path":"../users/a"}',
]  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


async def put(store: EmbeddedStore, path: str, data: bytes) -> None:
    await store.create(path, data)


def credential(password: str) -> str:
    return scram.format_credential(scram.credential("SCRAM-SHA-256", password, b"0123456789", scram.ITERATIONS_MIN))


async def test_configs_that_cannot_be_read_cost_nobody_else_theirs(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    good = znodes.encode_config({"SCRAM-SHA-256": credential("wonder"), "producer_byte_rate": "1024"})
    await put(store, "/config/users/zoe", good)
    for what, data in {**BAD_CONFIGS, **READABLE}.items():
        await put(store, f"/config/users/{sanitize(what)}", data)
    entities = EntityConfigs(store)
    await entities.start()
    users = ScramUsers(entities)
    assert users.credential("SCRAM-SHA-256", "zoe") == scram.parse_credential(credential("wonder"))
    assert entities.get(USERS, "zoe")["producer_byte_rate"] == "1024"
    assert entities.get(USERS, "huge") == {"x" * 100: "y" * 900_000}
    assert entities.get(USERS, sanitize("another version")) == {"a": "b"}, "as Apache Kafka, which does not look"
    lines = [each.getMessage() for each in caplog.records]
    for what in BAD_CONFIGS:
        naming = [line for line in lines if f"/config/users/{sanitize(what)} " in line]
        assert len(naming) == 1, (what, naming)
        assert len(naming[0]) < 1000
    for what in BAD_CONFIGS:
        assert users.credential("SCRAM-SHA-256", what) is None
    assert len(caplog.records) == len(lines), "a login writes no line about the node"
    await entities.close()


@pytest.mark.parametrize("notice", BAD_NOTICES, ids=lambda data: ascii(data)[2:50])
async def test_a_notice_that_cannot_be_read_hides_no_later_change_of_configs(
    store: EmbeddedStore, notice: bytes
) -> None:
    entities = EntityConfigs(store)
    await entities.start()
    await put(store, "/config/users/alice", znodes.encode_config({"a": "1"}))
    await store.create(znodes.CONFIG_CHANGE_PREFIX, notice, sequential=True)
    await eventually_async(lambda: entities.get(USERS, "alice") == {"a": "1"}, "what the notice may have been about")
    other = EntityConfigs(store)
    await other.rewrite(USERS, "alice", lambda own: {**own, "b": "2"})
    await eventually_async(lambda: entities.get(USERS, "alice") == {"a": "1", "b": "2"}, "the next change")
    assert set(entities._configs) == set(TYPES)
    await entities.close()


TOPIC = Pattern(ResourceType.TOPIC, "t")
DENY = Entry("User:eve", "*", Operation.READ, Permission.DENY)
ALLOW = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
BAD_ACL_NOTICES: Mapping[PatternType, Sequence[bytes]] = {
    PatternType.LITERAL: [
        b"", b"TOPIC", b"\xff:t", b"TOPIC:..", b"TOPIC:", b"TOPIC:a/../../x", b"TOPIC:a\0b", b"TOPIC:a//b",
    ],
    PatternType.PREFIXED: [
        b"{", DEEP, b"[]",
        b'{"version":1,"resourceType":"TOPIC","name":"..","patternType":"PREFIXED"}',
        b'{"version":1,"resourceType":"TOPIC","name":"","patternType":"PREFIXED"}',
        b'{"version":1,"resourceType":"TOPIC","name":"\\ud800","patternType":"PREFIXED"}',
        b'{"version":1,"resourceType":"TOPIC","name":7,"patternType":"PREFIXED"}',
        b'{"version":1,"resourceType":{},"name":"a","patternType":"PREFIXED"}',
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "notice"),
    [(kind, each) for kind, some in BAD_ACL_NOTICES.items() for each in some],
    ids=lambda value: ascii(value)[2:40],
)
async def test_a_notice_that_cannot_be_read_hides_no_later_rule(
    store: EmbeddedStore, kind: PatternType, notice: bytes
) -> None:
    """A broker that stopped there would not learn of the rules that deny."""
    first, other = (StoredAcls(store, AclAuthorizer(), lambda: None) for _ in range(2))
    for each in (first, other):
        await each.start()
    root = "/kafka-acl-changes" if kind is PatternType.LITERAL else "/kafka-acl-extended-changes"
    await store.create(f"{root}/acl_changes_", notice, sequential=True)
    pattern = TOPIC._replace(kind=kind)
    assert await other.change({pattern: lambda own: [*own, ALLOW, DENY]}) == {}
    await eventually_async(lambda: set(first.rules.entries(pattern)) == {ALLOW, DENY}, "the rules")
    for each in (first, other):
        await each.close()


BAD_RULES: Sequence[bytes] = [
    b"{", b"\xff", DEEP, b"[]", b'{"version":2,"acls":[]}', b'{"version":1,"acls":{}}', b'{"version":1,"acls":[[]]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","host":"*","operation":"Fly"}]}',
    b'{"version":1,"acls":[{"principal":"nobody","permissionType":"Deny","host":"*","operation":"Read"}]}',
    b'{"version":1,"acls":[{"principal":' + HALF + b',"permissionType":"Deny","host":"*","operation":"Read"}]}',
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","host":7,"operation":"Read"}]}',
]  # fmt: skip


@pytest.mark.parametrize("data", BAD_RULES, ids=lambda data: ascii(data)[2:60])
async def test_rules_that_become_unreadable_cost_no_other_rule(
    store: EmbeddedStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    acls = StoredAcls(store, AclAuthorizer(), lambda: None)
    await acls.start()
    other = Pattern(ResourceType.GROUP, "g")
    assert await acls.change({TOPIC: lambda _: [DENY], other: lambda _: [ALLOW]}) == {}
    await asyncio.sleep(0)
    while tasks := [task for feed in acls._feeds for task in feed._tasks]:
        await asyncio.wait(tasks)
    await store.set("/kafka-acl/Topic/t", data)
    async with acls._lock:
        await acls._reload()
    assert (acls.rules.entries(TOPIC), acls.rules.entries(other)) == ((DENY,), (ALLOW,))
    naming = [each.getMessage() for each in caplog.records if "/kafka-acl/Topic/t " in each.getMessage()]
    assert len(naming) == 1 and len(naming[0]) < 1000
    again = StoredAcls(store, AclAuthorizer(), lambda: None)
    with pytest.raises(CorruptNode, match="^/kafka-acl/Topic/t: "):
        await again.start()
    await acls.close()


TOKEN = DelegationToken("good", "User:a", "User:b", ("User:c",), 1, 1 << 41, 1 << 41)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode_token(TOKEN)), **fields}).encode()


BAD_TOKENS: Mapping[str, bytes] = {
    "a": b"{",
    "b": DEEP,
    "c": b"\xff",
    "d": changed(tokenId="d", expiryTimestamp=1 << 64),
    "e": changed(tokenId="e", expiryTimestamp=-5),
    "f": changed(tokenId="f", issueTimestamp="x"),
    "g": changed(tokenId="g", owner="nobody"),
    "h": changed(tokenId="h", owner="\ud800"),
    "i": changed(tokenId="i", renewers="User:a"),
    "j": changed(tokenId="j", renewers=[1]),
    "k": changed(tokenId="good"),
    "l": changed(tokenId=7),
}


async def test_tokens_that_cannot_be_read_cost_no_other_token(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = StoredTokens(store)
    await tokens.start()
    await tokens.create(TOKEN)
    for token_id, data in BAD_TOKENS.items():
        await put(store, f"{TOKENS}/{token_id}", data)
    again = StoredTokens(store)
    await again.start()
    assert again.all() == [TOKEN]
    for token_id in BAD_TOKENS:
        naming = [each for each in caplog.records if f"{TOKENS}/{token_id} " in each.getMessage()]
        assert len(naming) == 1
        with pytest.raises(KafkaError):
            await again.change(token_id, _of_another)
    await again.remove_expired(0)
    for each in (tokens, again):
        await each.close()


def _of_another(_: DelegationToken) -> DelegationToken:
    raise KafkaError("it is another token", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


@pytest.mark.parametrize("notice", [b"", b"..", b"\xff", b"a/../../x", b"a\0b", b"no-such-token", b"x" * 100_000])
async def test_a_notice_that_cannot_be_read_hides_no_later_token(store: EmbeddedStore, notice: bytes) -> None:
    tokens, other = StoredTokens(store), StoredTokens(store)
    for each in (tokens, other):
        await each.start()
    await store.create(f"{CHANGES}/token_change_", notice, sequential=True)
    await asyncio.sleep(0)
    await other.create(TOKEN)
    await eventually_async(lambda: tokens.get("good") == TOKEN, "the token")
    await other.change("good", lambda token: None)
    await eventually_async(lambda: tokens.get("good") is None, "its end")
    for each in (tokens, other):
        await each.close()


@pytest.mark.parametrize("read", [znodes.decode_config, znodes.decode_config_change, decode_token, znodes.load_object])
def test_a_text_of_any_depth_is_a_corrupt_node(read: Callable[[bytes], object]) -> None:
    with pytest.raises(CorruptNode):
        read(DEEP)


BESIDE = [
    "zzz",
    "aaa",
    "config_change_",
    "config_change_x",
    "token_change_zz",
    "acl_changes_z",
    "\u0661",
    "z0000000009",
]


@pytest.mark.parametrize("is_there_before", [True, False])
@pytest.mark.parametrize("name", BESIDE, ids=ascii)
async def test_a_node_beside_the_notices_hides_no_later_change(
    store: EmbeddedStore, name: str, is_there_before: bool
) -> None:
    directories = (znodes.CONFIG_CHANGES, CHANGES, "/kafka-acl-changes")
    for path in directories:
        await ensure_path(store, f"{path}/{name}" if is_there_before else path)
    entities, tokens, acls = EntityConfigs(store), StoredTokens(store), StoredAcls(store, AclAuthorizer(), lambda: None)
    for each in (entities, tokens, acls):
        await each.start()
    for path in directories:
        await ensure_path(store, f"{path}/{name}")
    others = EntityConfigs(store), StoredTokens(store), StoredAcls(store, AclAuthorizer(), lambda: None)
    for _ in range(2):
        await others[0].rewrite(USERS, "alice", lambda own: {**own, f"n{len(own)}": "1"})
        await others[2].change({TOPIC: lambda own: [*own, DENY._replace(host=f"h{len(list(own))}")]})
    await others[1].create(TOKEN)
    await eventually_async(lambda: len(entities.get(USERS, "alice")) == 2, "the configs")
    await eventually_async(lambda: len(acls.rules.entries(TOPIC)) == 2, "the rules")
    await eventually_async(lambda: tokens.get("good") == TOKEN, "the token")
    for each in (entities, tokens, acls):
        await each.close()
