"""Fixtures of all tests: real servers on free loopback ports, ended by pid; Apache Kafka where Java and Maven are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance import report
from tests.harness import HeadraceServer, free_ports, tail
from tests.peers import kafka

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    with kafka.run_kafka(tmp_path_factory.mktemp("apache-kafka")) as bootstrap:
        yield bootstrap


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares an expensive server is marked as slow and runs in one worker, so that the server starts once."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "apache_kafka" in fixtures:
            item.add_marker(pytest.mark.peer)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("apache-kafka"))
        elif item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


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
    again = sorted(terminalreporter.stats.get("rerun", []), key=lambda tried: tried.nodeid)
    if again:
        terminalreporter.section("tried a second time")
    for tried in again:
        terminalreporter.write_line(tried.nodeid)
        for line in [*tried.capstdout.splitlines(), *tried.longreprtext.splitlines()]:
            if "SEED" in line or line.startswith("E "):
                terminalreporter.write_line(f"    {line}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A peer or a client that is installed and was skipped all the same fails the run."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and (wrong := report.wrong_skips(terminal)):
        terminal.write_line("")
        terminal.write_line(f"skipped although what they need is here: {', '.join(wrong)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
