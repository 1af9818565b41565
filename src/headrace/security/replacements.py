"""The replacement of a match as Java's `Matcher.replaceAll` fills it: `$1` is a group, a backslash quotes.

A number of several digits is the longest one that is the number of a group. Source: java.util.regex.Matcher.
"""

import re
from collections.abc import Callable
from typing import Protocol


class Match(Protocol):
    """A match of RE2, or of `re`."""

    def group(self, number: int) -> str | None:
        """What a group has matched."""


class Pattern(Protocol):
    """A compiled pattern, of RE2."""

    groups: int

    def fullmatch(self, text: str) -> Match | None: ...

    def sub(self, replacement: Callable[[Match], str], text: str, count: int = 0) -> str: ...


def filled(replacement: str, groups: int, match: Match) -> str:
    """The replacement with its groups. A `$` before a group that there is not is itself."""
    out, at = [], 0
    while at < len(replacement):
        character = replacement[at]
        if character == "\\" and at + 1 < len(replacement):
            out.append(replacement[at + 1])
            at += 2
        elif character == "$" and (number := _group(replacement[at + 1 :], groups)):
            out.append(match.group(int(number)) or "")
            at += 1 + len(number)
        else:
            out.append(character)
            at += 1
    return "".join(out)


def illegal_part(replacement: str, groups: int) -> str:
    """The part at which Java throws: a `$` before no group, or a backslash at the end; '' if there is none."""
    for found in re.finditer(r"\\(.?)|\$", replacement, re.DOTALL):
        if found[0] == "\\" or (found[0] == "$" and not _group(replacement[found.end() :], groups)):
            return replacement[found.start() :]
    return ""


def _group(text: str, groups: int) -> str:
    """The digits at the beginning of the text that are the number of a group; empty if there is none."""
    digits = re.match(r"[0-9]{0,3}", text)
    found = digits[0] if digits is not None else ""
    while found and int(found) > groups:
        found = found[:-1]
    return found
