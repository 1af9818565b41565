"""A topic's settings in the metadata store reach whoever uses them, whoever changed them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from headrace.config import TopicConfig
from headrace.config.topic_bounds import TopicBounds
from headrace.errors import InvalidConfig, UnknownTopicOrPartition
from headrace.metadata import entity_configs, znodes
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.registry import ensure_cluster
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore, Node, SessionLost, SessionState, Watch

DEFAULTS = TopicConfig(retention_ms=111)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    for name in ("t", "u"):
        await opened.create(znodes.topic(name))
    yield opened
    await opened.close()


@pytest.fixture
async def configs(store: MetadataStore) -> AsyncIterator[TopicConfigs]:
    started = TopicConfigs(EntityConfigs(store), DEFAULTS)
    await started.entities.start()
    yield started
    await started.entities.close()


async def follow(configs: TopicConfigs) -> None:
    """Waits until every notice so far has been followed."""
    await asyncio.sleep(0)
    while configs.entities._tasks:
        await asyncio.wait(configs.entities._tasks)


async def test_without_settings_of_its_own_a_topic_has_the_brokers(configs: TopicConfigs) -> None:
    assert configs.get("never heard of") is DEFAULTS
    await configs.ensure_loaded(["t"])
    assert configs.get("t") == DEFAULTS
    assert configs.overrides("t") == {}


async def test_settings_are_there_from_the_start(store: MetadataStore) -> None:
    await store.create(znodes.config("topics", "t"), znodes.encode_config({"retention.ms": "5"}))
    configs = TopicConfigs(EntityConfigs(store), DEFAULTS)
    await configs.entities.start()
    assert configs.get("t").retention_ms == 5
    await configs.entities.close()


async def test_a_change_is_heard_by_every_broker(store: MetadataStore, configs: TopicConfigs) -> None:
    other = TopicConfigs(EntityConfigs(store), DEFAULTS)
    await other.entities.start()
    await other.ensure_loaded(["t"])
    heard: list[tuple[str, int]] = []
    other.on_change(lambda name, config: heard.append((name, config.retention_ms)))
    await configs.alter("t", {"retention.ms": "5", "segment.ms": "7"})
    await follow(other)
    await configs.alter("t", {"retention.ms": None})
    await follow(other)
    assert heard == [("t", 5), ("t", 111)]
    assert other.overrides("t") == {"segment.ms": "7"}
    await other.entities.close()


async def test_topics_of_a_reliable_instance_are_reliable_whatever_they_set(
    store: MetadataStore, configs: TopicConfigs
) -> None:
    for name in ("acme.t", "acmes.t"):
        await store.create(znodes.topic(name))
    await configs.alter("acme.t", {"headrace.reliable": "false", "retention.ms": "5"})
    await configs.ensure_loaded(["acme.t", "acmes.t"])
    heard: list[tuple[str, bool]] = []
    configs.on_change(lambda name, config: heard.append((name, config.reliable)))
    configs.bound("acme.", TopicBounds(reliable=True))
    assert configs.get("acme.not yet loaded").min_insync_replicas == 2
    assert configs._applying is not None
    await configs._applying
    assert heard == [("acme.t", True)]
    assert (configs.get("acme.t").retention_ms, configs.get("acme.t").flush_count) == (5, 1)
    assert not configs.get("acmes.t").reliable
    assert configs.get("never heard of") is DEFAULTS
    configs.bound("acme.", None)
    await configs._applying
    assert heard[1:] == [("acme.t", False)]


async def test_a_change_that_could_not_be_read_is_followed_with_the_next(
    store: MetadataStore, configs: TopicConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TopicConfigs(EntityConfigs(store), DEFAULTS)
    await other.entities.start()
    await other.ensure_loaded(["t", "u"])
    read = store.get_many

    async def refuse(wanted: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        if any(path.startswith(znodes.CONFIG_CHANGE_PREFIX) for path in wanted):
            raise SessionLost("while it reads what changed")
        return await read(wanted, watch)

    with monkeypatch.context() as broken:
        broken.setattr(store, "get_many", refuse)
        await configs.alter("t", {"retention.ms": "5"})
        await follow(other)
    assert other.get("t").retention_ms == DEFAULTS.retention_ms
    await configs.alter("u", {"retention.ms": "7"})
    await follow(other)
    assert (other.get("t").retention_ms, other.get("u").retention_ms) == (5, 7)
    await other.entities.close()


class Sessions:
    """A store whose sessions end when a test says so, with watches that live on."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._listeners: list[Callable[[SessionState], None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def become(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)


