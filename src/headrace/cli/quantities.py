"""Sizes and durations on the command line: 500, 64KiB, 1.5GiB, and 90s, 12h, 7d."""

import re

from headrace.cli.access import UsageProblem

_BYTES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "PIB": 1 << 50}
_MS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_QUANTITY = re.compile(r"(\d{1,18})(\.\d{1,9})? ?([A-Za-z]*)", re.ASCII)


def size(option: str, text: str) -> int:
    """Bytes. Raises `UsageProblem`, which names the option."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[3].upper() not in _BYTES:
        raise UsageProblem(f"{option} {text!r} is not a size such as 500, 64KiB, 10MiB or 1.5GiB")
    return _product(found, _BYTES[found[3].upper()])


def duration_ms(option: str, text: str) -> int:
    """Milliseconds; a number without a unit is seconds. Raises `UsageProblem`, which names the option."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[3] not in _MS:
        raise UsageProblem(f"{option} {text!r} is not a duration such as 90s, 15m, 12h or 7d")
    return _product(found, _MS[found[3]])


def _product(found: re.Match[str], unit: int) -> int:
    return int(found[1]) * unit + (round(float(found[2]) * unit) if found[2] else 0)


def shown_size(count: int | None) -> str:
    """A size in the largest unit that keeps it whole; `-` for none."""
    if count is None:
        return "-"
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _BYTES[unit.upper()] == 0:
            return f"{count // _BYTES[unit.upper()]}{unit}"
    return str(count)
