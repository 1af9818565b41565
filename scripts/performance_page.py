"""Generates the tables of docs/performance.md from the recorded results of `make bench`.

The block between the markers has a table of each file in benchmarks/results: a row for each case and side, with
medians, and in brackets the least and the most of the rounds.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.paired import number, ratio_to

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- recorded by make bench -->\n).*?(<!-- end of what make bench records -->)", re.DOTALL)
UNITS = ("ms", "s", "mib", "per_s")


def performance_page() -> str:
    """The page with new tables."""
    runs = [json.loads(each.read_text()) for each in sorted(RESULTS.glob("*.json"))]
    text = "\n".join(line for run in runs for line in section(run))
    return BLOCK.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", PAGE.read_text())


def section(run: dict[str, Any]) -> Iterator[str]:
    """One recorded benchmark."""
    name = Path(run["benchmark"]).name.replace("_", " ")
    versions = ", ".join(f"{what} {which}" for what, which in run["versions"].items())
    yield f"### {name[0].upper()}{name[1:]}"
    yield ""
    yield f"`{run['command']}` on {run['day']}: {run['machine']}; load average {run['load'][0]} before and"
    yield f"{run['load'][1]} after; {versions}."
    yield ""
    headings: list[str] | None = None
    for case, summary in run["results"].items():
        figures = list(next(iter(summary.values())))
        if figures != headings:  # a case of another kind begins another table
            if headings is not None:
                yield ""
            headings = figures
            yield f"| | | {' | '.join(_label(each) for each in figures)} |"
            yield f"|---|---|{'---|' * len(figures)}"
        for side, spreads in summary.items():
            cells = (_cell(spreads[each], side) for each in figures)
            yield f"| {case if side == next(iter(summary)) else ''} | {side} | {' | '.join(cells)} |"
    yield ""


def _label(figure: str) -> str:
    """A figure's name as text: `p99_ms` is `p99, ms`."""
    if figure.endswith("_per_s"):
        return figure.removesuffix("_per_s").replace("_", " ") + "/s"
    unit = next((each for each in UNITS if figure.endswith(f"_{each}")), "")
    return figure.removesuffix(f"_{unit}").replace("_", " ") + (f", {unit.replace('mib', 'MiB')}" if unit else "")


def _cell(spread: dict[str, float], side: str) -> str:
    median = number(spread["median"])
    shown = f"**{median} ×**" if side.startswith(ratio_to("")) else median
    return f"{shown} ({number(spread['least'])}–{number(spread['most'])})"
