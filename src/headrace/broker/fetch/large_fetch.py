"""Fetches of more than a thousand partitions that are in no session: read in slices, so that others get their turn.

The connection is held while such a fetch is read for the first time. If that is not enough, it waits in the purgatory
as any fetch; a change of one of its partitions, or the end of the wait, reads all of them again, in slices.
"""

from __future__ import annotations

from headrace.broker.fetch.fetch import Fetch
from headrace.broker.request.context import Later, RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m


class LargeFetch:
    """One fetch of many partitions."""

    __slots__ = ("_ctx", "_fetch", "_has_changed", "_is_answered", "_is_expired", "_is_reading", "_max_wait_ms")

    def __init__(self, ctx: RequestContext, fetch: Fetch, max_wait_ms: int) -> None:
        self._ctx, self._fetch, self._max_wait_ms = ctx, fetch, max_wait_ms
        self._is_reading = self._has_changed = self._is_expired = self._is_answered = False

    def start(self) -> Later:
        """Reads, and answers or waits."""
        return self._ctx.in_order(self._begin(), _failed)

    async def _begin(self) -> Later:
        fetch = self._fetch
        if await fetch.read_in_slices() or fetch.ends_now():
            self._answer()
        else:
            fetch.is_waiting = True
            self._ctx.wait_for(self, fetch.keys(), self._max_wait_ms)
        return Later.LATER

    def try_complete(self) -> bool:
        """Begins to read again; returns True once the fetch is answered."""
        if self._ctx.is_abandoned or self._is_answered:
            return True
        if self._is_reading:
            self._has_changed = True
        elif not self._fetch.backs_off():
            self._read_again()
        return False

    def expire(self) -> None:
        """Answers with the records that there are by now."""
        self._is_expired = True
        if not (self._is_reading or self._is_answered or self._ctx.is_abandoned):
            self._read_again()

    def _read_again(self) -> None:
        self._is_reading, self._has_changed = True, False
        if not self._ctx.services.spawn(self._read_then_answer()):
            self._ctx.connection.close("the broker is shutting down")

    async def _read_then_answer(self) -> None:
        try:
            is_enough = await self._fetch.read_in_slices()
            self._is_reading = False
            if self._ctx.is_abandoned:
                return
            if is_enough or self._is_expired:
                self._answer()
            if self._has_changed or self._is_answered:
                self._look_again()
        except Exception:
            self._ctx.failed()

    def _look_again(self) -> None:
        """Has the purgatory try this fetch: something changed behind the reader, or the fetch is answered."""
        self._ctx.services.purgatory.touch(next(iter(self._fetch.keys())))

    def _answer(self) -> None:
        self._is_answered = True
        self._ctx.reply_in_slices(self._fetch.finish())


def _failed(error: Exception) -> m.FetchResponse:
    return m.FetchResponse(error_code=error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)
