"""Background writes that are under way, for a caller that has to wait for those that have begun."""

from collections.abc import Callable

from headrace.log.flusher import Background


class WritesUnderWay:
    """Writes that run in the background. One thread owns it."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._begun = 0
        self._running: set[int] = set()
        self._waiting: list[tuple[set[int], Callable[[], None]]] = []

    def begin(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run `work` in the background, then `done` with its error or None on the owner's thread."""
        self._begun = number = self._begun + 1

        def ended(error: Exception | None) -> None:
            self._running.discard(number)
            try:
                done(error)
            finally:
                self._end(number)

        self._running.add(number)
        try:
            self._background(work, ended)
        except RuntimeError:  # the threads have ended
            self._running.discard(number)
            raise

    def when_ended(self, then: Callable[[], None]) -> None:
        """Call `then` when all writes that have begun until now have ended; at once when there are none."""
        if self._running:
            self._waiting.append((set(self._running), then))
        else:
            then()

    def _end(self, number: int) -> None:
        waiting, self._waiting = self._waiting, []
        for running, then in waiting:
            running.discard(number)
            if running:
                self._waiting.append((running, then))
            else:
                then()
