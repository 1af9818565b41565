"""Our regular expressions beside RE2/J, which Apache Kafka uses: the same are valid, and match the same names."""

import random
import subprocess
from pathlib import Path

import pytest

from headrace.coordinators.groups.consumer.regular_expressions import check_regular_expression, resolve
from headrace.errors import KafkaError
from tests.peers import kafka

SOURCE = Path(__file__).parent / "java" / "Regex.java"
PIECES = [
    *(
        "a",
        "b",
        "orders",
        "-",
        "_",
        "\\.",
        ".",
        ".*",
        ".+",
        "[a-c]",
        "[^a]",
        "[0-9]+",
        "\\d",
        "\\w*",
        "(a|b)",
        "(?:x)?",
    ),
    *(
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "{1,3}",
        "(",
        ")",
        "[",
        "]",
        "\\",
        "^",
        "$",
        "(?i)",
        "\\b",
        "[[:alpha:]]",
        "\\pL",
        "(?=a)",
    ),
    *("(?P<n>a)", "\\1", "a{0}", "??", "\\Qa.b\\E", "\\x41", "z-a", "[z-a]", "{,2}"),
]
NAMES = ["", "a", "b", "ab", "aab", "orders", "orders-1", "a.b", "A", "abc", "x", "12", "a-b_c", "aaa", "b0"]

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools())),
]


def ours(expression: str) -> str:
    try:
        check_regular_expression(expression)
    except KafkaError as error:
        return "! " + error.message.removesuffix(".").partition("` is not a valid regular expression: ")[2]
    matched = resolve([expression], NAMES)[expression]
    return "".join(str(int(name in matched)) for name in NAMES)


def test_the_same_expressions_are_valid_and_match_the_same_names() -> None:
    rng = random.Random(848)
    expressions = [*PIECES, *("".join(rng.choices(PIECES, k=rng.randrange(1, 6))) for _ in range(3000))]
    expressions = [each for each in expressions if each.count("(?P<n>") < 2]  # RE2 accepts a second group of the name
    lines = "".join("\t".join([expression, *NAMES]) + "\n" for expression in expressions)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars()}/*", str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    different = {
        expression: (mine, theirs)
        for expression, mine, theirs in zip(expressions, map(ours, expressions), done.stdout.splitlines(), strict=True)
        if mine != theirs.replace("regexp/syntax: internal error", "unexpected )")
    }
    assert not different, len(different)
