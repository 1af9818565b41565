"""Rules are stored where Apache Kafka 3.9 stores them, and reach every broker that follows them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode
from headrace.metadata import acl_nodes, change_feed
from headrace.metadata.acl_nodes import decode_change, decode_entries, encode_change, encode_entries, path_of
from headrace.metadata.stored_acls import Decide, StoredAcls
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import NoNode
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission

TOPIC = Pattern(ResourceType.TOPIC, "t")
PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = Entry("User:bob", "10.0.0.7", Operation.IDEMPOTENT_WRITE, Permission.DENY)
STORED_READ = (
    b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await EmbeddedStore.open(tmp_path)
    yield opened
    await opened.close()


class Following(StoredAcls):
    """The rules as one broker knows them."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.changes = 0
        super().__init__(store, AclAuthorizer(), self._count)

    def _count(self) -> None:
        self.changes += 1

    async def settle(self) -> None:
        await asyncio.sleep(0)
        while tasks := [task for feed in self._feeds for task in feed._tasks]:
            await asyncio.wait(tasks)


@pytest.fixture
async def acls(store: EmbeddedStore) -> AsyncIterator[Following]:
    started = Following(store)
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def other(store: EmbeddedStore) -> AsyncIterator[Following]:
    started = Following(store)
    await started.start()
    yield started
    await started.close()


def add(*entries: Entry) -> Decide:
    return lambda before: [*before, *entries]


def remove(*entries: Entry) -> Decide:
    return lambda before: [each for each in before if each not in entries]


async def test_a_rule_is_stored_told_and_deleted_as_apache_kafka_does_it(
    store: EmbeddedStore, acls: Following, other: Following
) -> None:
    assert await acls.change({TOPIC: add(READ)}) == {}
    assert acls.rules.entries(TOPIC) == (READ,)
    assert (await store.get("/kafka-acl/Topic/t")).data == STORED_READ
    (change,) = await store.children("/kafka-acl-changes")
    assert change == "acl_changes_0000000000"
    assert (await store.get(f"/kafka-acl-changes/{change}")).data == b"TOPIC:t"
    await other.settle()
    assert (other.rules.entries(TOPIC), other.changes) == ((READ,), 1)
    await other.change({TOPIC: remove(READ)})
    await acls.settle()
    assert acls.rules.patterns == ()
    assert await store.exists("/kafka-acl/Topic/t") is None
    assert await store.exists("/kafka-acl/Topic") is not None


async def test_a_prefixed_rule_is_stored_apart_with_a_notification_of_another_form(
    store: EmbeddedStore, acls: Following, other: Following
) -> None:
    await acls.change({PREFIX: add(WRITE)})
    assert decode_entries((await store.get("/kafka-acl-extended/prefixed/TransactionalId/tx-")).data) == (WRITE,)
    (change,) = await store.children("/kafka-acl-extended-changes")
    assert (await store.get(f"/kafka-acl-extended-changes/{change}")).data == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx-","patternType":"PREFIXED"}'
    )
    await other.settle()
    assert other.rules.entries(PREFIX) == (WRITE,)


async def test_the_directories_of_all_types_are_created_as_apache_kafka_does(
    store: EmbeddedStore, acls: Following
) -> None:
    types = ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]
    assert await store.children("/kafka-acl") == types
    assert await store.children("/kafka-acl-extended/prefixed") == types


async def test_a_change_that_changes_nothing_writes_nothing(store: EmbeddedStore, acls: Following) -> None:
    await acls.change({TOPIC: add(READ)})
    await acls.change({TOPIC: add(READ), PREFIX: remove(READ)})
    assert (await store.get("/kafka-acl/Topic/t")).version == 0
    assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
    assert acls.changes == 1


async def test_changes_at_once_by_several_brokers_all_count(acls: Following, other: Following) -> None:
    entries = [READ._replace(principal=f"User:u{number}") for number in range(20)]
    await asyncio.gather(
        *((acls if number % 2 else other).change({TOPIC: add(entry)}) for number, entry in enumerate(entries))
    )
    await asyncio.gather(acls.settle(), other.settle())
    assert set(acls.rules.entries(TOPIC)) == set(other.rules.entries(TOPIC)) == set(entries)


async def test_many_patterns_are_written_in_few_multis(store: EmbeddedStore, acls: Following) -> None:
    patterns = [Pattern(ResourceType.GROUP, f"g{number}") for number in range(120)]
    assert await acls.change({each: add(READ) for each in patterns}) == {}
    nodes = [await store.get(path_of(each)) for each in patterns]
    assert len({node.czxid for node in nodes}) == 3


async def test_a_name_that_the_store_refuses_fails_alone(acls: Following) -> None:
    bad = Pattern(ResourceType.GROUP, "..")
    errors = await acls.change({TOPIC: add(READ), bad: add(READ)})
    assert [(pattern, error.code) for pattern, error in errors.items()] == [(bad, ErrorCode.INVALID_REQUEST)]
    assert acls.rules.patterns == (TOPIC,)


