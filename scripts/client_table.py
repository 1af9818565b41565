"""README's tables of what works with which client, from the result of the conformance grid.

`make grid` runs the grid and writes tests/conformance/grid.json; this puts it between the markers in README.md: one
table of clients of today, one of those that are old.
A case is a line, a client a column; what a client cannot do has a number, and its reason below the table.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
GRID = ROOT / "tests" / "conformance" / "grid.json"
TABLES = {
    "": ("<!-- client table", "<!-- end of client table -->"),
    "old": ("<!-- table of old clients", "<!-- end of table of old clients -->"),
}
"""Markers by the part of the result: the whole, or one inside it."""
MARKS = {"passed": "✓", "failed": "✗", "error": "✗", "skipped": "not run"}


class Column(NamedTuple):
    """One client: case to outcome, and case to the reason why there is none."""

    title: str
    outcomes: dict[str, str]
    gaps: dict[str, str]


def readme_page() -> str:
    """README.md with fresh tables of clients."""
    text = (ROOT / "README.md").read_text()
    grid = json.loads(GRID.read_text())
    for part, (begins, ends) in TABLES.items():
        before, begin, rest = text.partition(begins)
        comment, _, _ = rest.partition("\n")
        _, end, after = rest.partition(ends)
        text = f"{before}{begin}{comment}\n{client_table(grid[part] if part else grid)}\n{end}{after}"
    return text


def client_table(grid: dict[str, Any]) -> str:
    """One table and the reasons of its gaps."""
    columns = [_column(name, client) for name, client in grid["clients"].items()]
    reasons = list(dict.fromkeys(reason for column in columns for reason in column.gaps.values()))
    lines = [
        "| | " + " | ".join(column.title for column in columns) + " |",
        "|---|" + ":-:|" * len(columns),
        *(
            f"| {title} | " + " | ".join(_cell(column, case, reasons) for column in columns) + " |"
            for case, title in grid["cases"].items()
        ),
        "",
        *(f"<sup>{number}</sup> the client {reason}  " for number, reason in enumerate(reasons, 1)),
    ]
    return "\n".join(lines)


def _column(name: str, client: dict[str, object]) -> Column:
    version = str(client["version"])
    title = name if version in name or " as " in name else f"{name} {version}"
    outcomes, gaps = client["outcomes"], client["gaps"]
    assert isinstance(outcomes, dict)
    assert isinstance(gaps, dict)
    return Column(title.strip(), outcomes, gaps)


def _cell(column: Column, case: str, reasons: list[str]) -> str:
    if case in column.gaps:
        return f"<sup>{reasons.index(column.gaps[case]) + 1}</sup>"
    return MARKS[column.outcomes.get(case, "skipped")]
