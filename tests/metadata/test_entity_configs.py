"""Configs of users, clients, ips and groups reach whoever listens, under the names that Kafka 3.9 gives their nodes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.metadata import znodes
from headrace.metadata.entity_configs import (
    CLIENTS,
    DEFAULT,
    GROUPS,
    IPS,
    TOPICS,
    USERS,
    EntityConfigs,
    desanitize,
    sanitize,
)
from headrace.metadata.registry import ensure_cluster
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import NoNode


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def entities(store: EmbeddedStore) -> AsyncIterator[EntityConfigs]:
    started = EntityConfigs(store)
    await started.start()
    yield started
    await started.close()


async def follow(entities: EntityConfigs) -> None:
    await asyncio.sleep(0)
    while entities._tasks:
        await asyncio.wait(entities._tasks)


def heard_by(entities: EntityConfigs, entity_type: str) -> list[tuple[str, Mapping[str, str]]]:
    heard: list[tuple[str, Mapping[str, str]]] = []
    entities.on_change(entity_type, lambda name, configs: heard.append((name, configs)))
    return heard


def setting(**values: str) -> Mapping[str, str]:
    return values


NAMES = ["alice", DEFAULT, "alice/clients/app", f"{DEFAULT}/clients/{DEFAULT}"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_users_configs_are_written_heard_and_deleted_with_their_parents(
    store: EmbeddedStore, entities: EntityConfigs, name: str
) -> None:
    other = EntityConfigs(store)
    await other.start()
    heard = heard_by(other, USERS)
    await entities.rewrite(USERS, name, lambda own: setting(a="1"))
    await follow(other)
    assert znodes.decode_config((await store.get(f"/config/users/{name}")).data) == {"a": "1"}
    assert entities.get(USERS, name) == other.get(USERS, name) == {"a": "1"}
    late = EntityConfigs(store)
    await late.start()
    assert heard_by(late, USERS) == [(name, {"a": "1"})]
    await entities.rewrite(USERS, name, lambda own: {})
    await follow(other)
    assert heard == [(name, {"a": "1"}), (name, {})]
    assert await store.children("/config/users") == []
    assert name not in other.all(USERS)
    await other.close()
    await late.close()


async def test_a_user_with_clients_keeps_its_node_and_a_user_with_configs_outlives_its_clients(
    store: EmbeddedStore, entities: EntityConfigs
) -> None:
    await entities.rewrite(USERS, "u", lambda own: setting(a="1"))
    await entities.rewrite(USERS, "u/clients/c", lambda own: setting(b="2"))
    await entities.rewrite(USERS, "u/clients/d", lambda own: setting(b="3"))
    await entities.rewrite(USERS, "u", lambda own: {})
    assert znodes.decode_config((await store.get("/config/users/u")).data) == {}
    assert entities.get(USERS, "u/clients/c") == {"b": "2"}
    await entities.rewrite(USERS, "u", lambda own: setting(a="1"))
    await entities.rewrite(USERS, "u/clients/c", lambda own: {})
    assert await store.children("/config/users/u/clients") == ["d"]
    await entities.rewrite(USERS, "u/clients/d", lambda own: {})
    assert await store.children("/config/users/u") == []
    assert entities.get(USERS, "u") == {"a": "1"}


async def test_both_versions_of_notifications_are_understood_and_unknown_types_passed_over(
    store: EmbeddedStore, entities: EntityConfigs
) -> None:
    heard = heard_by(entities, CLIENTS)
    old = b'{"version":1,"entity_type":"clients","entity_name":"c"}'
    new = b'{"version":2,"entity_path":"clients/d"}'
    for name in ("c", "d"):
        await store.create(znodes.config(CLIENTS, name), znodes.encode_config({"x": name}))
    for data in (b'{"version":2,"entity_path":"planets/mars"}', old, new):
        await store.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await follow(entities)
    assert heard == [("c", {"x": "c"}), ("d", {"x": "d"})]


async def test_entities_deleted_unseen_are_heard_of_when_all_is_read_again(
    store: EmbeddedStore, entities: EntityConfigs
) -> None:
    await entities.rewrite(IPS, "10.0.0.1", lambda own: setting(connection_creation_rate="5"))
    await entities.rewrite(USERS, "u/clients/c", lambda own: setting(a="1"))
    await follow(entities)
    ips, users = heard_by(entities, IPS), heard_by(entities, USERS)
    await store.delete("/config/ips/10.0.0.1")
    await store.delete("/config/users/u/clients/c")
    await store.create(znodes.CONFIG_CHANGE_PREFIX, b"garbage", sequential=True)
    await follow(entities)
    assert ips[1:] == [("10.0.0.1", {})]
    assert users[1:] == [("u/clients/c", {})]


async def test_rewrites_at_once_all_count(store: EmbeddedStore, entities: EntityConfigs) -> None:
    others = [entities, EntityConfigs(store), EntityConfigs(store)]

    def add(number: int, own: Mapping[str, str]) -> Mapping[str, str]:
        return {**own, f"n{number}": "x"}

    await asyncio.gather(
        *(others[n % 3].rewrite(USERS, "u/clients/c", lambda own, n=n: add(n, own)) for n in range(30))  # type: ignore[misc]
    )
    data = (await store.get("/config/users/u/clients/c")).data
    assert sorted(znodes.decode_config(data)) == sorted(f"n{n}" for n in range(30))


async def test_the_parent_of_a_type_that_kafka_3_9_does_not_know_is_created(
    store: EmbeddedStore, entities: EntityConfigs
) -> None:
    await entities.rewrite(GROUPS, sanitize("a/b"), lambda own: setting(x="1"))
    assert await store.children("/config/groups") == ["a%2Fb"]


async def test_nothing_is_written_without_the_node_that_must_exist(
    store: EmbeddedStore, entities: EntityConfigs
) -> None:
    with pytest.raises(NoNode):
        await entities.rewrite(TOPICS, "t", lambda own: setting(x="1"), must_exist=znodes.topic("t"))
    assert await store.children("/config/topics") == []


@pytest.mark.parametrize("name", [".", "..", "a\0b", ""])
async def test_a_name_that_the_store_refuses_is_the_senders_error(entities: EntityConfigs, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        await entities.rewrite(CLIENTS, name, lambda own: setting(x="1"))


@pytest.mark.parametrize(
    ("name", "node"),
    [("a b", "a%20b"), ("a+b", "a%2Bb"), ("*", "%2A"), ("~", "%7E"), ("ü/<", "%C3%BC%2F%3C"), ("a-b.c_d", "a-b.c_d")],
)
def test_names_are_encoded_as_kafkas_sanitizer_does(name: str, node: str) -> None:
    assert sanitize(name) == node


@given(st.text(st.characters(codec="utf-8")))
def test_every_name_comes_back_and_none_is_the_default(name: str) -> None:
    assert desanitize(sanitize(name)) == name
    assert sanitize(name) != DEFAULT
