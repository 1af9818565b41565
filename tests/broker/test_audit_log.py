"""What clients are refused is recorded, in lines that nobody can forge or flood."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.log_lines import LineFormatter
from headrace.broker.security.audit import LOGGER, AuditLog
from headrace.errors import ErrorCode
from headrace.limits import AUDIT_LINES_PER_CLIENT_MAX, AUDIT_LINES_PER_SECOND_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, RequestOrigin, ResourceType
from tests.asker import Asker
from tests.broker.acl_requests import AUTHORIZED, rule, stored_before_start
from tests.broker.test_acls import produced
from tests.eventually import eventually
from tests.harness import HeadraceServer

ALICE = RequestOrigin("User:alice", "10.0.0.7", "SASL", "a client")
BROKER_LOGGER, SET = 8, 0


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose timers are fired by hand."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[Callable[[], object]] = []

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        """Keeps the callback."""
        self._due.append(callback)
        return super().call_later(delay, lambda: None)

    def fire(self) -> None:
        """Fires all timers."""
        due, self._due = self._due, []
        for each in due:
            each()


@pytest.fixture
def loop() -> Iterator[Clock]:
    made = Clock()
    yield made
    made.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The lines as they are written, without their time."""
    found: list[str] = []
    formatter = LineFormatter()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(formatter.format(record).split(" ", 2)[2])

    handler = Handler()
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, LOGGER)
    yield found
    logger.removeHandler(handler)


def decide(audit: AuditLog, origin: RequestOrigin = ALICE, name: str = "t", *, is_permitted: bool = False) -> None:
    audit.decided(origin, ApiKey.PRODUCE, Operation.WRITE, ResourceType.TOPIC, name, is_permitted)


def test_a_denial_is_one_line_with_who_where_what(loop: Clock, lines: list[str]) -> None:
    audit = AuditLog(loop)
    decide(audit)
    decide(audit, is_permitted=True)
    assert lines == [
        "INFO kafka.authorizer.logger: denied principal=User:alice host=10.0.0.7 listener=SASL "
        'client="a client" operation=WRITE resource=TOPIC named=t request=PRODUCE'
    ]


def test_what_is_allowed_is_recorded_at_debug(loop: Clock, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(loop)
    noted = [audit.notes_permitted]
    caplog.set_level(logging.DEBUG, LOGGER)
    assert [*noted, audit.notes_permitted] == [False, True]
    decide(audit, is_permitted=True)
    assert lines[0].startswith("DEBUG kafka.authorizer.logger: allowed principal=User:alice")


def test_the_log_is_switched_off_by_its_level(loop: Clock, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    decide(AuditLog(loop))
    assert lines == []


@pytest.mark.parametrize("evil", ['x" denied principal=User:admin', "x\ndenied", "x\x1b[2J", "x\u202ey", "x\u2028y"])
def test_no_name_forges_a_field_or_a_line(loop: Clock, lines: list[str], evil: str) -> None:
    decide(AuditLog(loop), RequestOrigin(f"User:{evil}", "::1", "SASL", evil), evil)
    (line,) = lines
    assert line.isprintable()
    assert re.sub(r'"(\\.|[^"\\])*"', '""', line) == (
        'INFO kafka.authorizer.logger: denied principal="" host=::1 listener=SASL client="" operation=WRITE '
        'resource=TOPIC named="" request=PRODUCE'
    )


def test_the_longest_names_make_no_long_lines(loop: Clock, lines: list[str]) -> None:
    decide(AuditLog(loop), ALICE._replace(client_id="\x1b" * 30_000), "\x1b" * 30_000)
    assert len(lines[0]) < 2500 and lines[0].count("… (30000 characters)") == 2


def test_what_one_client_floods_is_counted_and_others_are_still_recorded(loop: Clock, lines: list[str]) -> None:
    audit = AuditLog(loop)
    for _ in range(1000):
        decide(audit)
    decide(audit, ALICE._replace(principal="User:bob"))
    assert len(lines) == AUDIT_LINES_PER_CLIENT_MAX + 1
    assert "principal=User:bob" in lines[-1]
    loop.fire()
    left_out = 1000 - AUDIT_LINES_PER_CLIENT_MAX
    assert lines[-1] == (
        f"INFO kafka.authorizer.logger: left out principal=User:alice host=10.0.0.7 decisions={left_out}"
    )
    decide(audit)
    assert "denied principal=User:alice" in lines[-1]


def test_ten_thousand_clients_flood_no_more_lines_than_the_limit(loop: Clock, lines: list[str]) -> None:
    audit = AuditLog(loop)
    for number in range(10_000):
        decide(audit, ALICE._replace(host=f"10.0.{number >> 8}.{number & 255}"))
    assert len(lines) == AUDIT_LINES_PER_SECOND_MAX
    audit.close()
    told = lines[AUDIT_LINES_PER_SECOND_MAX:]
    assert len(told) == AUDIT_LINES_PER_SECOND_MAX + 1
    assert sum(int(each.rpartition("=")[2]) for each in told) == 10_000 - AUDIT_LINES_PER_SECOND_MAX


@pytest.mark.slow
def test_a_broker_records_each_refused_request_and_its_level_is_changed_by_kafkas_request(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", {**AUTHORIZED, "super.users": "User:nobody"})
    stored_before_start(
        server,
        rule("Cluster:kafka-cluster", "All", "User:*"),
        rule("Topic:*", "Describe", "User:*"),
        rule("Topic:open", "Write", "User:*"),
    )
    server.start()
    denied = (
        "INFO kafka.authorizer.logger: denied principal=User:ANONYMOUS host=127.0.0.1 listener=PLAINTEXT client=asker "
        "operation=WRITE resource=TOPIC named=t request=PRODUCE"
    )
    allowed = "DEBUG kafka.authorizer.logger: allowed principal=User:ANONYMOUS"

    def logged(line: str) -> int:
        return server.stderr_file.read_text().count(line)

    try:
        with Asker(server.bootstrap) as asker:
            topic = m.CreateTopicsRequest.CreatableTopic(name="open", num_partitions=1, replication_factor=1)
            asker.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            eventually(lambda: produced(asker, "open") is ErrorCode.NONE, "a produce, whose decision is kept")
            for _ in range(2):
                produced(asker)
            eventually(lambda: logged(denied) == 2, "two lines", state=lambda: server.stderr_file.read_text())
            assert logged(allowed) == 0
            level = m.IncrementalAlterConfigsRequest.AlterableConfig(name=LOGGER, config_operation=SET, value="DEBUG")
            of = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=BROKER_LOGGER, resource_name="0", configs=[level]
            )
            answer = asker.ask(m.IncrementalAlterConfigsRequest(resources=[of]), 1)
            assert answer.responses[0].error_code == 0, answer
            assert produced(asker, "open") is ErrorCode.NONE
            expected = (
                f"{allowed} host=127.0.0.1 listener=PLAINTEXT client=asker operation=WRITE resource=TOPIC named=open"
            )
            eventually(lambda: logged(expected) == 1, "a line", state=lambda: server.stderr_file.read_text())
    finally:
        server.stop()
