"""Odd names of users, clients, addresses, resources, principals and renewers: in requests, and in nodes of others.

Each becomes the node that Apache Kafka 3.9 has for it, or is refused. None leaves its directory in the store.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.metadata.entity_configs import sanitize
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore, ensure_path
from headrace.protocol import messages as m
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission
from headrace.security.sasl import scram
from headrace.testing import Broker
from tests.asker import Asker
from tests.broker.acl_requests import AUTHORIZED, create_request
from tests.broker.quota_requests import alter, describe, rows

ODD = [
    "a/b", "../../brokers/ids/0", "..", ".", "%2e%2e", "%2F", "%", "a b", "a+b", "*", "~", "<default>", "a\0b",
    "line\nbreak", "esc\x1b[2J", "right\u202eto left", "\u00e9", "e\u0301", "\U0001f600", "{}", '"', "a=b,c=d",
    "User:x", "x" * 30_000, "\u00e9" * 10_000, "",
]  # fmt: skip
"""The longest that an int16 and UTF-8 can say, and a lot of what paths, JSON and terminals take for something else."""
LONG = "y" * (64 << 10)
"""Longer than an int16 says: of flexible versions."""
NO_NODE = {"..", ".", ""}
"""Of which ZooKeeper allows no node, also encoded by Apache Kafka."""
NO_RULE = {each for each in ODD if "/" in each or "\0" in each} | NO_NODE
"""Names about which there are no rules, as these are not encoded."""

ROOTS = (
    "/config/users/",
    "/config/clients/",
    "/config/ips/",
    "/kafka-acl/Group/",
    "/kafka-acl-extended/prefixed/Group/",
)
CHANGES = ("/config/changes/", "/kafka-acl-changes/", "/kafka-acl-extended-changes/")
SETTINGS: Mapping[str, str | int] = {**AUTHORIZED, "listeners": "PLAINTEXT://127.0.0.1:0"}
ids = [f"{number}-{ascii(each)[1:15]}" for number, each in enumerate([*ODD, LONG])]


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Everybody is a super user. At the end nothing is left of what the tests made and removed, wherever it was."""
    data = tmp_path_factory.mktemp("odd") / "data"
    with Broker(data=data, settings=SETTINGS) as broker, Asker(broker.bootstrap) as asker:
        yield asker
    made = [each for each in asyncio.run(_nodes(data)) if not each.startswith(CHANGES)]
    assert [each for each in made if each.count("/") > 2 and each.startswith(ROOTS)] == []
    assert all(part.isascii() and part.isprintable() and len(part) < 100 for each in made for part in each.split("/"))
    assert [each.name for each in data.parent.iterdir()] == ["data"]


async def _nodes(data: Path) -> list[str]:
    store = await EmbeddedStore.open(data)
    try:
        return await _below(store, "")
    finally:
        await store.close()


async def _below(store: MetadataStore, path: str) -> list[str]:
    found = [f"{path}/{each}" for each in await store.children(path or "/")]
    return [*found, *[deeper for each in found for deeper in await _below(store, each)]]


@pytest.mark.parametrize("name", [*ODD, LONG], ids=ids)
def test_a_user_has_the_name_that_was_given(asker: Asker, name: str) -> None:
    change = m.AlterUserScramCredentialsRequest
    one = change.ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"0123456789", salted_password=bytes(32)
    )
    [result] = asker.ask(change(deletions=[], upsertions=[one]), 0).results
    if name in NO_NODE:
        expected = ErrorCode.INVALID_REQUEST if name else ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert (result.user, result.error_code) == (name, expected)
        return
    assert (result.user, result.error_code) == (name, 0)
    everybody = asker.ask(m.DescribeUserScramCredentialsRequest(users=None), 0)
    assert [each.user for each in everybody.results] == [name]
    gone = change.ScramCredentialDeletion(name=name, mechanism=1)
    [result] = asker.ask(change(deletions=[gone], upsertions=[]), 0).results
    assert result.error_code == 0


@pytest.mark.parametrize("kind", ["user", "client-id", "ip"])
@pytest.mark.parametrize("name", [*ODD, LONG], ids=ids)
def test_a_quota_is_of_the_name_that_was_given(asker: Asker, kind: str, name: str) -> None:
    key = "connection_creation_rate" if kind == "ip" else "producer_byte_rate"
    [entry] = asker.ask(alter({kind: name}, **{key: 1024.0}), 1).entries
    if kind == "ip" or name in NO_NODE:
        assert entry.error_code == ErrorCode.INVALID_REQUEST
        assert rows(asker.ask(describe(), 1)) == []
        return
    assert entry.error_code == 0, entry.error_message
    assert rows(asker.ask(describe(), 1)) == [(((kind, name),), {key: 1024.0})]
    [entry] = asker.ask(alter({kind: name}, **{key: None}), 1).entries
    assert entry.error_code == 0
    assert rows(asker.ask(describe(), 1)) == []


