"""The dispatcher of one instance: serves its clients' requests with the ordinary handlers.

    frame ─▶ request ─names qualified─▶ admission ─▶ handler ─▶ response ─names stripped─▶ frame

APIs that instances are not served are unknown to it, as to a broker that does not have them. A plain produce takes the
fast path, with a look-up of the topic's qualified name in place of the topic's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.handlers.produce import refused
from headrace.broker.instances.context import InstanceContext
from headrace.broker.instances.flow_throttling import ABOUT_GROUPS
from headrace.broker.instances.translation import ELEMENTS_PER_SLICE, Translating, of_request
from headrace.broker.produce.plain_produce import find_partition
from headrace.broker.request.dispatch import Dispatcher, Handler
from headrace.errors import InvalidRequest
from headrace.network.connection import Connection
from headrace.network.held import Held
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import has_more_elements

if TYPE_CHECKING:
    from headrace.broker.instances.flow import InstanceFlow
    from headrace.broker.instances.view import View
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.request.context import RequestContext
    from headrace.broker.services import Services
    from headrace.protocol.plain_produce import PlainProduce

_PLAIN_NAMES_MAX = 10_000
_PAID_AFTERWARDS = frozenset(map(int, (ApiKey.PRODUCE, ApiKey.SHARE_FETCH, *ABOUT_GROUPS)))


class InstanceDispatcher(Dispatcher):
    """Calls the handler of each frame of an instance's clients."""

    shortcut = None  # it knows no instances: neither their names nor their limits

    def __init__(self, services: Services, view: View, handlers: Mapping[int, Handler], flow: InstanceFlow) -> None:
        """`services`: those that hide what is not the instance's."""
        super().__init__(services, ())
        self.handlers = handlers
        self._view, self._names, self._flow = view, view.names, flow
        self._find, self._told = self._find_own, view.names.text
        self._new_context = partial(InstanceContext, view, services)
        self._plain_names: dict[str, str] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        key = frame[1] if len(frame) > 1 and not frame[0] else -1  # cheaper than a slice
        if key in _PAID_AFTERWARDS and cast(Any, self._throttling).postpones(connection, key, frame):
            return
        super().__call__(connection, frame)

    def _append_plainly(self, connection: Connection, request: PlainProduce, size: int) -> bool:
        if self._view.is_closed or self._flow.may_store(self._view.instance.name) is not None:
            return False
        return super()._append_plainly(connection, request, size)

    def _handle(self, handler: Handler, ctx: Any, request: Any) -> None:
        if handler.api_key is ApiKey.PRODUCE:
            name, throttling = self._view.instance.name, cast(Any, self._throttling)
            error = self._flow.may_store(name)
            ctx.told_ms = throttling.produce_came(ctx, request)
            if error is not None:
                self._flow.was_refused(name, ctx.request_bytes)
                answer = refused(ctx, request, error)
                if answer is None:
                    ctx.no_reply()
                else:
                    ctx.reply(answer)
                return
        super()._handle(handler, ctx, request)

    def _find_own(self, broker: Services, topic: str | bytes, index: int, acks: int) -> Partition | None:
        if isinstance(topic, bytes):
            return find_partition(broker, topic, index, acks)
        qualified = self._plain_names.get(topic)
        if qualified is None:
            if len(self._plain_names) >= _PLAIN_NAMES_MAX:
                self._plain_names.clear()
            qualified = self._plain_names[topic] = self._names.prefix + topic
        return find_partition(broker, qualified, index, acks)

    def _call(self, handler: Handler, ctx: RequestContext, request: Any) -> None:
        if self._view.is_closed:
            raise InvalidRequest(f"instance {self._view.instance.name} is gone")
        translate = None if request is None else of_request(handler.api_key)
        if translate is None:
            super()._call(handler, ctx, request)
            return
        if handler.detached is not None and has_more_elements(request, ELEMENTS_PER_SLICE):
            request = handler.detached(request)
        if handler.api_key is ApiKey.SYNC_GROUP and request.protocol_type is None:
            request.protocol_type = self._protocol_type(self._names.qualified(request.group_id))
        translating = translate(self._names, request)
        try:
            next(translating)
        except StopIteration as done:
            super()._call(handler, ctx, done.value)
        except Exception:
            ctx.failed()
        else:
            ctx.keep_place()
            ctx.connection.hold(Held.NAMES)
            if not self._services.spawn(self._translate_and_call(handler, ctx, translating)):
                ctx.connection.close("the broker is shutting down")

    async def _translate_and_call(self, handler: Handler, ctx: RequestContext, translating: Translating) -> None:
        """Translates a large request in slices, and handles it; the connection is held meanwhile."""
        try:
            while not ctx.is_abandoned:
                await asyncio.sleep(0)
                try:
                    next(translating)
                except StopIteration as done:
                    super()._call(handler, ctx, done.value)
                    break
        except InvalidRequest as error:
            ctx.connection.close(error.message)
        except Exception:
            ctx.failed()
        finally:
            ctx.connection.release(Held.NAMES)

    def _protocol_type(self, group_id: str) -> str | None:
        """The protocol of a group's members, which SyncGroup did not name before version 5."""
        group = self._services.groups.coordinator.find(group_id)
        return getattr(group, "protocol_type", None)
