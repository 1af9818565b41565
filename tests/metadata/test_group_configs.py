"""Configs that groups set over the broker's, within its bounds."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from headrace.config import BrokerConfig
from headrace.config.group_configs import GroupSetting
from headrace.config.setting import Setting
from headrace.errors import InvalidConfig
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation
from headrace.metadata.entity_configs import GROUPS, EntityConfigs
from headrace.metadata.group_configs import GroupConfigs
from headrace.metadata.registry import ensure_cluster
from headrace.metastore.embedded import EmbeddedStore

TIMEOUT, BEAT, RESET = "x.session.timeout.ms", "x.heartbeat.interval.ms", "x.reset"
SETTINGS = {
    TIMEOUT: GroupSetting(
        Setting(TIMEOUT, "int", 45_000, "", low=1), "group.initial.rebalance.delay.ms",
        least="group.min.session.timeout.ms", most="group.max.session.timeout.ms", more_than=BEAT,
    ),
    BEAT: GroupSetting(Setting(BEAT, "int", 5000, "", low=1)),
    RESET: GroupSetting(Setting(RESET, "string", "latest", "", choices=("latest", "earliest"))),
}  # fmt: skip
BROKER = BrokerConfig(
    group_initial_rebalance_delay_ms=20_000, group_min_session_timeout_ms=3000, group_max_session_timeout_ms=60_000
)


@pytest.fixture
async def entities(tmp_path: Path) -> AsyncIterator[EntityConfigs]:
    store = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(store)
    started = EntityConfigs(store)
    await started.start()
    yield started
    await started.close()
    await store.close()


def to(**values: str) -> Alteration:
    return Alteration(
        [ConfigChange(f"x.{n.replace('_', '.')}", ConfigOperation.SET, text) for n, text in values.items()]
    )


async def test_a_group_has_its_own_value_over_that_of_the_broker_over_the_built_in_one(entities: EntityConfigs) -> None:
    configs = GroupConfigs(entities, BROKER, SETTINGS)
    heard: list[str] = []
    configs.on_change(heard.append)
    assert (configs.value("g/1", TIMEOUT), configs.value("g/1", RESET)) == (20_000, "latest")
    await configs.rewrite("g/1", to(session_timeout_ms="30000", reset="earliest"))
    assert (configs.number("g/1", TIMEOUT), configs.value("g/1", RESET)) == (30_000, "earliest")
    assert configs.overrides("g/1") == {TIMEOUT: "30000", RESET: "earliest"}
    assert configs.value("g", TIMEOUT) == 20_000
    await configs.rewrite("g/1", Alteration(replacement=[]))
    assert configs.overrides("g/1") == {}
    assert heard == ["g/1", "g/1"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"no_such": "1"}, "Unknown group config name: x.no.such"),
        ({"session_timeout_ms": "2999"}, "must be greater than or equal to group.min.session.timeout.ms"),
        ({"session_timeout_ms": "60001"}, "must be less than or equal to group.max.session.timeout.ms"),
        ({"session_timeout_ms": "5000"}, f"{TIMEOUT} must be greater than {BEAT}"),
        ({"heartbeat_interval_ms": "20000"}, f"{TIMEOUT} must be greater than {BEAT}"),
        ({"heartbeat_interval_ms": "0"}, "x.heartbeat.interval.ms=0 is out of bounds"),
        ({"heartbeat_interval_ms": "soon"}, "is not a int"),
        ({"reset": "never"}, "x.reset='never'"),
    ],
)
async def test_what_is_unknown_out_of_bounds_or_contradictory_is_refused(
    entities: EntityConfigs, values: Mapping[str, str], message: str
) -> None:
    configs = GroupConfigs(entities, BROKER, SETTINGS)
    with pytest.raises(InvalidConfig) as raised:
        await configs.rewrite("g", to(**values))
    assert message in raised.value.message
    assert entities.all(GROUPS) == {}


async def test_a_value_beyond_a_bound_that_became_narrower_is_moved_to_it(
    entities: EntityConfigs, caplog: pytest.LogCaptureFixture
) -> None:
    await GroupConfigs(entities, BROKER, SETTINGS).rewrite("g", to(session_timeout_ms="50000"))
    narrower = BrokerConfig(group_initial_rebalance_delay_ms=20_000, group_max_session_timeout_ms=40_000)
    assert GroupConfigs(entities, narrower, SETTINGS).value("g", TIMEOUT) == 40_000
    assert "out of bounds" in caplog.text


async def test_unknown_and_broken_configs_in_the_store_are_ignored_and_kept(entities: EntityConfigs) -> None:
    strange = {"from.the.future": "1", TIMEOUT: "soon", RESET: "earliest"}
    await entities.rewrite(GROUPS, "g", lambda own: strange)
    configs = GroupConfigs(entities, BROKER, SETTINGS)
    assert configs.overrides("g") == {RESET: "earliest"}
    await configs.rewrite("g", Alteration([ConfigChange(TIMEOUT, ConfigOperation.DELETE)]))
    assert entities.get(GROUPS, "g") == {"from.the.future": "1", RESET: "earliest"}
