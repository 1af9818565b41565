"""A topic's settings in the tree reach whoever uses them, whoever changed them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.config import TopicConfig
from headrace.coordination import configs as configs_module
from headrace.coordination import paths
from headrace.coordination.configs import TopicConfigs
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.registry import ensure_cluster
from headrace.coordination.tree import Tree
from headrace.errors import InvalidConfig, UnknownTopicOrPartition

DEFAULTS = TopicConfig(retention_ms=111)


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    opened = await EmbeddedTree.open(tmp_path)
    await ensure_cluster(opened)
    for name in ("t", "u"):
        await opened.create(paths.topic(name))
    yield opened
    await opened.close()


@pytest.fixture
async def configs(tree: Tree) -> AsyncIterator[TopicConfigs]:
    started = TopicConfigs(tree, DEFAULTS)
    await started.start()
    yield started
    await started.close()


async def follow(configs: TopicConfigs) -> None:
    """Waits until every notice so far has been followed."""
    await asyncio.sleep(0)
    while configs._tasks:
        await asyncio.wait(configs._tasks)


async def test_without_settings_of_its_own_a_topic_has_the_brokers(configs: TopicConfigs) -> None:
    assert configs.get("never heard of") is DEFAULTS
    await configs.ensure_loaded(["t"])
    assert configs.get("t") == DEFAULTS
    assert configs.overrides("t") == {}


async def test_settings_are_there_from_the_start(tree: Tree) -> None:
    await tree.create(paths.config("topics", "t"), paths.encode_config({"retention.ms": "5"}))
    configs = TopicConfigs(tree, DEFAULTS)
    await configs.start()
    assert configs.get("t").retention_ms == 5
    await configs.close()


async def test_a_change_is_heard_by_every_broker(tree: Tree, configs: TopicConfigs) -> None:
    other = TopicConfigs(tree, DEFAULTS)
    await other.start()
    await other.ensure_loaded(["t"])
    heard: list[tuple[str, int]] = []
    other.on_change(lambda name, config: heard.append((name, config.retention_ms)))
    await configs.alter("t", {"retention.ms": "5", "segment.ms": "7"})
    await follow(other)
    await configs.alter("t", {"retention.ms": None})
    await follow(other)
    assert heard == [("t", 5), ("t", 111)]
    assert other.overrides("t") == {"segment.ms": "7"}
    await other.close()


async def test_a_change_to_the_same_value_is_no_news(configs: TopicConfigs) -> None:
    await configs.alter("t", {"retention.ms": "5"})
    heard: list[str] = []
    configs.on_change(lambda name, config: heard.append(name))
    await configs.alter("t", {"retention.ms": "5"})
    await follow(configs)
    assert heard == []


@pytest.mark.parametrize("changes", [{"no.such": "1"}, {"retention.ms": "soon"}, {"segment.bytes": "1"}])
async def test_a_bad_change_changes_nothing(tree: Tree, configs: TopicConfigs, changes: dict[str, str | None]) -> None:
    with pytest.raises(InvalidConfig):
        await configs.alter("t", {"segment.ms": "7"} | changes)
    assert configs.overrides("t") == {}
    assert await tree.exists(paths.config("topics", "t")) is None
    assert await tree.children(paths.CONFIG_CHANGES) == []


async def test_what_a_topic_does_not_set_can_be_taken_back(tree: Tree, configs: TopicConfigs) -> None:
    await configs.alter("t", {"no.such": None, "retention.ms": None})
    assert await tree.children(paths.CONFIG_CHANGES) == []


async def test_changes_made_at_once_are_all_kept(tree: Tree, configs: TopicConfigs) -> None:
    wanted = {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3", "retention.bytes": "4"}
    await asyncio.gather(*(configs.alter("t", {name: text}) for name, text in wanted.items()))
    assert paths.decode_config((await tree.get(paths.config("topics", "t"))).data) == wanted
    await follow(configs)
    assert configs.overrides("t") == wanted


async def test_validate_only_changes_nothing(tree: Tree, configs: TopicConfigs) -> None:
    await configs.alter("t", {"segment.ms": "7"}, validate_only=True)
    assert await tree.exists(paths.config("topics", "t")) is None


async def test_a_topic_that_is_not_there_has_no_settings_to_change(configs: TopicConfigs) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        await configs.alter("nope", {"segment.ms": "7"})


async def test_a_setting_of_a_newer_broker_is_left_out_and_kept_in_the_tree(
    tree: Tree, configs: TopicConfigs, caplog: pytest.LogCaptureFixture
) -> None:
    node = paths.config("topics", "t")
    await tree.create(node, paths.encode_config({"from.the.future": "x", "segment.ms": "soon", "retention.ms": "5"}))
    with caplog.at_level(logging.WARNING):
        await configs.load(["t"])
    assert configs.get("t").retention_ms == 5
    assert "from.the.future" in caplog.text and "soon" in caplog.text
    await configs.alter("t", {"retention.ms": "6", "segment.ms": None})
    assert (await tree.get(node)).data == paths.encode_config({"from.the.future": "x", "retention.ms": "6"})


async def test_old_change_notices_are_deleted(
    tree: Tree, configs: TopicConfigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs_module, "CHANGES_KEPT_MAX", 3)
    for number in range(8):
        await configs.alter("t", {"retention.ms": str(number)})
        await follow(configs)
    left = await tree.children(paths.CONFIG_CHANGES)
    assert left == [f"config_change_{number:010d}" for number in (5, 6, 7)]
