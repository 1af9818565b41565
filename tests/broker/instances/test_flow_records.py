"""What the flow control keeps a record of: who was held the longest, and lines in the log."""

import logging

import pytest

from headrace.broker.instances.flow_log_lines import AGAIN_AFTER_S, ENDS_AFTER_S, LINES_MAX, FlowLogLines
from headrace.broker.instances.flow_tops import KEYS_MAX, NAME_CHARS_MAX, Tops
from headrace.instances.flow.meter import Metered

HELD = Metered(100.0, 0.5)


def test_the_largest_are_kept_whatever_else_comes() -> None:
    tops = Tops()
    for number in range(5000):
        tops.add(f"once-{number}", 0.01)
        tops.add(f"large-{number % 5}", 1.0 + number % 5)
    assert [name for name, _ in tops.largest(5)] == [f"large-{each}" for each in (4, 3, 2, 1, 0)]
    assert tops.largest(1)[0][1] == pytest.approx(5000.0, rel=0.01)
    assert len(tops) == KEYS_MAX


def test_a_long_name_is_cut() -> None:
    tops = Tops()
    tops.add("x" * 100_000, 1.0)
    assert tops.largest(1) == [("x" * NAME_CHARS_MAX, 1.0)]


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def test_throttling_is_told_when_it_begins_and_when_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    lines = FlowLogLines()
    with caplog.at_level(logging.INFO):
        for second in range(4):
            lines.metered("acme", "in", HELD, 50.0, 150.0, float(second))
            lines.tick(float(second))
        assert _lines(caplog) == [
            "instance acme is throttled in: this broker may take 50 bytes/s of its 150; see headrace instance why acme"
        ]
        lines.tick(3.0 + ENDS_AFTER_S)
    assert _lines(caplog)[1:] == ["instance acme is no longer throttled in: it was for 2.0 s in 3 s"]


def test_throttling_on_and_off_has_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    lines = FlowLogLines()
    with caplog.at_level(logging.INFO):
        for minute in range(3):
            for turn in range(3):
                now = minute * (AGAIN_AFTER_S + 1) + turn * (ENDS_AFTER_S + 1)
                lines.metered("acme", "in", HELD, 50.0, 150.0, now)
                lines.tick(now + ENDS_AFTER_S)
    assert sum("is throttled" in each for each in _lines(caplog)) == 3


def test_many_instances_together_have_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = FlowLogLines()
    with caplog.at_level(logging.INFO):
        for number in range(1000):
            lines.metered(f"i{number}", "in", HELD, 50.0, 150.0, 1.0)
        assert len(_lines(caplog)) == LINES_MAX
        lines.metered("late", "in", HELD, 50.0, 150.0, 2.0 + AGAIN_AFTER_S)
    assert f"{1000 - LINES_MAX} more instances were throttled in the last minute" in _lines(caplog)
