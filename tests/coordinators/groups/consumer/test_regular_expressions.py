"""Subscriptions by regular expression: valid ones, the topics that they match, and when they are resolved anew."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.coordinator_host.regex_resolver import RegexResolver
from headrace.coordinators.groups.consumer.regular_expressions import (
    NEVER_RESOLVED,
    REFRESH_MIN_INTERVAL_MS,
    ResolvedRegularExpression,
    check_regular_expression,
    is_refresh_due,
    resolve,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import REGULAR_EXPRESSION_CHARS_MAX

BOMB = "(a?){500}" * 8 + "x"
"""Takes a backtracking matcher for ever, and RE2 some ten milliseconds for each long name."""


def test_an_expression_matches_whole_names() -> None:
    names = ["orders", "orders-eu", "eu-orders", "Orders", ""]
    assert resolve(["orders", "orders.*", ".*|x", "(?i)orders", "order"], names) == {
        "orders": {"orders"},
        "orders.*": {"orders", "orders-eu"},
        ".*|x": set(names),
        "(?i)orders": {"orders", "Orders"},
        "order": frozenset(),
    }


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a{2000}", "invalid repeat count"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("\\8", "invalid escape sequence"),
    ],
)
def test_an_invalid_expression_is_refused_in_kafkas_words(text: str, description: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_regular_expression(text)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert raised.value.message == f"SubscribedTopicRegex `{text}` is not a valid regular expression: {description}."
    assert resolve([text], ["a"]) == {text: frozenset()}


def test_an_expression_that_is_too_long_or_compiles_to_too_much_is_refused() -> None:
    for text in ("a" * (REGULAR_EXPRESSION_CHARS_MAX + 1), "a{1000}" * 1000):
        with pytest.raises(KafkaError, match="SubscribedTopicRegex") as raised:
            check_regular_expression(text)
        assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    check_regular_expression("a" * REGULAR_EXPRESSION_CHARS_MAX)


@given(text=st.text(max_size=40) | st.text("()[]{}*+?|\\^$a1,:<>P=!-", max_size=20))
def test_any_text_is_refused_or_can_be_matched(text: str) -> None:
    try:
        check_regular_expression(text)
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert resolve([text], ["a"]) == {text: frozenset()}
    else:
        assert resolve([text], ["a"]).keys() == {text}


SETTLED = {"a": ResolvedRegularExpression(frozenset(), 7, 100_000)}


@pytest.mark.parametrize(
    ("what", "subscribed", "version", "after_ms", "expected"),
    [
        ("nothing is subscribed", (), 9, 10**9, False),
        ("nothing changed", ("a",), 7, 20_000, False),
        ("a new expression", ("a", "b"), 7, 20_000, True),
        ("a new expression, soon after another", ("a", "b"), 7, REFRESH_MIN_INTERVAL_MS, False),
        ("a new topic", ("a",), 8, 20_000, True),
        ("a new topic, soon after another", ("a",), 8, REFRESH_MIN_INTERVAL_MS, False),
        ("a new topic, late enough", ("a",), 8, REFRESH_MIN_INTERVAL_MS + 1, True),
        ("the refresh interval", ("a",), 7, 60_000, False),
        ("the refresh interval has passed", ("a",), 7, 60_001, True),
    ],
)
def test_expressions_are_resolved_anew(
    what: str, subscribed: tuple[str, ...], version: int, after_ms: int, expected: bool
) -> None:
    now_ms = SETTLED["a"].timestamp_ms + after_ms
    due = is_refresh_due(subscribed, SETTLED, newest_topics_version=version, refresh_interval_ms=60_000, now_ms=now_ms)
    assert due is expected, what


def test_expressions_are_resolved_at_once_if_none_was_and_after_a_coordinator_was_loaded() -> None:
    assert is_refresh_due(["a"], {}, newest_topics_version=0, refresh_interval_ms=60_000, now_ms=0)
    loaded = {"a": ResolvedRegularExpression(frozenset({"t"}), NEVER_RESOLVED, 0)}
    assert is_refresh_due(["a"], loaded, newest_topics_version=0, refresh_interval_ms=60_000, now_ms=20_000)


@pytest.mark.slow
async def test_the_loop_runs_on_while_a_large_expression_is_matched() -> None:
    check_regular_expression(BOMB)
    resolver = RegexResolver(asyncio.get_running_loop())
    names = [f"{'a' * 240}-{number}" for number in range(20)]
    turns = 0
    resolving = asyncio.ensure_future(resolver.resolve([BOMB, ".*"], names, lambda name: not name.endswith("-7")))
    until = time.monotonic() + 60
    while not resolving.done() and time.monotonic() < until:
        await asyncio.sleep(0)
        turns += 1
    assert await resolving == {BOMB: frozenset(), ".*": frozenset(names) - {names[7]}}
    assert turns > 100, "the loop stood still"
    resolver.close()
