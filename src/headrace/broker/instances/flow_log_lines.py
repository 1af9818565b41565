"""Log lines of the flow control: when the throttling of an instance begins on this broker, and when it has ended.

Throttling has ended when nobody was held for `ENDS_AFTER_S`. An instance that is throttled on and off has a line at
most every `AGAIN_AFTER_S`, and all instances together have at most `LINES_MAX` in that time; the rest is counted.
"""

from __future__ import annotations

import logging

from headrace.instances.flow.meter import Metered

log = logging.getLogger(__name__)

ENDS_AFTER_S = 10.0
AGAIN_AFTER_S = 60.0
LINES_MAX = 50
NEVER = float("-inf")


class _Throttled:
    """One direction of an instance."""

    __slots__ = ("began_at", "held_s", "is_told", "seen_at", "told_at")

    def __init__(self) -> None:
        self.began_at = self.seen_at = self.told_at = NEVER
        self.held_s = 0.0
        self.is_told = False


class FlowLogLines:
    """What was logged of all instances."""

    def __init__(self) -> None:
        self._throttled: dict[tuple[str, str], _Throttled] = {}
        self._lines = self._left_out = 0
        self._counted_since = NEVER

    def metered(self, name: str, direction: str, metered: Metered, rate: float, limit: float, now: float) -> None:
        """Takes what flowed in an interval, at what rate of this broker, and the instance's limit."""
        known = self._throttled.get((name, direction))
        if metered.throttled_s > 0:
            if known is None:
                known = self._throttled[name, direction] = _Throttled()
            if known.began_at == NEVER:
                known.began_at, known.held_s = now, 0.0
                known.is_told = now - known.told_at >= AGAIN_AFTER_S and self._may_log(now)
                if known.is_told:
                    known.told_at = now
                    log.info(
                        "instance %s is throttled %s: this broker may take %d bytes/s of its %d; see headrace instance "
                        "why %s",
                        name, direction, rate, limit, name,
                    )  # fmt: skip
            known.seen_at = now
            known.held_s += metered.throttled_s

    def tick(self, now: float) -> None:
        """Ends what has ended."""
        for (name, direction), known in list(self._throttled.items()):
            if known.began_at != NEVER and now - known.seen_at >= ENDS_AFTER_S:
                if known.is_told:
                    log.info(
                        "instance %s is no longer throttled %s: it was for %.1f s in %.0f s",
                        name, direction, known.held_s, known.seen_at - known.began_at,
                    )  # fmt: skip
                known.began_at = NEVER
            if known.began_at == NEVER and now - known.told_at >= AGAIN_AFTER_S:
                del self._throttled[name, direction]

    def _may_log(self, now: float) -> bool:
        if now - self._counted_since >= AGAIN_AFTER_S:
            if self._left_out:
                log.info("%d more instances were throttled in the last minute", self._left_out)
            self._counted_since, self._lines, self._left_out = now, 0, 0
        self._lines += 1
        if self._lines > LINES_MAX:
            self._left_out += 1
        return self._lines <= LINES_MAX
