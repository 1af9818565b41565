"""The grid that a run of the conformance tests ends with: client x case.

A cell is a test; its name comes with the test's report as the user properties `grid_row` and `grid_column`, so the
grid is whole under xdist too. With HEADRACE_GRID=FILE it is also written as JSON, from which README's table is made.
A skip of a client that is installed fails the run; what logs in by Kerberos needs its tools as well.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests import kerberos
from tests.conformance.cases import CASES
from tests.conformance.clients import CLIENTS
from tests.conformance.model import Client
from tests.conformance.old.old_cases import OLD_CASES
from tests.conformance.old.old_clients import OLD_CLIENTS
from tests.peers import kafka

OUTCOMES = ("passed", "failed", "skipped", "error")
MARKS = {"passed": "ok", "skipped": "skip", "failed": "FAIL", "error": "FAIL", "gap": "gap", "": "-"}
Grid = dict[str, dict[str, str]]


def print_grid(terminal: pytest.TerminalReporter) -> None:
    """Prints a table for each of the two grids, and writes them where HEADRACE_GRID says; nothing when neither ran."""
    grid = _grid(terminal)
    for title, cases, clients in (("client", CASES, CLIENTS), ("old client", OLD_CASES, OLD_CLIENTS)):
        if rows := [client for client in clients if client.name in grid]:
            _print_table(terminal, grid, f"conformance: case x {title}", cases, rows)
    if grid and (file := os.environ.get("HEADRACE_GRID")):
        document = {**_document(grid, CASES, CLIENTS), "old": _document(grid, OLD_CASES, OLD_CLIENTS)}
        Path(file).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _print_table(
    terminal: pytest.TerminalReporter, grid: Grid, title: str, cases: Iterable[str], rows: Sequence[Client]
) -> None:
    width = max(map(len, cases)) + 2
    terminal.section(title)
    terminal.write_line(" " * width + "  ".join(client.name for client in rows))
    for column in cases:
        marks = (_mark(grid, client, column).center(len(client.name)) for client in rows)
        terminal.write_line((column.ljust(width) + "  ".join(marks)).rstrip())
    for client in rows:
        for column, reason in client.gaps.items():
            terminal.write_line(f"gap: {client.name}, {column}: {reason}")


def wrong_skips(terminal: pytest.TerminalReporter) -> list[str]:
    """Tests that were skipped although what they need is installed."""
    return [each.nodeid for each in terminal.stats.get("skipped", []) if is_wrong_skip(each)]


def is_wrong_skip(report: pytest.TestReport) -> bool:
    """Whether what the test needs is installed: a cell of the grid needs its client, another peer Java and Maven.

    A cell may bear `peer` as well, for its second try. It needs its own client all the same.
    """
    if row := dict(getattr(report, "user_properties", ())).get("grid_row"):
        return any(client.name == row and client.missing() is None for client in (*CLIENTS, *OLD_CLIENTS))
    if "peer" not in report.keywords:
        return False
    reason = kerberos.missing_tools()
    return kafka.missing_tools() is None and not (reason and reason in report.longreprtext)


def _grid(terminal: pytest.TerminalReporter) -> Grid:
    """Outcomes by client and case; the worst where there are several."""
    grid: Grid = defaultdict(dict)
    for outcome in OUTCOMES:
        for report in terminal.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", ()))
            if "grid_row" in properties:
                grid[properties["grid_row"]][properties["grid_column"]] = outcome
    return dict(grid)


def _mark(grid: Grid, client: Client, column: str) -> str:
    return MARKS[grid[client.name].get(column, "gap" if column in client.gaps else "")]


def _document(grid: Grid, cases: Mapping[str, str], clients: Sequence[Client]) -> dict[str, object]:
    found = {
        each.name: {"version": each.version(), "gaps": dict(each.gaps), "outcomes": grid[each.name]}
        for each in clients
        if each.name in grid
    }
    return {"cases": dict(cases), "clients": found}
