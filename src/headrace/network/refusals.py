"""Log lines about refused connections: clients cause as many as they like, so only some of each second are written."""

import logging
from collections.abc import Callable

from headrace.limits import REFUSALS_LOGGED_PER_SECOND


class Refusals:
    """Writes lines, at most `REFUSALS_LOGGED_PER_SECOND`; the next line says how many were left out."""

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        """`now`: seconds, of any clock."""
        self._log, self._now = log, now
        self._second, self._written, self._left_out = -1, 0, 0

    def note(self, message: str, peer: str, listener: str) -> None:
        """Writes a line about a connection from `peer`, or counts it."""
        second = int(self._now())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= REFUSALS_LOGGED_PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        fields: dict[str, object] = {"peer": peer, "listener": listener}
        if self._left_out:
            fields["left_out"], self._left_out = self._left_out, 0
        self._log.warning("%s", message, extra=fields)
