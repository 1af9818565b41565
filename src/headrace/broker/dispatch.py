"""From a frame to its handler, and from an exception to a response code.

The handlers register themselves by their module's `API_KEY`, `VERSIONS` and `handle`; ApiVersions and the docs'
table are computed from the same list. Three things can go wrong with a request, each with Kafka's answer:

    an unknown ApiVersions version       the version 0 answer with UNSUPPORTED_VERSION and our ranges (KIP-511)
    another key or version not served    the connection is closed: the answer's form is not known to both sides
    bytes that do not fit the schema     the connection is closed
"""

import logging
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Protocol, cast

from headrace.broker.connection import Connection
from headrace.broker.context import LATER, Answer, RequestContext
from headrace.broker.metrics.request_times import RequestTimes
from headrace.broker.parts import Broker
from headrace.broker.plain_produce import append_plainly
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.protocol import messages
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header
from headrace.protocol.message import Message
from headrace.protocol.plain_produce import PlainProduce, read_plain_produce

log = logging.getLogger(__name__)


class Decodable(Protocol):
    """A request class, as far as reading one goes."""

    def decode(self, version: int, buf: memoryview, pos: int = 0) -> tuple[object, int]:
        """One message and the position after it."""


class Handler:
    """One API as it is served. The message classes are looked up at the first request, since that compiles them."""

    __slots__ = ("api_key", "fail", "handle", "request", "times", "versions")

    def __init__(self, module: ModuleType) -> None:
        self.api_key: ApiKey = module.API_KEY
        self.versions: range = module.VERSIONS
        self.handle: Callable[[RequestContext, object], Answer] = module.handle
        self.fail: Callable[[object, ErrorCode], Message] | None = getattr(module, "fail", None)
        self.request: Decodable | None = None
        self.times = RequestTimes(self.versions)

    def load(self) -> Decodable:
        """The request class, compiled."""
        self.request = cast(Decodable, getattr(messages, message_name(self.api_key, "Request")))
        return self.request


def message_name(api_key: ApiKey, suffix: str) -> str:
    """`OFFSET_COMMIT`, `Request` -> `OffsetCommitRequest`."""
    return "".join(part.capitalize() for part in api_key.name.split("_")) + suffix


class Dispatcher:
    """Calls the handler of each frame."""

    broker: Broker
    """Set before the first frame comes."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self.handlers = {int(handler.api_key): handler for handler in map(Handler, modules)}

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Handles one frame. Raises `InvalidRequest` when the connection cannot go on."""
        plain = read_plain_produce(frame)
        if plain is not None and self._append_plainly(connection, plain):
            return
        header, pos = read_request_header(frame)
        handler = self.handlers.get(header.api_key)
        if handler is None:
            raise InvalidRequest(f"API key {header.api_key} (version {header.api_version}) is not served")
        version = header.api_version
        if version not in handler.versions:
            if handler.api_key is not ApiKey.API_VERSIONS:
                raise InvalidRequest(
                    f"{handler.api_key.name} version {version} is not served, "
                    f"only {handler.versions[0]} to {handler.versions[-1]}"
                )
            version, request = 0, None
        else:
            request, _ = (handler.request or handler.load()).decode(version, frame, pos)
        times = handler.times
        times.by_version[version] += 1
        ctx = RequestContext(
            self.broker, connection, handler.api_key, version, header.correlation_id, header.client_id, times
        )
        self._call(handler, ctx, request)

    def _append_plainly(self, connection: Connection, request: PlainProduce) -> bool:
        """Whether the short way was one for it."""
        frame = append_plainly(self.broker, request)
        if frame is None:
            return False
        version, times = request.api_version, self.handlers[ApiKey.PRODUCE].times
        times.by_version[version] += 1
        if connection.is_timed:
            RequestContext(
                self.broker, connection, ApiKey.PRODUCE, version, request.correlation_id, None, times
            ).reply_frame(frame)
        else:
            connection.answer([frame], None)
        return True

    def _call(self, handler: Handler, ctx: RequestContext, request: object) -> None:
        try:
            answer = handler.handle(ctx, request)
        except KafkaError as error:
            answer = self._failure(handler, ctx, request, error)
        except Exception:
            log.exception("a request failed", extra=ctx.described())
            answer = self._failure(handler, ctx, request, KafkaError("see the broker's log"))
        if answer is LATER:
            ctx.keep_place()
        elif answer is not None:
            ctx.reply(answer)
        else:
            ctx.no_reply()

    def _failure(self, handler: Handler, ctx: RequestContext, request: object, error: KafkaError) -> Message:
        """The answer that carries `error`; where the API has no place for one, the connection ends."""
        if handler.fail is not None:
            return handler.fail(request, error.code)
        response = getattr(messages, message_name(ctx.api_key, "Response"))
        try:
            return cast(Message, response(error_code=int(error.code)))
        except TypeError:
            raise InvalidRequest(f"{ctx.api_key.name} failed: {error}") from error
