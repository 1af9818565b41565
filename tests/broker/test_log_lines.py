"""The broker's log: fields, JSON, and names that would like to be lines of their own."""

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.log_lines import JsonFormatter, LineFormatter
from headrace.errors import ErrorCode
from tests.asker import Asker
from tests.broker.test_group_apis import SETTINGS, a_topic, join
from tests.conftest import StartHeadrace
from tests.harness import HeadraceServer


def written(formatter: logging.Formatter, message: str, *args: object, **fields: object) -> str:
    """What one event becomes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log = logging.Logger("headrace.test")
    log.addHandler(handler)
    log.info(message, *args, extra=fields, exc_info=sys.exc_info()[0] is not None)
    return stream.getvalue()


def test_fields_stand_behind_the_message() -> None:
    line = written(LineFormatter(), "a member %s", "joins", group="g", reason="two words", empty="", count=3)
    assert line.endswith('INFO headrace.test: a member joins group=g reason="two words" empty="" count=3\n')


def test_json_has_fields_beside_the_message() -> None:
    event = json.loads(written(JsonFormatter(), "a member joins", group="g\n", count=3, time="now"))
    assert event["message"] == "a member joins"
    assert (event["level"], event["logger"]) == ("info", "headrace.test")
    assert (event["group"], event["count"], event["time_"]) == ("g\n", 3, "now")
    assert event["time"].endswith("Z")


def test_a_name_cannot_forge_a_field() -> None:
    line = written(LineFormatter(), "joins", group='g" member="root', member="m=1")
    assert line.endswith('group="g\\" member=\\"root" member="m=1"\n')


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
@given(st.text(), st.text())
def test_any_text_is_one_printable_line(formatter: logging.Formatter, message: str, value: str) -> None:
    line = written(formatter, "%s", message, group=value)
    assert line.endswith("\n")
    assert line[:-1].isprintable()


def test_a_traceback_is_one_string_in_json() -> None:
    try:
        raise ValueError("why\nnot")
    except ValueError:
        event = json.loads(written(JsonFormatter(), "it failed"))
    assert event["exception"].endswith("ValueError: why\nnot")


def a_join_with_a_reason(server: HeadraceServer) -> None:
    a_topic(server.bootstrap)
    request = join("group\n2026-01-31 INFO forged")
    request.reason = "\x1b[2J because"
    assert Asker(server.bootstrap).ask(request, 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_the_broker_logs_json_when_told_to(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS | {"headrace.log.format": "json"})
    a_join_with_a_reason(server)
    server.stop()
    events = [json.loads(line) for line in server.stderr_file.read_text().splitlines()]
    joins = [event for event in events if event["message"] == "a member joins"]
    assert [(event["group"], event["reason"]) for event in joins] == [
        ("group\n2026-01-31 INFO forged", "\x1b[2J because")
    ]


def test_the_broker_logs_lines_otherwise_and_only_what_is_important_enough(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    a_join_with_a_reason(server)
    server.stop()
    text = server.stderr_file.read_text()
    assert 'group="group\\n2026-01-31 INFO forged"' in text
    assert 'reason="\\x1b[2J because"' in text
    quiet = headrace_server(settings=SETTINGS | {"headrace.log.level": "warning"})
    a_join_with_a_reason(quiet)
    quiet.stop()
    assert "a member joins" not in quiet.stderr_file.read_text()
