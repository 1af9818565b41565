"""Medians, spreads and ratios of benchmarks that measure several sides in turns.

    rounds     {side: [figures of each round]}, figures being a named tuple of numbers
    summary    {side: {figure: {"median", "least", "most"}}}, under "to SIDE" the first side's ratios to another one,
               and under "SIDE to SIDE" those of two others
    results    {case: summary}

A ratio is taken of each pair of rounds, because both rounds of a pair met the same other work on the machine.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Spread = dict[str, float]
Summary = dict[str, dict[str, Spread]]


def summarise(rounds: Mapping[str, Sequence[Any]], others: Sequence[tuple[str, str]] = ()) -> Summary:
    """The spread of each figure of each side, and of the ratios of the first side to each other one. `others`: further
    pairs of sides, whose ratios are there if both were measured."""
    figures = next(iter(rounds.values()))[0]._fields
    found = {
        side: {figure: _spread([getattr(each, figure) for each in some]) for figure in figures}
        for side, some in rounds.items()
    }
    first, *rest = rounds
    pairs = {ratio_to(side): (first, side) for side in rest}
    pairs |= {ratio_to(b, a): (a, b) for a, b in others if a in rounds and b in rounds}
    for name, (a_side, b_side) in pairs.items():
        found[name] = {
            figure: _spread(
                [
                    getattr(a, figure) / max(getattr(b, figure), 1e-9)
                    for a, b in zip(rounds[a_side], rounds[b_side], strict=True)
                ]
            )
            for figure in figures
        }
    return found


def ratio_to(side: str, of: str = "") -> str:
    """The key of the first side's ratios to another one, or of those of a named side."""
    return f"{of} to {side}".lstrip()


def is_ratio(key: str) -> bool:
    """Whether a summary has ratios under this key."""
    return key.startswith("to ") or " to " in key


def report(results: Mapping[str, Summary], *, as_json: bool) -> None:
    """Print the results: an object for programs, or a line for each side of each case."""
    if as_json:
        print(json.dumps(results, indent=1))
        return
    for case, summary in results.items():
        print(case)
        for side, spreads in summary.items():
            print(f"  {side:21}", "   ".join(f"{figure} {shown(each)}" for figure, each in spreads.items()))


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
