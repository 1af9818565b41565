"""What a start imports: a start is mostly imports, so a heavy one must not come back unseen. No time is measured here;
benchmarks/broker/startup.py does that, with a budget for each package.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import child_environment

pytestmark = pytest.mark.slow  # processes of its own

HEAVY = {
    "bz2", "click", "cramjam", "csv", "decimal", "difflib", "email", "http", "importlib.metadata", "kazoo", "lzma",
    "multiprocessing", "numpy", "platform", "pyarrow", "pydantic", "pyspark", "random", "rich", "shutil", "tempfile",
    "typer", "unittest", "urllib.request", "uuid", "xml", "zoneinfo",
}  # fmt: skip
NOT_YET = {
    "headrace.broker.kafka07", "headrace.cli.app", "headrace.client", "headrace.config.apache_kafka",
    "headrace.config.explanation",
    "headrace.metastore.zookeeper.connection", "headrace.demo", "headrace.migrate", "headrace.spark",
    "headrace.testing",
}  # fmt: skip
MODULES_MAX = 560
HEADRACE_MODULES_MAX = 440
"""A tenth above what there were when this was written. What a broker alone never needs can be imported when it does."""

OF_TOPIC_LIST = ("headrace.cli", "headrace.client", "headrace.network", "headrace.protocol")
NOUNS = {"headrace.version", "headrace", "headrace.errors", "headrace.limits", "headrace.printable", "headrace.types"}


def printed(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=child_environment(), check=True
    )
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def at_ready(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a broker that is ready."""
    data = tmp_path_factory.mktemp("startup") / "data"
    return set(printed(str(Path(__file__).with_name("imported.py")), str(data)))


def test_a_broker_is_ready_without_any_heavy_module(at_ready: set[str]) -> None:
    assert "headrace.broker.assembly" in at_ready
    assert at_ready & HEAVY == set()


def test_a_broker_is_ready_without_the_modules_of_other_work(at_ready: set[str]) -> None:
    assert at_ready & NOT_YET == set()


def test_a_broker_is_ready_with_no_more_modules_than_its_budget(at_ready: set[str]) -> None:
    assert len([name for name in at_ready if name.startswith("headrace")]) <= HEADRACE_MODULES_MAX
    assert len(at_ready) <= MODULES_MAX


def test_a_command_imports_its_own_module_and_the_client() -> None:
    script = "import sys, headrace.cli.app as a; a.make_app(['topic']); print(*sys.modules, sep='\\n')"
    own = {name for name in printed("-c", script) if name.startswith("headrace")} - NOUNS
    assert {name for name in own if not name.startswith(OF_TOPIC_LIST)} == set()
    assert {name for name in own if name.startswith("headrace.cli.")} == {
        *(
            f"headrace.cli.{each}"
            for each in ("access", "app", "commands", "output", "places", "shared", "topic", "topic_move")
        )
    }


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_no_command(argument: str) -> None:
    script = f"import sys, headrace.cli.main as a; a.main(['{argument}']); print('', *sys.modules, sep='\\n')"
    found = set(printed("-c", script))
    assert {name for name in found if name.startswith("headrace") and " " not in name} <= {
        "headrace", "headrace.version", "headrace.cli", "headrace.cli.main", "headrace.cli.commands",
    }  # fmt: skip
    assert found & {"typer", "asyncio", "logging"} == set()
