"""What a checker says of a history."""

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that must not be."""

    kind: str
    partition: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: partition {self.partition}: {self.text}"


def time(at_us: int) -> str:
    """Virtual time in seconds, as in the timeline."""
    return f"{at_us / 1e6:.6f}"
