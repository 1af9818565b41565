"""The error of a migration that is refused, with its reasons."""

from collections.abc import Sequence

NAMES_SHOWN_MAX = 5


class MigrationRefused(Exception):
    """Nothing was written. `reasons` are sentences, each with what to do."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def some(names: Sequence[object]) -> str:
    """`a, b, c, d, e and 12 more`."""
    shown = ", ".join(str(name) for name in names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
