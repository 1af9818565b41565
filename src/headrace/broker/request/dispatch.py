"""The dispatcher: decodes each frame, calls its handler, and turns exceptions into response codes.

The handlers register themselves by their module's `API_KEY`, `VERSIONS`, `DEMANDS` and `handle`; ApiVersions and the
docs' table are computed from the same list. Before a handler is called, the admission decides whether the request may
be handled (`broker.request.admission`). A request that cannot be read is treated as in Apache Kafka:

    an unknown version of ApiVersions       the response of version 0 with UNSUPPORTED_VERSION and our ranges (KIP-511)
    another key or version not served       the connection is closed: no response format is known to both sides
    bytes that do not match the schema      the connection is closed

A large request is decoded in slices, so that other connections get their turn; its connection is held meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from types import ModuleType
from typing import Protocol, cast

from headrace.broker.produce.plain_produce import append_plainly
from headrace.broker.request.admission import Admission, Demands
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.services import Services
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.limits import INLINE_REQUEST_BYTES_MAX
from headrace.network.connection import Connection, Held
from headrace.network.request_times import RequestTimes
from headrace.protocol import messages
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.conversation.frames import SCRATCH_BYTES
from headrace.protocol.headers import RequestHeader, read_request_header
from headrace.protocol.plain_produce import PlainProduce, read_plain_produce

log = logging.getLogger(__name__)


class Decodable(Protocol):
    """A request class that can be decoded."""

    def decode(self, version: int, buf: memoryview, pos: int = 0) -> tuple[object, int]:
        """Decodes one message; returns it and the position after it."""

    def decode_in_slices(
        self, version: int, buf: memoryview, pos: int = 0
    ) -> Generator[None, None, tuple[object, int]]:
        """As `decode`, but yields after every slice."""


class Handler:
    """One served API. Its message classes are looked up at the first request, since the look-up compiles them."""

    __slots__ = ("api_key", "broker_demands", "demands", "fail", "handle", "has_answer", "request", "times", "versions")

    def __init__(self, module: ModuleType) -> None:
        if not hasattr(module, "DEMANDS"):
            raise TypeError(
                f"{module.__name__} declares no DEMANDS: list the operations and resources that its requests need"
            )
        self.demands: Demands = module.DEMANDS
        self.broker_demands = tuple(each for each in self.demands if each.is_of_brokers)
        """The demands that are checked even without rules."""
        self.has_answer: Callable[[object], bool] | None = getattr(module, "has_answer", None)
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

    def __init__(self, services: Services, modules: Iterable[ModuleType], admission: Admission | None = None) -> None:
        """`admission`: None admits every request."""
        self._services = services
        self.admission = admission or Admission()
        self.handlers = {int(handler.api_key): handler for handler in map(Handler, modules)}

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Handles one frame. Raises `InvalidRequest` when the connection must be closed."""
        plain = read_plain_produce(frame)
        if plain is not None and self._append_plainly(connection, plain):
            return
        header, pos = read_request_header(frame)
        handler = self.handlers.get(header.api_key)
        if handler is None:
            raise InvalidRequest(f"API key {header.api_key} (version {header.api_version}) is not supported")
        version = header.api_version
        if version not in handler.versions:
            if handler.api_key is not ApiKey.API_VERSIONS:
                raise InvalidRequest(
                    f"{handler.api_key.name} version {version} is not served, "
                    f"only {handler.versions[0]} to {handler.versions[-1]}"
                )
            version, request = 0, None
        elif len(frame) > INLINE_REQUEST_BYTES_MAX and handler.api_key is not ApiKey.PRODUCE:
            self._decode_in_slices(connection, handler, header, frame, pos)
            return
        else:
            request, _ = (handler.request or handler.load()).decode(version, frame, pos)
        times = handler.times
        times.by_version[version] += 1
        ctx = RequestContext(
            self._services, connection, handler.api_key, version, header.correlation_id, header.client_id, times
        )
        self._call(handler, ctx, request)

    def _decode_in_slices(
        self, connection: Connection, handler: Handler, header: RequestHeader, frame: memoryview, pos: int
    ) -> None:
        """Decodes and handles a large request in the background; the connection is held until it is handled."""
        version, times = header.api_version, handler.times
        times.by_version[version] += 1
        ctx = RequestContext(
            self._services, connection, handler.api_key, version, header.correlation_id, header.client_id, times
        )
        ctx.keep_place()
        if len(frame) <= SCRATCH_BYTES:
            frame = memoryview(bytes(frame))  # it may lie in a buffer that other connections share
        connection.hold(Held.DECODING)
        decoding = (handler.request or handler.load()).decode_in_slices(version, frame, pos)
        if not self._services.spawn(self._decode_and_call(handler, ctx, decoding)):
            connection.close("the broker is shutting down")

    async def _decode_and_call(
        self, handler: Handler, ctx: RequestContext, decoding: Generator[None, None, tuple[object, int]]
    ) -> None:
        connection = ctx.connection
        try:
            while not connection.is_closed:
                try:
                    next(decoding)
                except StopIteration as done:
                    self._call(handler, ctx, done.value[0])
                    break
                await asyncio.sleep(0)
        except InvalidRequest as error:
            connection.close(error.message)
        except Exception:
            ctx.failed()
        finally:
            connection.release(Held.DECODING)

    def _append_plainly(self, connection: Connection, request: PlainProduce) -> bool:
        """Whether the fast path answered the request. A request that is not admitted takes the general path, which
        answers with the reason."""
        admission = self.admission
        if admission.has_rules and not admission.admits_plainly(self._services, connection, request):
            return False
        frame = append_plainly(self._services, request)
        if frame is None:
            return False
        version, times = request.api_version, self.handlers[ApiKey.PRODUCE].times
        times.by_version[version] += 1
        if connection.is_timed:
            RequestContext(
                self._services, connection, ApiKey.PRODUCE, version, request.correlation_id, request.client_id, times
            ).reply_frame(frame)
        else:
            connection.answer([frame], None)
        return True

    def _call(self, handler: Handler, ctx: RequestContext, request: object) -> None:
        try:
            demands = handler.demands if self.admission.has_rules else handler.broker_demands
            refused = self.admission.admit(ctx, request, demands) if demands else None
            if refused is None:
                answer = handler.handle(ctx, request)
            else:
                answer = self._failure(handler, ctx, request, KafkaError(refused.message, refused.code))
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
        """The response with `error`. Raises `InvalidRequest`, which closes the connection, when the API's response has
        no error code or the client expects no response."""
        if handler.has_answer is not None and not handler.has_answer(request):
            raise InvalidRequest(f"{ctx.api_key.name} failed: {error}") from error
        if handler.fail is not None:
            return handler.fail(request, error.code)
        response = getattr(messages, message_name(ctx.api_key, "Response"))
        try:
            return cast(Message, response(error_code=int(error.code)))
        except TypeError:
            raise InvalidRequest(f"{ctx.api_key.name} failed: {error}") from error
