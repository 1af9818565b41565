"""Lines in the log about writes that a disk refused: a few each second, as a full disk refuses again and again."""

import logging
from time import monotonic

from headrace.limits import REFUSED_WRITES_LOGGED_PER_SECOND_MAX


class RefusedLines:
    """Writes the first lines of each second, and no others."""

    __slots__ = ("_lines", "_log", "_second")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._second = self._lines = 0  # when lines were last written to the log, and how many then

    def write(self, message: str, *arguments: object) -> None:
        """Logs an error, unless there were too many of them in this second."""
        second = int(monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= REFUSED_WRITES_LOGGED_PER_SECOND_MAX:
            self._log.error(message, *arguments)
