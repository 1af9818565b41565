"""The pytest fixtures `headrace_broker` and `headrace_broker_session`, found through the entry point `pytest11`.

    headrace_broker            a broker of this test's own
    headrace_broker_session    one broker for the session (with xdist: for each worker); give each test its own topics
    headrace_settings          settings of both, {} until a conftest.py says otherwise

One test's broker is told more by `@pytest.mark.headrace_broker(settings={...}, subprocess=True)`, which takes what
`headrace.testing.Broker` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import Broker, SettingValue

MARKER = "headrace_broker"


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known, for `--strict-markers` and `--markers`."""
    config.addinivalue_line(
        "markers", f"{MARKER}(settings, subprocess, data, port, security): how the test's headrace_broker is made"
    )


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, SettingValue]:
    """Settings of every broker that a fixture makes; define it again in a conftest.py to change them."""
    return {}


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest, headrace_settings: Mapping[str, SettingValue]) -> Iterator[Broker]:
    """A running `headrace.testing.Broker` for one test; its data is removed after the test."""
    marker = request.node.get_closest_marker(MARKER)
    arguments: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    if marker is not None and marker.args:
        pytest.fail(f"@pytest.mark.{MARKER} takes keywords only: settings={{...}}, subprocess=True", pytrace=False)
    arguments["settings"] = {**headrace_settings, **(arguments.get("settings") or {})}
    with _running(arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_broker_session(headrace_settings: Mapping[str, SettingValue]) -> Iterator[Broker]:
    """A running `headrace.testing.Broker` that all tests of the session share."""
    with _running({"settings": headrace_settings}) as broker:
        yield broker


@contextmanager
def _running(arguments: Mapping[str, Any]) -> Iterator[Broker]:
    """A started broker. An error in its arguments is one line instead of a traceback."""
    from headrace.errors import InvalidConfig
    from headrace.testing.broker import Broker
    from headrace.testing.host import BrokerFailed

    try:
        broker = Broker(**arguments)
    except InvalidConfig as error:
        pytest.fail(f"headrace_broker: {error.message}", pytrace=False)
    except TypeError as error:  # an argument that it does not take
        pytest.fail(f"headrace_broker: {error}", pytrace=False)
    try:
        broker.start()
    except BrokerFailed as error:
        pytest.fail(f"headrace_broker: {error}", pytrace=False)
    try:
        yield broker
    finally:
        if broker.log:
            print(broker.log)  # pytest shows it with a test that failed
        broker.close()
