"""Settings of a broker that change while it runs, from the metadata store to their value."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata import znodes
from headrace.metadata.broker_configs import ALL, BrokerSettings
from headrace.metadata.config_changes import Change, Operation
from headrace.metadata.registry import ensure_cluster
from headrace.metastore.embedded import EmbeddedStore
from headrace.types import BrokerId

RATE = "leader.replication.throttled.rate"
STATIC = BrokerConfig(leader_replication_throttled_rate=500)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def settings(store: EmbeddedStore) -> AsyncIterator[BrokerSettings]:
    started = BrokerSettings(store, BrokerId(4), STATIC)
    await started.start()
    yield started
    await started.close()


def to(value: str) -> list[Change]:
    return [Change(RATE, Operation.SET, value)]


async def test_a_brokers_own_goes_before_that_of_all_which_goes_before_the_one_of_the_start(
    settings: BrokerSettings,
) -> None:
    assert settings.number(RATE) == 500
    await settings.rewrite(ALL, to("600"))
    assert settings.number(RATE) == 600
    await settings.rewrite("4", to("700"))
    assert (settings.number(RATE), settings.set_for("4"), settings.set_for(ALL)) == (700, {RATE: "700"}, {RATE: "600"})
    await settings.rewrite("4", [Change(RATE, Operation.DELETE)])
    assert settings.number(RATE) == 600
    await settings.rewrite(ALL, None, [])
    assert settings.number(RATE) == 500


async def test_another_broker_hears_of_it_and_a_later_start_reads_it(
    store: EmbeddedStore, settings: BrokerSettings
) -> None:
    other = BrokerSettings(store, BrokerId(5), STATIC)
    await other.start()
    await other.rewrite("4", to("800"))
    await _until(settings, 800)
    assert other.number(RATE) == 500
    changes = await store.children(znodes.CONFIG_CHANGES)
    node = await store.get(f"{znodes.CONFIG_CHANGES}/{changes[-1]}")
    assert znodes.decode_config_change(node.data) == ("brokers", "4")
    again = BrokerSettings(store, BrokerId(4), STATIC)
    await again.start()
    assert again.number(RATE) == 800
    await other.close()
    await again.close()


async def _until(settings: BrokerSettings, value: int) -> None:
    for _ in range(3000):
        if settings.number(RATE) == value:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{RATE} is {settings.number(RATE)}, not {value}")


async def test_what_cannot_change_or_is_no_rate_is_refused(store: EmbeddedStore, settings: BrokerSettings) -> None:
    with pytest.raises(InvalidRequest, match="log.dirs"):
        await settings.rewrite("4", [Change("log.dirs", Operation.SET, "/tmp")])
    for bad in ("0", "-1", "fast", ""):
        with pytest.raises(InvalidConfig):
            await settings.rewrite("4", to(bad))
    await settings.rewrite("4", to("900"), validate_only=True)
    assert await store.exists(znodes.config("brokers", "4")) is None


async def test_garbage_in_the_tree_leaves_the_value_of_the_start(store: EmbeddedStore) -> None:
    for data in (b"{", b'{"version":1,"config":{"leader.replication.throttled.rate":"fast"}}'):
        await store.delete(znodes.config("brokers", "4")) if await store.exists(znodes.config("brokers", "4")) else None
        await store.create(znodes.config("brokers", "4"), data)
        settings = BrokerSettings(store, BrokerId(4), STATIC)
        await settings.start()
        assert settings.number(RATE) == 500
        await settings.close()
