"""What users import from `headrace.client`, and what that costs those who import something else."""

import subprocess
import sys

import pytest

import headrace.client
from tests.harness import child_environment


@pytest.mark.parametrize("name", headrace.client.__all__)
def test_each_public_name_is_the_class_or_function_of_that_name(name: str) -> None:
    found = getattr(headrace.client, name)
    assert callable(found) and found.__name__ == name
    assert name in dir(headrace.client)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'headrace\.client' has no attribute 'Consumers'"):
        headrace.client.Consumers  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_none_of_its_modules() -> None:
    code = "import sys, headrace.client; print(*(name for name in sys.modules if name.startswith('headrace')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(run.stdout.split()) == ["headrace", "headrace.client", "headrace.version"]


HEAVY = {
    "ast", "asyncio", "dataclasses", "decimal", "difflib", "email", "fcntl", "hmac", "http", "importlib.metadata",
    "inspect", "json", "pathlib", "pyarrow", "ssl", "subprocess", "tempfile", "urllib.parse", "uuid", "zoneinfo",
}  # fmt: skip
"""Modules of Python's library, and others, that cost an import a millisecond or more."""
NOT_YET = {
    "headrace.broker", "headrace.cli", "headrace.client.aio", "headrace.client.consumer.arrow",
    "headrace.client.consumer.assignors.by_name", "headrace.client.consumer.membership",
    "headrace.client.consumer.heartbeat_session", "headrace.client.event_producer", "headrace.client.metrics.telemetry",
    "headrace.client.producer.transactions", "headrace.client.security.client_options",
    "headrace.client.serializers.registry", "headrace.client.share", "headrace.client.tables", "headrace.config",
    "headrace.records.legacy.message_columns",
}  # fmt: skip
"""Modules that few programs use."""
MODULES_MAX = 186
HEADRACE_MODULES_MAX = 124
"""A twentieth above what there were when this was written."""


def test_producer_and_consumer_are_imported_without_any_heavy_module_and_within_a_budget() -> None:
    """No time is measured here; benchmarks/client/one_in_flight.py does that."""
    code = "import sys; had = {*sys.modules}; from headrace import Consumer, Producer; print(*sys.modules.keys() - had)"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=child_environment())
    found = set(run.stdout.split())
    assert {"headrace.client.producer.producer", "headrace.client.consumer.consumer"} <= found
    assert found & (HEAVY | NOT_YET) == set()
    assert len([name for name in found if name.startswith("headrace")]) <= HEADRACE_MODULES_MAX
    assert len(found) <= MODULES_MAX
