"""Medians, spreads and ratios of benchmarks that measure several sides in turns.

    rounds     {side: [figures of each round]}, figures being a named tuple of numbers
    summary    {side: {figure: {"median", "least", "most"}}}, and under "ratio" the first side's to the last one's
    results    {case: summary}

A ratio is taken of each pair of rounds, because both rounds of a pair met the same other work on the machine.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

RATIO = "ratio"
Spread = dict[str, float]
Summary = dict[str, dict[str, Spread]]


def summarise(rounds: Mapping[str, Sequence[Any]]) -> Summary:
    """The spread of each figure of each side, and of the ratios where there are several sides."""
    figures = next(iter(rounds.values()))[0]._fields
    found = {
        side: {figure: _spread([getattr(each, figure) for each in some]) for figure in figures}
        for side, some in rounds.items()
    }
    if len(rounds) > 1:
        ours, *_, theirs = rounds.values()
        found[RATIO] = {
            figure: _spread(
                [getattr(a, figure) / max(getattr(b, figure), 1e-9) for a, b in zip(ours, theirs, strict=True)]
            )
            for figure in figures
        }
    return found


def report(results: Mapping[str, Summary], *, as_json: bool) -> None:
    """Print the results: an object for programs, or a line for each side of each case."""
    if as_json:
        print(json.dumps(results, indent=1))
        return
    for case, summary in results.items():
        print(case)
        for side, spreads in summary.items():
            print(f"  {side:14}", "   ".join(f"{figure} {shown(each)}" for figure, each in spreads.items()))


def shown(spread: Spread) -> str:
    """A spread as text: the median, and in brackets the least and the most."""
    return f"{number(spread['median'])} ({number(spread['least'])}–{number(spread['most'])})"


def number(value: float) -> str:
    """A number with three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _spread(values: Sequence[float]) -> Spread:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}
