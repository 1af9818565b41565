"""Generates the tables of clients from the result of the conformance grid.

`make grid` runs the grid and writes tests/conformance/grid.json. docs/clients.md has the full result: a table of
current clients and one of old clients, with a row for each case, a column for each client, and a numbered reason for
each case that a client does not support. README.md has one row for each client.
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
    """One client: the outcome of each case, or the reason why a case did not run."""

    title: str
    outcomes: dict[str, str]
    gaps: dict[str, str]


def clients_page() -> str:
    """docs/clients.md with new tables."""
    text = (ROOT / "docs" / "clients.md").read_text()
    grid = json.loads(GRID.read_text())
    for part, markers in TABLES.items():
        text = _between(text, *markers, client_table(grid[part] if part else grid))
    return text


def readme_page() -> str:
    """README.md with a new row for each client."""
    grid = json.loads(GRID.read_text())
    text = (ROOT / "README.md").read_text()
    return _between(text, *TABLES[""], short_table(grid["clients"]))


def _between(text: str, begins: str, ends: str, table: str) -> str:
    """`text` with `table` between two markers. Keeps the rest of the first marker's line."""
    before, begin, rest = text.partition(begins)
    comment, _, _ = rest.partition("\n")
    _, end, after = rest.partition(ends)
    return f"{before}{begin}{comment}\n{table}\n{end}{after}"


def short_table(clients: dict[str, dict[str, object]]) -> str:
    """A row for each client: the passed cases out of those that its interface allows, and its missing features."""
    lines = ["| client | cases passed | not offered by the client |", "|---|:-:|---|"]
    for name, client in clients.items():
        column = _column(name, client)
        asked = {case: outcome for case, outcome in column.outcomes.items() if case not in column.gaps}
        passed = sum(outcome == "passed" for outcome in asked.values())
        lines.append(f"| {column.title} | {passed} of {len(asked)} | {len(column.gaps) or '–'} |")
    return "\n".join(lines)


def client_table(grid: dict[str, Any]) -> str:
    """One table, and the reasons for its gaps."""
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
