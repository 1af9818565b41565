"""What happened in a run, one line for each event, for people: who, when in virtual time, what.

12.345678  broker 2    leads events-0 in epoch 3
"""

from tests.simulation.scheduler import Scheduler


class Timeline:
    """Lines in the order of virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        """Adds a line."""
        self.lines.append(f"{self._scheduler.now_us / 1e6:10.6f}  {who:<10}  {what}")

    def __str__(self) -> str:
        return "\n".join(self.lines)