@pytest.mark.parametrize("kind", [PatternType.LITERAL, PatternType.PREFIXED])
@pytest.mark.parametrize("name", [*ODD, LONG], ids=ids)
def test_a_rule_is_about_the_name_that_was_given(asker: Asker, kind: PatternType, name: str) -> None:
    principal = f"User:{name}"
    rule = Binding(Pattern(ResourceType.GROUP, name, kind), Entry(principal, "*", Operation.READ, Permission.DENY))
    bystander = Binding(Pattern(ResourceType.GROUP, "g", kind), Entry(principal, "*", Operation.READ, Permission.DENY))
    results = asker.ask(create_request(rule, bystander), 3).results
    is_allowed = name not in NO_RULE
    assert [each.error_code for each in results] == [0 if is_allowed else ErrorCode.INVALID_REQUEST, 0]
    wanted: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    names: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    resources = asker.ask(m.DescribeAclsRequest(**wanted, **names), 3).resources
    assert {each.resource_name for each in resources} == ({name, "g"} if is_allowed else {"g"})
    assert {acl.principal for each in resources for acl in each.acls} == {principal}
    filters = [m.DeleteAclsRequest.DeleteAclsFilter(**wanted, **names)]
    [deleted] = asker.ask(m.DeleteAclsRequest(filters=filters), 3).filter_results
    assert (deleted.error_code, len(deleted.matching_acls)) == (0, len(resources))


def _good(password: str) -> str:
    return scram.format_credential(scram.credential("SCRAM-SHA-256", password, b"0123456789", scram.ITERATIONS_MIN))


NAMES_OF_NODES: Sequence[str] = [
    "%", "%2", "%zz", "%ff", "a%2fb", "A%2FB", "%2e%2e", "%00", "+", "a b", "\u00e9", "\U0001f600", "x" * 60_000,
]  # fmt: skip
"""That nothing of ours would give a node: read as they are, and never written to another place."""


def test_a_broker_starts_beside_whatever_others_have_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    data.mkdir()
    good = json.dumps({"version": 1, "config": {"SCRAM-SHA-256": _good("wonder"), "producer_byte_rate": "1024"}})
    bad: dict[str, bytes] = {
        "/config/users/broken": b"{",
        "/config/users/deep": b"[" * 100_000,
        "/config/users/typed": b'{"version":1,"config":{"producer_byte_rate":7}}',
        "/config/clients/half": b'{"version":1,"config":{"a":"\\ud800"}}',
        "/config/ips/not-json": b"\xff",
        "/delegation_token/tokens/broken": b"[]",
    }
    odd: dict[str, bytes] = {
        "/config/ips/127.0.0.9": b'{"version":1,"config":{"connection_creation_rate":"%d"}}' % 10**400,
        "/config/ips/no%20host": b'{"version":1,"config":{"connection_creation_rate":"x"}}',
        "/config/users/nan": b'{"version":1,"config":{"producer_byte_rate":"NaN","consumer_byte_rate":"1e999"}}',
        "/config/clients/odd": b'{"version":7,"config":{"unknown":"x"},"more":[{}]}',
        "/kafka-acl/Planet": b"",
        "/kafka-acl/Planet/earth": b"{",
        "/config/planets": b"",
        "/config/planets/mars": b"{",
        "/config/users/alice/clients/%": b'{"version":1,"config":{"producer_byte_rate":"1"}}',
        "/config/users/alice/moons": b"{",
    }

    async def write() -> None:
        store = await EmbeddedStore.open(data)
        await ensure_path(store, "/config/users")
        await store.create("/config/users/alice", good.encode())
        for name in NAMES_OF_NODES:
            await store.create(f"/config/users/{name}", b'{"version":1,"config":{"producer_byte_rate":"7"}}')
        for path, content in {**bad, **odd}.items():
            await ensure_path(store, path)
            await store.set(path, content)
        await store.close()

    asyncio.run(write())
    settings = {**SETTINGS, "delegation.token.secret.key": "secret"}
    with caplog.at_level("WARNING"), Broker(data=data, settings=settings) as broker, Asker(broker.bootstrap) as asker:
        [found] = asker.ask(m.DescribeUserScramCredentialsRequest(users=None), 0).results
        assert found.user == "alice"
        quotas = dict(rows(asker.ask(describe(("user", 0, "alice"), strict=True), 1)))
        assert quotas == {(("user", "alice"),): {"producer_byte_rate": 1024.0}}
        assert asker.ask(m.MetadataRequest(topics=[]), 9).brokers
        change = m.AlterUserScramCredentialsRequest
        for name in ("a/b", "%"):
            gone = change.ScramCredentialDeletion(name=name, mechanism=1)
            [result] = asker.ask(change(deletions=[gone], upsertions=[]), 0).results
            assert result.error_code == ErrorCode.RESOURCE_NOT_FOUND
    lines = [each.getMessage() for each in caplog.records]
    for path in bad:
        assert len([line for line in lines if f"{path} " in line]) == 1, path
    assert not [each for each in caplog.records if each.exc_info], "nothing has failed"


@pytest.mark.parametrize("name", [each for each in ODD if each not in NO_NODE], ids=lambda name: ascii(name)[1:15])
def test_a_node_of_a_user_is_one_part_of_a_path(name: str) -> None:
    node = sanitize(name)
    assert "/" not in node and node.isascii() and node.isprintable() and node not in (".", "..", "<default>")