async def test_a_name_with_a_slash_fails_alone_and_makes_no_node(store: EmbeddedStore, acls: Following) -> None:
    """Its node would be one below another, and a rule that denies would not be enforced."""
    bad = Pattern(ResourceType.GROUP, "a/b")
    errors = await acls.change({TOPIC: add(READ), bad: add(WRITE)})
    assert [(pattern, error.code) for pattern, error in errors.items()] == [(bad, ErrorCode.INVALID_REQUEST)]
    assert acls.rules.patterns == (TOPIC,)
    assert await store.children("/kafka-acl/Group") == []


async def test_rules_are_read_again_when_notifications_were_missed(
    store: EmbeddedStore, acls: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("/kafka-acl/Topic/unseen", STORED_READ)
    for _ in range(2):
        await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    await store.delete("/kafka-acl-changes/acl_changes_0000000000")
    monkeypatch.setattr(change_feed, "NOTIFICATIONS_KEPT_MAX", 1)
    acls._feeds[0]._last_seen = "acl_changes_0000000000"
    await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    await store.create("/kafka-acl-changes/acl_changes_", b"no type", sequential=True)
    await acls.settle()
    assert acls.rules.entries(Pattern(ResourceType.TOPIC, "unseen")) == (READ,)
    assert len(await store.children("/kafka-acl-changes")) == 1


async def test_rules_are_read_again_after_a_session_was_lost(store: EmbeddedStore, acls: Following) -> None:
    await acls.change({TOPIC: add(READ)})
    await store.delete("/kafka-acl/Topic/t")
    await store.create("/kafka-acl/Topic/unseen", STORED_READ)
    acls._on_new_session()
    assert acls._reloading is not None
    await acls._reloading
    assert acls.rules.patterns == (Pattern(ResourceType.TOPIC, "unseen"),)


async def test_corrupt_rules_refuse_a_start_by_the_name_of_their_node(store: EmbeddedStore, acls: Following) -> None:
    await store.create("/kafka-acl/Topic/t", STORED_READ.replace(b"Read", b"Fly"))
    with pytest.raises(CorruptNode, match=r"^/kafka-acl/Topic/t: 'Fly' is not known"):
        await Following(store).start()


async def test_rules_that_become_corrupt_leave_those_before_in_force(store: EmbeddedStore, acls: Following) -> None:
    await acls.change({TOPIC: add(READ)})
    await store.set("/kafka-acl/Topic/t", b"{")
    await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    await acls.settle()
    assert acls.rules.entries(TOPIC) == (READ,)
    errors = await acls.change({TOPIC: add(WRITE)})
    assert errors[TOPIC].code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_rules_of_a_type_that_is_not_known_are_passed_over(store: EmbeddedStore, acls: Following) -> None:
    await store.create("/kafka-acl/Planet")
    await store.create("/kafka-acl/Planet/earth", b"?")
    started = Following(store)
    await started.start()
    assert started.rules.patterns == ()
    await started.close()


async def test_a_directory_of_notifications_that_somebody_deleted_is_made_again(
    store: EmbeddedStore, acls: Following
) -> None:
    await store.delete("/kafka-acl-changes")
    await acls.settle()
    await store.create("/kafka-acl/Topic/t", STORED_READ)
    await store.create("/kafka-acl-changes/something")
    await store.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequential=True)
    await acls.settle()
    assert acls.rules.entries(TOPIC) == (READ,)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ENTRIES = st.builds(
    Entry,
    NAMES.map("User:{}".format),
    NAMES,
    st.sampled_from([each for each in Operation if each is not Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
PATTERNS = st.builds(
    Pattern,
    st.sampled_from([each for each in ResourceType if each is not ResourceType.ANY]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


@given(st.lists(ENTRIES, unique=True))
def test_every_entry_comes_back(entries: Sequence[Entry]) -> None:
    assert decode_entries(encode_entries(entries)) == tuple(entries)


@given(PATTERNS)
def test_every_notification_comes_back(pattern: Pattern) -> None:
    assert decode_change(pattern.kind, encode_change(pattern)) == pattern


@given(st.binary(max_size=40) | st.integers(0, 100).map(lambda size: STORED_READ[:size]), st.sampled_from(PatternType))
def test_damaged_nodes_are_corrupt_or_have_another_meaning(data: bytes, kind: PatternType) -> None:
    for read in (decode_entries, lambda each: decode_change(kind, each)):
        try:
            read(data)
        except CorruptNode:
            continue


DAMAGED = [
    b"[]",
    b'{"version":2,"acls":[]}',
    b'{"version":1}',
    b'{"version":1,"acls":[1]}',
    *(STORED_READ.replace(name, b"x") for name in (b"principal", b"permissionType", b"operation", b"host")),
    STORED_READ.replace(b"User:alice", b"alice"),
    STORED_READ.replace(b"Allow", b"Any"),
]


@pytest.mark.parametrize("data", DAMAGED)
def test_entries_of_another_form_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptNode):
        decode_entries(data)


def test_a_node_without_data_has_no_rules() -> None:
    assert decode_entries(b"") == ()
    assert acl_nodes.resource_of("Planet") is None


async def test_the_store_of_a_broker_without_an_authorizer_has_none_of_the_nodes(store: EmbeddedStore) -> None:
    with pytest.raises(NoNode):
        await store.children("/kafka-acl")
