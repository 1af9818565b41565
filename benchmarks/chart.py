"""Draws docs/performance.svg: the ratios of the recorded benchmarks to Apache Kafka, medians with their spread.

A panel for each kind of figure, a line for each case. Left of 1 is less than Apache Kafka, right of it more, on a
logarithmic scale; the side that is better is shaded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paired import number, ratio_to

KINDS = {
    "rate": ("_per_s",),
    "time": ("p50_ms", "p99_ms", "first_record_s", "join_s"),
    "processor time and memory": ("cpu", "mib"),
}
"""Panels, with what the names of their figures contain."""

TO = ratio_to("Apache Kafka")
OURS, INK, BETTER = "#1f77b4", "#555555", "#e8f1e4"


class Row(NamedTuple):
    """One ratio: what it is of, and its spread."""

    title: str
    least: float
    median: float
    most: float


def draw(runs: Mapping[str, dict[str, Any]], path: Path) -> None:
    """Write the chart of these runs, by title."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "headrace"  # the same results give the same file
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    panels = {kind: rows(runs, parts) for kind, parts in KINDS.items()}
    heights = [max(1, len(each)) + 1.4 for each in panels.values()]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(9, sum(heights) * 0.3), height_ratios=heights, layout="constrained", squeeze=False
    )
    for (kind, some), axis in zip(panels.items(), axes[:, 0], strict=True):
        panel(axis, f"{kind}, ratio to Apache Kafka", some, more_is_better=kind == "rate")
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def rows(runs: Mapping[str, dict[str, Any]], parts: Sequence[str]) -> list[Row]:
    """The ratios of one kind, in the order of the runs."""
    found = []
    for name, run in runs.items():
        for case, summary in run["results"].items():
            for figure, spread in summary.get(TO, {}).items():
                if any(part in figure for part in parts):
                    title = f"{name}, {case}: {figure.replace('_', ' ')}"
                    found.append(Row(title, spread["least"], spread["median"], spread["most"]))
    return found


def panel(axis: Any, title: str, some: Sequence[Row], *, more_is_better: bool) -> None:
    """Draw the rows of one kind from the top down."""
    places = range(len(some))
    low = min([row.least for row in some if row.least > 0], default=0.5)
    high = max([row.most for row in some], default=2)
    limits = min(low, 0.5) / 1.5, max(high, 2) * 2
    axis.set_xscale("log")
    axis.set_xlim(*limits)
    axis.axvspan(*((1, limits[1]) if more_is_better else (limits[0], 1)), color=BETTER, zorder=0)
    axis.axvline(1, color=INK, linewidth=1)
    for place, row in zip(places, some, strict=True):
        axis.plot([max(row.least, limits[0]), row.most], [place, place], color=OURS, linewidth=1.5)
        axis.plot([row.median], [place], "o", color=OURS, markersize=5)
        axis.annotate(
            f"{number(row.median)} ×", (row.most, place), (6, 0), textcoords="offset points", va="center", size=8
        )
    axis.set_yticks(list(places), [row.title for row in some], size=8)
    axis.invert_yaxis()
    axis.set_title(title, loc="left", size=10)
    axis.tick_params(axis="x", labelsize=8)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    axis.xaxis.set_minor_formatter(lambda *_: "")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
