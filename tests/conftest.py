"""Fixtures of all tests: real servers on free loopback ports, ended by pid; Apache Kafka where Java and Maven are."""

import faulthandler
import gc
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from tests import rotation
from tests.conformance import report
from tests.examples import QUICK, a_few_cases, examples, is_in_this_part
from tests.garbage import collect_if_large
from tests.harness import HeadraceServer, free_ports, tail
from tests.peers import kafka
from tests.spark import shared_classes
from tests.zookeeper_server import ZooKeeperServer
from tests.zookeeper_server import missing_tools as missing_zookeeper

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile(
    "untimed", max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

StartHeadrace = Callable[..., HeadraceServer]


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on."""
    return free_ports(1)[0]


@pytest.fixture
def headrace_server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartHeadrace]:
    """Starts `headrace serve` in a subprocess: `headrace_server(settings={...}, data=...)`; ended after the test."""
    servers: list[HeadraceServer] = []

    def start(data: Path | None = None, settings: dict[str, str] | None = None, **more: object) -> HeadraceServer:
        number = len(servers)
        directory = data or tmp_path / (f"data-{number}" if number else "data")
        server = HeadraceServer(directory, settings or {}, **more)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()
    if getattr(request.node, "failed", False):
        for server in servers:
            print(f"---- {server.data}: stderr ----\n{tail(server.stderr_file)}")


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka broker of this session's own."""
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    with kafka.run_kafka(tmp_path_factory.mktemp("apache-kafka"), is_kept=False) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that no test stops; each uses a chroot of its own."""
    if reason := missing_zookeeper():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


MEMORY = Path("/dev/shm")
MEMORY_BYTES_FREE_MIN = 4 << 30
GARBAGE_AFTER_ALLOCATIONS = 20_000


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    """All workers of a run have one seed, and Hypothesis draws with it too: what passed today passes again today.

    `make quick` waits for no disk: its temporary files lie in memory.
    """
    gc.disable()  # until all tests are collected
    rotation.settle()
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(rotation.seed())
    if QUICK and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_FREE_MIN:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


_ALL_SLOW = re.compile(r"^pytestmark = (?:\[[^\]]*?|.*?)\bmark\.(?:slow|spark|peer|soak)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` imports no files of which all tests are slow, and each of its processes has a part of the others."""
    if not QUICK or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    is_ours = is_in_this_part(str(collection_path.relative_to(config.rootpath)))
    return None if is_ours and not _ALL_SLOW.search(collection_path.read_text()) else True


SECOND_TRIES = ("peer", "spark", "cluster")
"""Markers of tests in which programs of others, or several brokers, are watched from outside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--second-tries`, which only `make test` gives."""
    tries = f"run a failed test again, once, if it is marked {', '.join(SECOND_TRIES)}"
    parser.addoption("--second-tries", action="store_true", help=tries)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """What shares an expensive server is marked as slow and runs in one worker, so that the server starts once.

    Modules with servers of their own have groups of their own, so that not one worker has all that asks Apache Kafka.
    A broker that a test has for itself is slow as well: it takes half a second of CPU time to start and stop.
    Modules with slow tests come first, and before them the tests that start Spark for themselves, which take longest:
    no worker shall have a long one left when the others are done.
    """
    for item in items:
        folders = item.path.relative_to(config.rootpath).parts
        if "cluster" in folders:
            item.add_marker(pytest.mark.cluster)
        fixtures = getattr(item, "fixturenames", ())
        if "headrace_server" in fixtures:
            item.add_marker(pytest.mark.slow)
        if "zookeeper_server" in fixtures:
            item.add_marker(pytest.mark.peer)
        if "apache_kafka" in fixtures or ("differential" in folders and "brokers" in fixtures):
            item.add_marker(pytest.mark.peer)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("apache-kafka"))
        elif {"spark", "broker"} & set(fixtures) and item.get_closest_marker("spark"):  # the shared session or server
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("xdist_group") is None and _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group("-".join([*folders[1:-1], item.path.stem])))
        if config.getoption("--second-tries") and any(item.get_closest_marker(name) for name in SECOND_TRIES):
            item.add_marker(pytest.mark.flaky(reruns=1))
    yield  # pytest takes out what is not asked for
    if QUICK:
        few = a_few_cases(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in few])
        items[:] = [item for item in items if item in few]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    alone = {item for item in items if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group")}
    items.sort(key=lambda item: (item not in alone, item.path not in slow))  # the order is random otherwise


def _shares_with_its_module(item: pytest.Item) -> bool:
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - nothing public tells a fixture's scope
    return any(found[-1].scope == "module" for name, found in fixtures.items() if not name.startswith("_"))


def pytest_collection_finish() -> None:
    """The tests themselves, millions of objects, are never garbage: looking for some there took a fifth of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER_ALLOCATIONS, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """After each test."""
    collect_if_large()


HANG_SECONDS = 1_200.0
WATCH_AGAIN_AFTER_SECONDS = 30.0
_watched_since = -WATCH_AGAIN_AFTER_SECONDS


def _watch(config: pytest.Config) -> None:
    """A fixture that hangs has no timeout, so all threads say where they are. That can end the process, so it must not
    meet a fixture that is only slow: some run for ten minutes on a slow machine.

    `faulthandler_timeout` has a thread for each test. To wait for its end costs milliseconds on a busy machine.
    """
    global _watched_since
    now = time.monotonic()
    if now - _watched_since >= WATCH_AGAIN_AFTER_SECONDS:
        _watched_since = now
        faulthandler.dump_traceback_later(HANG_SECONDS, file=config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Before pytest closes the file."""
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spark starts in half the time."""
    _watch(item.config)
    if item.get_closest_marker("spark"):
        shared_classes.use()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Lets fixtures see that their test failed."""
    result: pytest.TestReport = yield  # type: ignore[assignment]
    if result.when == "call":
        item.failed = result.failed  # type: ignore[attr-defined]
    return result  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the conformance grid, when any of it ran, and what passed only at its second try."""
    report.print_grid(terminalreporter)
    terminalreporter.write_line(f"{rotation.VARIABLE}={rotation.seed()}")
    again = sorted(terminalreporter.stats.get("rerun", []), key=lambda tried: tried.nodeid)
    if again:
        terminalreporter.section("tried a second time")
    for tried in again:
        terminalreporter.write_line(tried.nodeid)
        for line in [*tried.capstdout.splitlines(), *tried.longreprtext.splitlines()]:
            if "SEED" in line or line.startswith("E "):
                terminalreporter.write_line(f"    {line}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """A peer or a client that is installed and was skipped all the same fails the run. The last lines name it."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    wrong = report.wrong_skips(terminal) if terminal is not None else []
    if wrong:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield
    if terminal is not None and wrong:
        terminal.write_line(f"failed: skipped although what they need is here: {', '.join(wrong)}", red=True)
