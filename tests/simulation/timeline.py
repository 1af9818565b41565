"""What happened in a run, one line for each event, for people: who, when in virtual time, what.

12.345678  broker 2    leads events-0 in epoch 3
"""

from tests.simulation.scheduler import Scheduler


class Timeline:
    """Lines in the order of virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.lines: list[str] = []
        self._seen: dict[tuple[str, str], int] = {}

    def note(self, who: str, what: str) -> None:
        """Adds a line."""
        self.lines.append(f"{self._scheduler.now_us / 1e6:10.6f}  {who:<10}  {what}")

    def note_log(self, who: str, what: str) -> None:
        """Adds a line of a broker's log; one that comes again and again is shown at its 1st, 2nd, 4th, 8th … time."""
        count = self._seen[who, what] = self._seen.get((who, what), 0) + 1
        if count & (count - 1) == 0:
            self.note(who, f"log: {what}" + (f" ({count} times)" if count > 1 else ""))

    def __str__(self) -> str:
        return "\n".join(self.lines)
