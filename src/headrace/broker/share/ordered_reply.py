"""The answer to a request of a share session, before which no later request of the connection is handled.

Each request of a session takes its next epoch, so the next one must not overtake a fetch that waits.
"""

from __future__ import annotations

from headrace.broker.request.context import RequestContext
from headrace.network.held import Held
from headrace.protocol.codec.message import Message


class OrderedReply:
    """Answers one request, and holds its connection until then."""

    __slots__ = ("_ctx", "_is_answered", "_is_held")

    def __init__(self, ctx: RequestContext) -> None:
        ctx.keep_place()
        self._ctx = ctx
        self._is_answered = self._is_held = False

    def started(self) -> None:
        """Holds the connection, unless the request is answered already."""
        if not self._is_answered:
            self._is_held = True
            self._ctx.connection.hold(Held.ORDER)

    def __call__(self, message: Message) -> None:
        """Answers. A connection that has closed meanwhile gets nothing."""
        self._is_answered = True
        if self._ctx.is_abandoned:
            return
        self._ctx.reply(message)
        if self._is_held:
            self._ctx.connection.release(Held.ORDER)
