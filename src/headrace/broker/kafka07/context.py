"""The context of a request of Kafka 0.7: the response of today's handler is written in the form of 0.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.request.context import RequestContext
from headrace.broker.request.refusal_answers import join
from headrace.network.connection import Connection
from headrace.network.request_times import RequestTimes
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message

if TYPE_CHECKING:
    from headrace.broker.services import Services

Write = Callable[[Message], bytes]
"""Encodes a response, with its size."""


class Context07(RequestContext):
    """A request without a client id, whose response `write` encodes."""

    __slots__ = ("_write",)

    def __init__(
        self,
        services: Services,
        connection: Connection,
        api_key: ApiKey,
        api_version: int,
        times: RequestTimes,
        write: Write,
    ) -> None:
        super().__init__(services, connection, api_key, api_version, 0, None, times)
        self._write = write

    def reply(self, message: Message) -> None:
        """Sends the response, once, now or later."""
        if self.refused:
            message = join(message, self.refused)
        if self.services.throttling.is_active:
            self.services.throttling.replied(self, message)
        self._finish([self._write(message)])

    def reply_in_slices(self, message: Message) -> None:
        """As `reply`: a response has few elements."""
        self.reply(message)