async def test_changes_whose_notifications_went_while_the_session_was_lost_are_read(
    store: MetadataStore, configs: TopicConfigs
) -> None:
    sessions = Sessions(store)
    other = TopicConfigs(EntityConfigs(cast(MetadataStore, sessions)), DEFAULTS)
    await other.entities.start()
    await other.ensure_loaded(["t"])
    sessions.become(SessionState.LOST)
    await store.create(znodes.config("topics", "t"), znodes.encode_config({"retention.ms": "5"}))
    sessions.become(SessionState.CONNECTED)
    await follow(other)
    assert other.get("t").retention_ms == 5
    await configs.alter("t", {"retention.ms": "6"})
    await follow(other)
    assert other.get("t").retention_ms == 6, "the watch lives on"
    await other.entities.close()


async def test_a_change_whose_notification_was_deleted_before_it_was_seen_is_read_with_the_next(
    store: MetadataStore, configs: TopicConfigs
) -> None:
    await configs.ensure_loaded(["t", "u"])
    await configs.alter("u", {"segment.ms": "7"})
    await follow(configs)
    await store.create(znodes.config("topics", "t"), znodes.encode_config({"retention.ms": "5"}))
    missed = await store.create(
        znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics", "t"), sequential=True
    )
    await store.delete(missed)
    await configs.alter("u", {"segment.ms": "8"})
    await follow(configs)
    assert configs.get("t").retention_ms == 5


async def test_a_corrupt_notification_does_not_stop_later_ones(store: MetadataStore, configs: TopicConfigs) -> None:
    await configs.ensure_loaded(["t"])
    await store.create(znodes.CONFIG_CHANGE_PREFIX, b"{", sequential=True)
    await follow(configs)
    other = TopicConfigs(EntityConfigs(store), DEFAULTS)
    await other.alter("t", {"retention.ms": "5"})
    await follow(configs)
    assert configs.get("t").retention_ms == 5


async def test_a_change_to_the_same_value_is_no_news(configs: TopicConfigs) -> None:
    await configs.alter("t", {"retention.ms": "5"})
    heard: list[str] = []
    configs.on_change(lambda name, config: heard.append(name))
    await configs.alter("t", {"retention.ms": "5"})
    await follow(configs)
    assert heard == []


@pytest.mark.parametrize("changes", [{"no.such": "1"}, {"retention.ms": "soon"}, {"segment.bytes": "1"}])
async def test_a_bad_change_changes_nothing(
    store: MetadataStore, configs: TopicConfigs, changes: dict[str, str | None]
) -> None:
    with pytest.raises(InvalidConfig):
        await configs.alter("t", {"segment.ms": "7"} | changes)
    assert configs.overrides("t") == {}
    assert await store.exists(znodes.config("topics", "t")) is None
    assert await store.children(znodes.CONFIG_CHANGES) == []


async def test_what_a_topic_does_not_set_can_be_taken_back(store: MetadataStore, configs: TopicConfigs) -> None:
    await configs.alter("t", {"no.such": None, "retention.ms": None})
    assert await store.children(znodes.CONFIG_CHANGES) == []


async def test_changes_made_at_once_are_all_kept(store: MetadataStore, configs: TopicConfigs) -> None:
    wanted = {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3", "retention.bytes": "4"}
    await asyncio.gather(*(configs.alter("t", {name: text}) for name, text in wanted.items()))
    assert znodes.decode_config((await store.get(znodes.config("topics", "t"))).data) == wanted
    await follow(configs)
    assert configs.overrides("t") == wanted


async def test_validate_only_changes_nothing(store: MetadataStore, configs: TopicConfigs) -> None:
    await configs.alter("t", {"segment.ms": "7"}, validate_only=True)
    assert await store.exists(znodes.config("topics", "t")) is None


async def test_a_topic_that_is_not_there_has_no_settings_to_change(configs: TopicConfigs) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        await configs.alter("nope", {"segment.ms": "7"})


async def test_a_setting_of_a_newer_broker_is_left_out_and_kept_in_the_tree(
    store: MetadataStore, configs: TopicConfigs, caplog: pytest.LogCaptureFixture
) -> None:
    node = znodes.config("topics", "t")
    await store.create(node, znodes.encode_config({"from.the.future": "x", "segment.ms": "soon", "retention.ms": "5"}))
    with caplog.at_level(logging.WARNING):
        await configs.load(["t"])
    assert configs.get("t").retention_ms == 5
    assert "from.the.future" in caplog.text and "soon" in caplog.text
    await configs.alter("t", {"retention.ms": "6", "segment.ms": None})
    assert (await store.get(node)).data == znodes.encode_config({"from.the.future": "x", "retention.ms": "6"})


async def test_old_change_notices_are_deleted(
    store: MetadataStore, configs: TopicConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_configs, "CHANGES_KEPT_MAX", 3)
    for number in range(8):
        await configs.alter("t", {"retention.ms": str(number)})
        await follow(configs)
    left = await store.children(znodes.CONFIG_CHANGES)
    assert left == [f"config_change_{number:010d}" for number in (5, 6, 7)]
