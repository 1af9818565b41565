"""What setting, taking back, appending and subtracting leave of a topic's settings."""

import pytest

from headrace.config import TopicConfig
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata.config_changes import ConfigChange, ConfigOperation, changed, lists_of_topics, replaced

LISTS = lists_of_topics(TopicConfig(cleanup_policy=("delete",)))
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.mark.parametrize(
    ("own", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        (None, SUBTRACT, "delete", ""),
        (None, SUBTRACT, "compact", "delete"),
        ("", APPEND, "delete,compact", "delete,compact"),
        ("", APPEND, "", ""),
        ("compact", APPEND, " delete , compact", "compact,delete"),
        ("delete, compact", SUBTRACT, "delete", "compact"),
        ("compact", SET, "delete", "delete"),
        ("compact", DELETE, "compact", None),
        (None, DELETE, None, None),
    ],
)
def test_a_list_grows_and_shrinks_from_what_is_in_force(
    own: str | None, operation: ConfigOperation, value: str | None, after: str | None
) -> None:
    before = {"retention.ms": "5"} | ({} if own is None else {"cleanup.policy": own})
    expected = {"retention.ms": "5"} | ({} if after is None else {"cleanup.policy": after})
    assert changed(before, [ConfigChange("cleanup.policy", operation, value)], LISTS) == expected


def test_settings_that_are_not_named_stay_or_go() -> None:
    own = {"segment.ms": "1", "retention.ms": "2"}
    assert changed(own, [ConfigChange("retention.ms", SET, "3")], LISTS) == {"segment.ms": "1", "retention.ms": "3"}
    assert replaced([("retention.ms", "3")]) == {"retention.ms": "3"}
    assert own == {"segment.ms": "1", "retention.ms": "2"}


@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_a_list_is_appended_to(name: str, operation: ConfigOperation) -> None:
    with pytest.raises(InvalidConfig, match=f"Can't {operation.name} to key {name}"):
        changed({}, [ConfigChange(name, operation, "5")], LISTS)


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
def test_a_value_is_needed(operation: ConfigOperation) -> None:
    with pytest.raises(InvalidRequest, match=r"Null value not supported for : cleanup\.policy"):
        changed({}, [ConfigChange("cleanup.policy", operation)], LISTS)
    with pytest.raises(InvalidRequest):
        replaced([("cleanup.policy", None)])


def test_a_setting_is_named_once() -> None:
    with pytest.raises(InvalidRequest, match="duplicate"):
        changed({}, [ConfigChange("retention.ms", SET, "5"), ConfigChange("retention.ms", DELETE)], LISTS)
    with pytest.raises(InvalidRequest, match="duplicate"):
        replaced([("retention.ms", "5"), ("retention.ms", "5")])
