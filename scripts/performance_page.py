"""Generates the tables of docs/performance.md from what `make bench` has recorded in benchmarks/results.

The first table has a row for each goal of benchmarks/recorded.py: what was reached is of the recorded run. A goal that
was not recorded yet has the figures of an earlier run, and says so. The second block has a table of each run: a row for
each case and side, with medians, and in brackets the least and the most of the rounds.

    python scripts/performance_page.py      writes the page
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.paired import is_ratio, number
from benchmarks.recorded import GOALS, RECORDED, Bound, Goal, stored

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
GOALS_BLOCK = re.compile(r"(<!-- goals that make bench records -->\n).*?(<!-- end of the goals -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- recorded by make bench -->\n).*?(<!-- end of what make bench records -->)", re.DOTALL)
UNITS = ("ms", "s", "mib", "per_s", "bytes")


def performance_page() -> str:
    """The page with new tables."""
    runs = stored()
    goals = "\n".join(goals_table(runs))
    text = "\n".join(line for stem, run in runs.items() for line in section(RECORDED[stem].title, run))
    page = GOALS_BLOCK.sub(lambda found: f"{found[1]}\n{goals}\n\n{found[2]}", PAGE.read_text())
    return BLOCK.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", page)


def goals_table(runs: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """What is to be reached, and what is."""
    yield "| work | goal | reached | recorded |"
    yield "|---|---|---|---|"
    for goal in GOALS:
        run = runs.get(goal.stem)
        wanted = ", ".join(_wanted(goal, each) for each in goal.bounds if each.limit is not None)
        spreads = run and run["results"][goal.case].get(goal.side)  # a side that was not measured then is not there
        if not run or not spreads:
            yield f"| {goal.work} | {wanted} | {goal.before} | an earlier run, by hand |"
            continue
        reached = ", ".join(_reached(goal, each, spreads[each.figure]["median"]) for each in goal.bounds)
        yield f"| {goal.work} | {wanted} | {reached} | {run['day']}, load {run['load'][0]} |"


def _wanted(goal: Goal, bound: Bound) -> str:
    assert bound.limit is not None
    return f"{bound.label} {'≥' if bound.is_least else '≤'} {_value(goal, bound.limit)}"


def _reached(goal: Goal, bound: Bound, median: float) -> str:
    """One figure; bold if it is at the goal."""
    value = _value(goal, median)
    if bound.limit is None:
        return f"{bound.label} {value}"
    is_met = median >= bound.limit if bound.is_least else median <= bound.limit
    return f"{bound.label} **{value}**" if is_met else f"{bound.label} {value} (missed)"


def _value(goal: Goal, value: float) -> str:
    return f"{number(value)} ×" if is_ratio(goal.side) else number(value)


def section(title: str, run: dict[str, Any]) -> Iterator[str]:
    """One recorded benchmark."""
    versions = ", ".join(f"{what} {which}" for what, which in run["versions"].items())
    yield f"### {title}"
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
    shown = f"**{median} ×**" if is_ratio(side) else median
    return f"{shown} ({number(spread['least'])}–{number(spread['most'])})"


if __name__ == "__main__":
    PAGE.write_text(performance_page())
