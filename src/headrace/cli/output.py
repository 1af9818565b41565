"""Output of commands: JSON for programs, tables for people, both with names escaped (`headrace.printable`).

Values printed by `consume` are escaped on a terminal only; into a file or a pipe they go byte for byte.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from headrace.printable import printable

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


def print_json(value: Json) -> None:
    """Prints a JSON document on one line. Characters that `printable` would escape are escaped in JSON's way."""
    sys.stdout.write(as_json(value) + "\n")


def as_json(value: Json) -> str:
    """The document that `print_json` prints."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints columns of text, numbers aligned right. Columns are as wide as their content."""
    # Not rich's Table: importing it takes half as long again as `headrace topic list` takes altogether.
    shown = [[printable(str(cell)) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in shown]) for i in range(len(headings))]
    widths = [max(map(len, [heading, *(row[i] for row in shown)])) for i, heading in enumerate(headings)]
    for line in [list(headings), *shown]:
        cells = [cell.rjust(w) if n else cell.ljust(w) for cell, w, n in zip(line, widths, numeric, strict=True)]
        print("  ".join(cells).rstrip())


def _is_numeric(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell.lstrip("-").isdecimal() or cell == "-" for cell in cells)


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def complain(message: str) -> None:
    """Prints one line to stderr."""
    print(f"headrace: {printable(message)}", file=sys.stderr)
