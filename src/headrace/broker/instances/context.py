"""The context of a request of an instance's client: answers in the names that the client knows."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.instances.translation import Translating, of_response
from headrace.broker.instances.view import View
from headrace.broker.request.context import RequestContext
from headrace.broker.request.refusal_answers import join
from headrace.network.held import Held
from headrace.protocol.codec.message import Message


class InstanceContext(RequestContext):
    """Translates the response, in slices if it is large, and sends it."""

    __slots__ = ("told_ms", "view")

    def __init__(self, view: View, *args: Any) -> None:
        super().__init__(*args)
        self.view = view
        self.told_ms = 0  # what the client of a Produce is told to wait for the instance's rate

    @property
    def is_of_instance(self) -> bool:
        """True."""
        return True

    @property
    def prefix(self) -> str:
        """See `RequestContext`."""
        return self.view.names.prefix

    def stored_more(self, size: int) -> None:
        """See `RequestContext`."""
        if size > 0:
            throttling: Any = self.services.throttling  # that of the instance
            self.told_ms = max(self.told_ms, throttling.stored_more(self, size))

    def reply(self, message: Message) -> None:
        self._translate_and(message, in_slices=False)

    def reply_in_slices(self, message: Message) -> None:
        self._translate_and(message, in_slices=True)

    def _translate_and(self, message: Message, *, in_slices: bool) -> None:
        if self.refused:
            message, self.refused = join(message, self.refused), ()
        translate = of_response(self.api_key)
        if translate is None:
            self._send(message, in_slices)
            return
        translating = translate(self.view.names, message)
        try:
            next(translating)
        except StopIteration as done:
            self._send(done.value, in_slices)
        except Exception:
            self.failed()
        else:
            self.keep_place()
            self.connection.hold(Held.NAMES)
            if not self.services.spawn(self._translate_later(translating, in_slices)):
                self.connection.close("the broker is shutting down")

    def _send(self, message: Message, in_slices: bool) -> None:
        if in_slices:
            super().reply_in_slices(message)
        else:
            super().reply(message)

    async def _translate_later(self, translating: Translating, in_slices: bool) -> None:
        try:
            while not self.connection.is_closed:
                await asyncio.sleep(0)
                try:
                    next(translating)
                except StopIteration as done:
                    self._send(done.value, in_slices)
                    break
        except Exception:
            self.failed()
        finally:
            self.connection.release(Held.NAMES)
