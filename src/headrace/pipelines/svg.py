"""Draws charts as SVG, without a library: the same rows make the same bytes, and light and dark pages show them."""

from collections.abc import Sequence
from html import escape
from typing import Final

INK, GRID = "#7a7a7a", "#c8c8c8"
COLOURS: Final = ("#0b6e99", "#d9730d", "#6940a5", "#448361", "#c4554d")


class Drawing:
    """Shapes in a box of this size, in pixels; (0, 0) is the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        self._lines = [f'{head} font-family="sans-serif" font-size="11">', f"<title>{escape(title)}</title>"]

    def __str__(self) -> str:
        return "\n".join([*self._lines, "</svg>\n"])

    def text(self, x: float, y: float, text: object, anchor: str = "start") -> None:
        self._lines.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="{INK}">{escape(str(text))}</text>'
        )

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, width: float = 1.5, dash: str = "") -> None:
        places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._lines.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1) -> None:
        shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        seen_through = f' opacity="{opacity}"' if opacity < 1 else ""
        self._lines.append(f'<rect {shape} fill="{colour}"{seen_through}/>')

    def dot(self, x: float, y: float, colour: str, *, radius: float = 3.5) -> None:
        self._lines.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{radius}" fill="{colour}"/>')


def _n(value: float) -> str:
    """To a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
