"""The classes of settings behave like frozen dataclasses, of which each field has several names."""

import copy
import pickle
from typing import Any

import pytest

from headrace import ClientSettings, ConsumerSettings, ProducerSettings, ShareConsumerSettings
from headrace.client.consumer.fetching import FetchSizes
from headrace.client.core.checked_settings import CheckedSettings
from headrace.errors import InvalidConfig

CLASSES = [ClientSettings, ProducerSettings, ConsumerSettings, ShareConsumerSettings]


@pytest.mark.parametrize("settings_class", CLASSES)
def test_settings_are_equal_by_their_values_and_survive_a_copy(settings_class: type[CheckedSettings]) -> None:
    plain = settings_class()
    assert plain == settings_class() and hash(plain) == hash(settings_class()) and plain != object()
    assert pickle.loads(pickle.dumps(plain)) == copy.deepcopy(plain) == plain.replace() == plain  # noqa: S301


def test_settings_of_two_kinds_are_never_equal() -> None:
    class Others(CheckedSettings, kind="client"):
        client_id: str = "headrace"

        def _check(self) -> None: ...

    class OthersToo(CheckedSettings, kind="client"):
        client_id: str = "headrace"

        def _check(self) -> None: ...

    assert Others() == Others() and Others() != OthersToo()


def test_a_class_of_settings_can_have_subclasses() -> None:
    class Patient(ProducerSettings):
        delivery_timeout_ms: int = 600_000

        def _check(self) -> None:
            super()._check()
            if self.linger_ms > 100:
                raise InvalidConfig("too patient")

    assert Patient("1", batch_bytes=7).replace(linger_ms=20).acks == "1" and Patient().delivery_timeout_ms == 600_000
    assert Patient() != ProducerSettings(delivery_timeout_ms=600_000)
    with pytest.raises(InvalidConfig, match="too patient"):
        Patient(linger_ms=200)


def test_settings_never_change() -> None:
    settings = ProducerSettings(linger_ms=20)
    with pytest.raises(AttributeError, match=r"linger_ms of ProducerSettings cannot be set.*replace"):
        settings.linger_ms = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="linger_ms of ProducerSettings cannot be deleted"):
        del settings.linger_ms
    assert settings.linger_ms == 20


def test_a_change_makes_other_settings_and_takes_every_name() -> None:
    before = ConsumerSettings(group_id="g", sizes=FetchSizes(min_bytes=7))
    changed = before.replace(**{"fetch.max.bytes": "5", "session_timeout_ms": 9_000, "auto_offset_reset": "earliest"})
    assert (changed.group_id, changed.auto_offset_reset, before.auto_offset_reset) == ("g", "earliest", "latest")
    assert changed.sizes == FetchSizes(min_bytes=7, max_bytes=5)
    assert changed.times.session_timeout_ms == 9_000 and before.times.session_timeout_ms == 45_000
    assert changed.replace(sizes=FetchSizes()).sizes == FetchSizes()


def test_a_change_is_checked_as_a_new_value_is() -> None:
    with pytest.raises(InvalidConfig, match=r"heartbeat_interval_ms=3000 must be less than session_timeout_ms=10"):
        ConsumerSettings().replace(session_timeout_ms=10)
    with pytest.raises(InvalidConfig, match="did you mean linger"):
        ProducerSettings().replace(linger=3)


@pytest.mark.parametrize(
    ("values", "given", "said"),
    [
        (("a",), {"client.id": "b"}, "client_id is given by position and by name"),
        (tuple(range(11)), {}, "has 10 settings, and 11 were given"),
    ],
)
def test_a_value_that_is_given_twice_or_without_a_field_is_refused(
    values: tuple[Any, ...], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        ClientSettings(*values, **given)


def test_the_representation_has_each_field_but_secrets() -> None:
    text = repr(ClientSettings("mine", sasl={"sasl.password": "hush"}))
    assert text.startswith("ClientSettings(client_id='mine', connect_timeout_ms=10000, ") and "hush" not in text
    assert eval(repr(ShareConsumerSettings("g"))) == ShareConsumerSettings("g")  # noqa: S307
