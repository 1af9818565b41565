"""Draws docs/flow-control.svg from the stored results of flow_control.py: no library, and colours that both light and
dark pages show."""

from collections.abc import Sequence
from typing import Any

COLOURS = {"max-min": "#1f77b4", "seed": "#d9731a"}
INK, GRID = "#7a7a7a", "#c8c8c8"
WIDTH, HEIGHT, TOP, LEFT = 330, 190, 46, 46
GAP = 70


def draw(results: dict[str, Any]) -> str:
    """Two panels: the use of the limit by second while the busy broker changes, and by the number of brokers."""
    panels = [_over_time(results, LEFT), _by_brokers(results, LEFT + WIDTH + GAP)]
    total_width, total_height = LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 64
    legend = ""
    bottom = total_height - 10
    for index, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + 150 * index
        legend += f'<line x1="{x}" x2="{x + 24}" y1="{bottom}" y2="{bottom}" stroke="{colour}" stroke-width="2.5"/>'
        legend += _text(x + 30, bottom + 4, name, "start")
    title = "Use of an instance's limit under skew, with both allocators"
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width} {total_height}" '
    return (
        opened
        + f'font-family="sans-serif" font-size="11">\n<title>{title}</title>\n{"".join(panels)}{legend}\n</svg>\n'
    )


def _over_time(results: dict[str, Any], left: float) -> str:
    found = {name: _run(each, "shift", 10)["used_by_second_percent"] for name, each in results["quality"].items()}
    seconds = len(next(iter(found.values())))
    out = _frame(
        left, "10 brokers; all load moves to another broker every 10 s", "second", range(0, seconds + 1, 10), seconds
    )
    for name, shares in found.items():
        points = [(at + 0.5, share) for at, share in enumerate(shares)]
        out += _line(left, points, seconds, COLOURS[name])
    return out


def _by_brokers(results: dict[str, Any], left: float) -> str:
    sizes = [each["brokers"] for each in next(iter(results["quality"].values())) if each["load"] == "skew"]
    out = _frame(
        left, "one busy broker: use of the limit after 5 s", "brokers", range(len(sizes)), len(sizes) - 0.5, sizes
    )
    for name, runs in results["quality"].items():
        points = [(index, _run(runs, "skew", size)["used_percent"]) for index, size in enumerate(sizes)]
        out += _line(left, points, len(sizes) - 0.5, COLOURS[name], dots=True)
    return out


def _run(runs: Sequence[dict[str, Any]], kind: str, brokers: int) -> dict[str, Any]:
    return next(each for each in runs if each["load"] == kind and each["brokers"] == brokers)


def _x(left: float, value: float, most: float) -> float:
    return round(left + WIDTH * value / most, 1)


def _y(percent: float) -> float:
    return round(TOP + HEIGHT * (1 - min(percent, 150) / 150), 1)


def _frame(left: float, title: str, unit: str, ticks: Sequence[int], most: float, names: Sequence[int] = ()) -> str:
    out = _text(left, TOP - 14, title, "start")
    for percent in (0, 50, 100, 150):
        y = _y(percent)
        colour, width = (INK, 1.2) if percent in (0, 100) else (GRID, 0.6)
        out += f'<line x1="{left}" x2="{left + WIDTH}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="{width}"/>\n'
        out += _text(left - 6, y + 4, f"{percent} %", "end")
    for index, tick in enumerate(ticks):
        out += _text(_x(left, tick, most), TOP + HEIGHT + 16, str(names[index] if names else tick), "middle")
    return out + _text(left + WIDTH, TOP + HEIGHT + 32, unit, "end")


def _line(left: float, points: Sequence[tuple[float, float]], most: float, colour: str, *, dots: bool = False) -> str:
    places = [(_x(left, x, most), _y(y)) for x, y in points]
    line = " ".join(f"{x},{y}" for x, y in places)
    out = f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>\n'
    return out + "".join(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>\n' for x, y in places if dots)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{INK}">{text}</text>\n'
