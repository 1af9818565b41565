"""What is printed cannot move the cursor, hide or turn around, and is what was meant."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.output import as_json, print_table
from headrace.cli.places import BEGINNING, END, StartPlace, parse_place
from headrace.cli.shared import UsageProblem
from headrace.printable import printable

HARMFUL = ["\x1b[2J", "a\nb", "a\rb", "\u202eevil", "\u200b", "\x9b31m", "\u2028", "\ud800"]


@pytest.mark.parametrize("text", HARMFUL)
def test_harmful_characters_are_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and "\\" in shown
    assert as_json([text]).isprintable()


@given(st.text())
def test_nothing_unprintable_gets_through_and_json_stays_the_same_value(text: str) -> None:
    assert printable(text).isprintable()
    assert json.loads(as_json([text])) == [text]


@pytest.mark.parametrize("text", ["plain-topic_1.x", "Grüße", "日本語", "a b"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_tables_line_up_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "COUNT"], [("a", 1), ("long-name", 100), ("\x1b", "-")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       COUNT",
        "a              1",
        "long-name    100",
        "\\x1b           -",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("17", StartPlace(17, -1)),
        ("-5", StartPlace(-5, -1)),
        ("@1000", StartPlace(None, 1000)),
        ("@2013-01-01T05:00:00Z", StartPlace(None, 1357016400000)),
        ("@2013-01-01T05:00:00.5+01:00", StartPlace(None, 1357012800500)),
    ],
)
def test_places_are_read(text: str, place: StartPlace) -> None:
    assert parse_place("--from", text) == place


@pytest.mark.parametrize("text", ["", "middle", "1.5", "@", "@yesterday", "@99999999-01-01"])
def test_what_is_no_place_names_the_option(text: str) -> None:
    with pytest.raises(UsageProblem, match="--from"):
        parse_place("--from", text)
