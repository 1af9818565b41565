"""Settings of a broker that change while it runs, from the metadata store to their value."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.config import BrokerConfig
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata import znodes
from headrace.metadata.broker_configs import ALL, BrokerSettings
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation
from headrace.metadata.entity_configs import EntityConfigs
from headrace.metadata.registry import ensure_cluster
from headrace.metastore.embedded import EmbeddedStore
from headrace.security.password_encoder import decode
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
    entities = EntityConfigs(store)
    await entities.start()
    yield BrokerSettings(entities, BrokerId(4), STATIC)
    await entities.close()


def to(value: str) -> Alteration:
    return Alteration([ConfigChange(RATE, ConfigOperation.SET, value)])


async def test_a_brokers_own_goes_before_that_of_all_which_goes_before_the_one_of_the_start(
    settings: BrokerSettings,
) -> None:
    assert settings.number(RATE) == 500
    await settings.rewrite(ALL, to("600"))
    assert settings.number(RATE) == 600
    await settings.rewrite("4", to("700"))
    assert (settings.number(RATE), settings.set_for("4"), settings.set_for(ALL)) == (700, {RATE: "700"}, {RATE: "600"})
    await settings.rewrite("4", Alteration([ConfigChange(RATE, ConfigOperation.DELETE)]))
    assert settings.number(RATE) == 600
    await settings.rewrite(ALL, Alteration(replacement=[]))
    assert settings.number(RATE) == 500


async def test_another_broker_hears_of_it_and_a_later_start_reads_it(
    store: EmbeddedStore, settings: BrokerSettings
) -> None:
    others = EntityConfigs(store)
    other = BrokerSettings(others, BrokerId(5), STATIC)
    await others.start()
    await other.rewrite("4", to("800"))
    await _until(settings, 800)
    assert other.number(RATE) == 500
    changes = await store.children(znodes.CONFIG_CHANGES)
    node = await store.get(f"{znodes.CONFIG_CHANGES}/{changes[-1]}")
    assert znodes.decode_config_change(node.data) == ("brokers", "4")
    assert BrokerSettings(others, BrokerId(4), STATIC).number(RATE) == 800
    await others.close()


async def _until(settings: BrokerSettings, value: int) -> None:
    for _ in range(3000):
        if settings.number(RATE) == value:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{RATE} is {settings.number(RATE)}, not {value}")


async def test_what_cannot_change_or_is_no_rate_is_refused(store: EmbeddedStore, settings: BrokerSettings) -> None:
    with pytest.raises(InvalidRequest, match="log.dirs"):
        await settings.rewrite("4", Alteration([ConfigChange("log.dirs", ConfigOperation.SET, "/tmp")]))
    for bad in ("0", "-1", "fast", ""):
        with pytest.raises(InvalidRequest):
            await settings.rewrite("4", to(bad))
    await settings.rewrite("4", to("900"), validate_only=True)
    assert await store.exists(znodes.config("brokers", "4")) is None


async def test_garbage_in_the_tree_leaves_the_value_of_the_start(store: EmbeddedStore) -> None:
    for data in (b"{", b'{"version":1,"config":{"leader.replication.throttled.rate":"fast"}}'):
        await store.delete(znodes.config("brokers", "4")) if await store.exists(znodes.config("brokers", "4")) else None
        await store.create(znodes.config("brokers", "4"), data)
        entities = EntityConfigs(store)
        await entities.start()
        assert BrokerSettings(entities, BrokerId(4), STATIC).number(RATE) == 500
        await entities.close()


SECRET_NAME = "ssl.key.password"


async def started(store: EmbeddedStore, **secrets: str) -> BrokerSettings:
    """The settings of broker 4 after a start with these settings of `password.encoder`."""
    entities = EntityConfigs(store)
    await entities.start()
    settings = BrokerSettings(entities, BrokerId(4), BrokerConfig(**secrets))  # type: ignore[arg-type]
    await settings.reencode()
    return settings


async def stored(store: EmbeddedStore) -> str:
    return znodes.decode_config((await store.get(znodes.config("brokers", "4"))).data)[SECRET_NAME]


async def test_a_start_encrypts_the_stored_passwords_with_the_new_secret(store: EmbeddedStore) -> None:
    first = await started(store, password_encoder_secret="one")
    change = [
        ConfigChange(SECRET_NAME, ConfigOperation.SET, "the password"),
        ConfigChange(RATE, ConfigOperation.SET, "800"),
    ]
    await first.rewrite("4", Alteration(change))
    assert decode(await stored(store), "one") == "the password"
    second = await started(store, password_encoder_secret="two", password_encoder_old_secret="one")
    assert decode(await stored(store), "two") == "the password"
    assert second.number(RATE) == 800
    before = await stored(store)
    third = await started(store, password_encoder_secret="two", password_encoder_old_secret="one")
    assert await stored(store) == before, "what has the new secret already is left as it is"
    for settings in (second, third, await started(store, password_encoder_secret="two")):
        assert settings.set_for("4") == {SECRET_NAME: "the password", RATE: "800"}


async def test_an_old_secret_alone_ends_the_start(store: EmbeddedStore, caplog: pytest.LogCaptureFixture) -> None:
    first = await started(store, password_encoder_secret="one")
    await first.rewrite("4", Alteration([ConfigChange(SECRET_NAME, ConfigOperation.SET, "the password")]))
    with pytest.raises(InvalidConfig, match=r"password\.encoder\.secret is not set"):
        await started(store, password_encoder_old_secret="one")
    assert decode(await stored(store), "one") == "the password"
    await started(store, password_encoder_secret="two", password_encoder_old_secret="neither")
    assert f"the stored password {SECRET_NAME} is ignored" in caplog.text
    assert decode(await stored(store), "one") == "the password"
