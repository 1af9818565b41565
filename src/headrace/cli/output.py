"""What commands print: JSON for programs, tables for people, and text that cannot harm a terminal.

Names come from other people. What could move the cursor, hide text or turn its direction (control characters, line
ends, bidirectional marks) is shown escaped, as Python writes it. Values printed by `consume` are escaped in the same
way on a terminal only; into a file or a pipe they go byte for byte.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that a terminal would not simply show, but for those in `keep`, escaped."""
    if text.isprintable():
        return text
    return "".join(_shown(character, keep) for character in text)


def _shown(character: str, keep: str) -> str:
    if character.isprintable() or character in keep:
        return character
    return character.encode("unicode_escape").decode("ascii")


def print_json(value: Json) -> None:
    """One JSON document on one line; not ASCII-only, but with what `printable` escapes escaped as JSON does."""
    sys.stdout.write(as_json(value) + "\n")


def as_json(value: Json) -> str:
    """The document that `print_json` prints."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns of text, numbers to the right; wide enough for their content, whatever the terminal."""
    shown = [[printable(str(cell)) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in shown]) for i in range(len(headings))]
    widths = [max(map(len, [heading, *(row[i] for row in shown)])) for i, heading in enumerate(headings)]
    for line in [list(headings), *shown]:
        cells = [cell.rjust(w) if n else cell.ljust(w) for cell, w, n in zip(line, widths, numeric, strict=True)]
        print("  ".join(cells).rstrip())


def _is_numeric(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell.lstrip("-").isdecimal() or cell == "-" for cell in cells)


def complain(message: str) -> None:
    """One line on stderr."""
    print(f"headrace: {printable(message)}", file=sys.stderr)
