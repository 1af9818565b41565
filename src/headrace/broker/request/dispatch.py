"""The dispatcher: decodes each frame, calls its handler, and turns exceptions into response codes.

A handler is a module with `API_KEY`, `VERSIONS`, `DEMANDS` and `handle`. It is imported at the API's first request, so
that a start imports none. Before a handler is called, the admission decides whether the request may be handled
(`broker.request.admission`). A request that cannot be read is treated as in Apache Kafka:

    an unknown version of ApiVersions       the response of version 0 with UNSUPPORTED_VERSION and our ranges (KIP-511)
    another key or version not served       the connection is closed: no response format is known to both sides
    bytes that do not match the schema      the connection is closed

A large request is decoded in slices, so that other connections get their turn; its connection is held meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from time import monotonic_ns
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from headrace.broker.handlers import module_of
from headrace.broker.handlers.index import VERSIONS
from headrace.broker.partitions.partition import Partition
from headrace.broker.produce.commit_queue import CommitQueues, WaitingReply
from headrace.broker.produce.plain_produce import (
    Appended,
    Find,
    Uncommitted,
    append_plainly,
    append_rest,
    find_partition,
    refused_answer,
    with_throttle_time,
)
from headrace.broker.request.admission import Deciding, Part, Partial, refusal_without_rules
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demands, Entries
from headrace.broker.request.refusal_answers import RefusedPart, only_refused, worded
from headrace.broker.request.sliced_refusals import has_many, refused_in_parts
from headrace.broker.services import Services
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.limits import INLINE_REQUEST_BYTES_MAX
from headrace.network.connection import Connection, Shortcut
from headrace.network.held import Held
from headrace.network.request_times import RequestTimes
from headrace.protocol import messages
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.conversation.frames import SCRATCH_BYTES
from headrace.protocol.headers import RequestHeader, read_request_header
from headrace.protocol.plain_produce import PlainProduce, read_plain_produce
from headrace.rare_collections import ALLOCATIONS_OF_REQUESTS, rare_collections
from headrace.security.access import Refusal

if TYPE_CHECKING:
    from headrace.broker.produce.waiting_answer import WaitingAnswer

log = logging.getLogger(__name__)

RARELY_COLLECTED_BYTES = 128 << 10
"""While a larger request is decoded, the garbage collector would look at its elements again and again, and at all else
that the process has, for many milliseconds each time."""


class Decodable(Protocol):
    """A request class that can be decoded."""

    def decode(self, version: int, buf: memoryview, pos: int = 0) -> tuple[object, int]:
        """Decodes one message; returns it and the position after it."""

    def decode_in_slices(
        self, version: int, buf: memoryview, pos: int = 0
    ) -> Generator[None, None, tuple[object, int]]:
        """As `decode`, but yields after every slice."""


class Handler:
    """One served API. Its module is imported, and its message classes compiled, at the first request (`load`)."""

    __slots__ = (
        "_module",
        "api_key",
        "demands",
        "detached",
        "fail",
        "handle",
        "has_answer",
        "of_brokers",
        "request",
        "times",
        "versions",
    )

    def __init__(self, api_key: ApiKey, versions: range, module: Callable[[], ModuleType]) -> None:
        self.api_key, self.versions, self._module = api_key, versions, module
        self.request: Decodable | None = None
        self.times = RequestTimes(versions)

    def load(self) -> Decodable:
        """The request class, compiled. The other attributes are set once this was called. Raises `TypeError` for a
        module that declares no demands."""
        module = self._module()
        if not hasattr(module, "DEMANDS"):
            raise TypeError(
                f"{module.__name__} declares no DEMANDS: list the operations and resources that its requests need"
            )
        self.demands: Demands = module.DEMANDS
        self.of_brokers = tuple(
            (each.asked, each.code) for each in self.demands if each.is_of_brokers and each.asked is not None
        )
        """What the demands ask for that are checked even without rules, and the error of a refusal."""
        self.detached: Callable[[object], object] | None = getattr(module, "detached", None)
        """A copy of a request that does not refer to its frame; None if no request does."""
        self.has_answer: Callable[[object], bool] | None = getattr(module, "has_answer", None)
        self.handle: Callable[[RequestContext, object], Answer] = module.handle
        self.fail: Callable[[object, ErrorCode], Message] | None = getattr(module, "fail", None)
        self.request = cast(Decodable, getattr(messages, message_name(self.api_key, "Request")))
        return self.request

    def with_demands(self, more: Demands) -> "Handler":
        """The same API with more demands; the times of its requests are counted together."""
        return _StricterHandler(self, more)


class _StricterHandler(Handler):
    """A handler with more demands than its module declares."""

    __slots__ = ("_more",)

    def __init__(self, handler: Handler, more: Demands) -> None:
        super().__init__(handler.api_key, handler.versions, handler._module)
        self.times, self._more = handler.times, more

    def load(self) -> Decodable:
        request = super().load()
        self.demands = (*self._more, *self.demands)
        return request


def message_name(api_key: ApiKey, suffix: str) -> str:
    """`OFFSET_COMMIT`, `Request` -> `OffsetCommitRequest`."""
    return "".join(part.capitalize() for part in api_key.name.split("_")) + suffix


def _given(module: ModuleType) -> ModuleType:
    return module


class Dispatcher:
    """Calls the handler of each frame."""

    def __init__(self, services: Services, modules: Iterable[ModuleType] | None = None) -> None:
        """`modules`: the handlers; None for all that there are."""
        self._services, self._throttling = services, services.throttling
        self._admission = services.admission
        self._find: Find = find_partition
        self._commit_queues = CommitQueues(services)
        self._told: Callable[[str], str] = str
        self._new_context: Callable[..., RequestContext] = partial(RequestContext, services)
        if modules is None:
            served = [Handler(key, versions, partial(module_of, key)) for key, versions in VERSIONS.items()]
        else:
            served = [Handler(each.API_KEY, each.VERSIONS, partial(_given, each)) for each in modules]
        self.handlers: Mapping[int, Handler] = {int(handler.api_key): handler for handler in served}

    @cached_property
    def shortcut(self) -> Shortcut | None:
        """Answers the most frequent requests before they come here. Made for the first connection."""
        from headrace.broker.coordinator_host.plain_groups import PlainGroups  # a start imports no handler either
        from headrace.broker.fetch.plain_fetch import PlainFetches
        from headrace.broker.fetch.plain_follow import PlainFollows
        from headrace.broker.produce.produce_shortcut import ProduceShortcut
        from headrace.broker.request.shortcuts import Shortcuts

        keys = (
            ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT,
        )  # fmt: skip
        if any(key not in self.handlers for key in keys):
            return None
        produces, fetches, *of_groups = (self.handlers[key].times for key in keys)
        return Shortcuts(
            ProduceShortcut(self._services, produces, self._append_rest, self._commit_queues, self._refuse_waiting),
            PlainFetches(self._services, fetches),
            PlainFollows(self._services, fetches),
            PlainGroups(self._services, *of_groups),
        )

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Handles one frame. Raises `InvalidRequest` when the connection must be closed."""
        plain = read_plain_produce(frame)
        if plain is not None and self._append_plainly(connection, plain, len(frame)):
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
            handler.load()
            version, request = 0, None
        elif len(frame) > INLINE_REQUEST_BYTES_MAX and handler.api_key is not ApiKey.PRODUCE:
            self._decode_in_slices(connection, handler, header, frame, pos)
            return
        else:
            request, _ = (handler.request or handler.load()).decode(version, frame, pos)
        times = handler.times
        times.by_version[version] += 1
        ctx = self._new_context(connection, handler.api_key, version, header.correlation_id, header.client_id, times)
        ctx.request_bytes = len(frame)
        self._call(handler, ctx, request)

    def _decode_in_slices(
        self, connection: Connection, handler: Handler, header: RequestHeader, frame: memoryview, pos: int
    ) -> None:
        """Decodes and handles a large request in the background; the connection is held until it is handled."""
        version, times = header.api_version, handler.times
        times.by_version[version] += 1
        ctx = self._new_context(connection, handler.api_key, version, header.correlation_id, header.client_id, times)
        ctx.request_bytes = len(frame)
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
        is_large = ctx.request_bytes > RARELY_COLLECTED_BYTES
        with rare_collections(ALLOCATIONS_OF_REQUESTS) if is_large else nullcontext():
            await self._decode_all_and_call(handler, ctx, decoding)

    async def _decode_all_and_call(
        self, handler: Handler, ctx: RequestContext, decoding: Generator[None, None, tuple[object, int]]
    ) -> None:
        connection, worked_ns = ctx.connection, 0
        try:
            while not connection.is_closed:
                began_ns = monotonic_ns()
                try:
                    next(decoding)
                except StopIteration as done:
                    if self._throttling.is_active:
                        self._throttling.worked(ctx, worked_ns + monotonic_ns() - began_ns)
                    self._call(handler, ctx, done.value[0])
                    break
                worked_ns += monotonic_ns() - began_ns
                await asyncio.sleep(0)
        except InvalidRequest as error:
            connection.close(error.message)
        except Exception:
            ctx.failed()
        finally:
            connection.release(Held.DECODING)

    def _append_plainly(self, connection: Connection, request: PlainProduce, size: int) -> bool:
        """Whether the fast path answered the request. A request that is not admitted takes the general path, which
        answers with the reason."""
        admission = self._admission
        if admission.has_rules and not admission.admits_plainly(self._services, connection, request):
            return False
        frame = append_plainly(self._services, request, self._find, self._told)
        if frame is None:
            return False
        version, times = request.api_version, self.handlers[ApiKey.PRODUCE].times
        times.by_version[version] += 1
        if isinstance(frame, Uncommitted):
            self._wait_for_replicas(self._context_of(connection, request), request, frame)
            return True
        if self._throttling.is_active:
            throttle_ms = self._throttling.produced_plainly(connection, request, size)
            if throttle_ms:
                frame = with_throttle_time(frame, version, throttle_ms)
        if connection.is_timed:
            self._context_of(connection, request).reply_frame(frame)
        else:
            connection.answer([frame], None)
        return True

    def _append_rest(
        self,
        connection: Connection,
        frame: memoryview,
        partitions: list[Partition],
        appended: list[Appended],
        refused: dict[int, KafkaError],
        now_ms: int,
    ) -> None:
        """Appends the batches of a plain request that its shortcut could not append, behind those that are, or that are
        refused."""
        request = read_plain_produce(frame)
        assert request is not None
        answer = append_rest(self._services, request, partitions, appended, refused, now_ms, self._told)
        ctx = self._context_of(connection, request)
        if isinstance(answer, Uncommitted):
            self._wait_for_replicas(ctx, request, answer)
        else:
            ctx.keep_place()
            self._services.loop.call_soon(ctx.reply_frame, answer)  # earlier answers of the connection are not sent yet

    def _refuse_waiting(self, waiting: "WaitingAnswer", codes: "Sequence[ErrorCode | KafkaError]") -> None:
        """Answers a plain request of the shortcut, of which replicas did not get a batch, or the disk refused one."""
        from headrace.broker.produce.named_leaders import name_leaders  # a broker alone refuses no such request

        header, _ = read_request_header(waiting.header)
        ctx = self._new_context(
            waiting.connection, ApiKey.PRODUCE, header.api_version, header.correlation_id, header.client_id,
            waiting.times,
        )  # fmt: skip
        ctx.take_place(waiting.slot, waiting)
        response = refused_answer(waiting.frame, header.api_version, waiting.names, codes, self._told)
        name_leaders(ctx, response)
        ctx.reply(response)

    def _context_of(self, connection: Connection, request: PlainProduce) -> RequestContext:
        times = self.handlers[ApiKey.PRODUCE].times
        return self._new_context(
            connection, ApiKey.PRODUCE, request.api_version, request.correlation_id, request.client_id, times
        )

    def _wait_for_replicas(self, ctx: RequestContext, request: PlainProduce, appended: Uncommitted) -> None:
        """Answers a produce when the high watermark has passed its batches."""
        deadline = self._services.loop.time() + max(0, request.timeout_ms) / 1000
        waiting = WaitingReply(ctx, appended.frame, len(request.batches), appended.refuse, deadline)
        ctx.keep_place(waiting.abandon)
        for number, partition, wait in appended.waits:
            waiting.wait_for(self._commit_queues.of(partition), number, partition, wait)

    def _call(self, handler: Handler, ctx: RequestContext, request: object) -> None:
        if not self._admission.has_rules:
            self._call_without_rules(handler, ctx, request)
            return
        demands = handler.demands
        if not demands:
            self._handle(handler, ctx, request)
            return
        deciding = self._admission.deciding(ctx, request, demands)
        try:
            next(deciding)
        except StopIteration as done:
            self._handle_decided(handler, ctx, request, done.value)
        except Exception:
            ctx.failed()
        else:
            ctx.keep_place()
            ctx.connection.hold(Held.ADMISSION)
            if handler.detached is not None:
                request = handler.detached(request)
                deciding = self._admission.deciding(ctx, request, demands)
            if not self._services.spawn(self._decide_and_handle(handler, ctx, request, deciding)):
                ctx.connection.close("the broker is shutting down")

    def _call_without_rules(self, handler: Handler, ctx: RequestContext, request: object) -> None:
        if handler.of_brokers:
            try:
                refused = refusal_without_rules(ctx, request, handler.of_brokers)
            except Exception:
                ctx.failed()
                return
            if refused is not None:
                self._handle_decided(handler, ctx, request, refused)
                return
        self._handle(handler, ctx, request)

    async def _decide_and_handle(
        self, handler: Handler, ctx: RequestContext, request: object, deciding: Deciding
    ) -> None:
        """Decides about a request with many resources in slices, and handles it; the connection is held meanwhile."""
        try:
            while not ctx.is_abandoned:
                await asyncio.sleep(0)
                try:
                    next(deciding)
                except StopIteration as done:
                    await self._handle_in_parts(handler, ctx, request, done.value)
                    break
        except InvalidRequest as error:
            ctx.connection.close(error.message)
        except Exception:
            ctx.failed()
        finally:
            ctx.connection.release(Held.ADMISSION)

    def _handle_decided(
        self, handler: Handler, ctx: RequestContext, request: object, decided: Refusal | Partial | None
    ) -> None:
        """Handles a request about which it was decided in one turn of the event loop."""
        if decided is None:
            self._handle(handler, ctx, request)
            return
        if handler.detached is None and has_many(request):
            ctx.keep_place()
            ctx.connection.hold(Held.ADMISSION)
            if not self._services.spawn(self._decide_and_handle(handler, ctx, request, _made(decided))):
                ctx.connection.close("the broker is shutting down")
            return
        if isinstance(decided, Refusal):
            ctx.reply(self._refuse(handler, ctx, None, decided, request))
        else:
            _check_answer(handler, ctx, request, decided)
            refused = [
                RefusedPart(each.entries, each.positions, self._refuse(handler, ctx, each.entries, each, each.request))
                for each in decided.refused
            ]
            self._handle_rest(handler, ctx, decided, refused)

    async def _handle_in_parts(
        self, handler: Handler, ctx: RequestContext, request: object, decided: Refusal | Partial | None
    ) -> None:
        """As `_handle_decided`, with other turns of the event loop in between."""
        if decided is None:
            self._handle(handler, ctx, request)
        elif isinstance(decided, Refusal):
            ctx.reply(await refused_in_parts(request, partial(self._refuse, handler, ctx, None, decided)))
        else:
            _check_answer(handler, ctx, request, decided)
            refused = []
            for each in decided.refused:
                refuse = partial(self._refuse, handler, ctx, each.entries, each)
                answer = await refused_in_parts(each.request, refuse)
                refused.append(RefusedPart(each.entries, each.positions, answer))
            self._handle_rest(handler, ctx, decided, refused)

    def _handle_rest(
        self, handler: Handler, ctx: RequestContext, decided: Partial, refused: Sequence[RefusedPart]
    ) -> None:
        """Handles what is left of a request some of whose entries are refused."""
        if decided.is_empty:
            ctx.reply(only_refused(refused))
        else:
            ctx.refused = refused
            self._handle(handler, ctx, decided.request)

    def _refuse(
        self, handler: Handler, ctx: RequestContext, entries: Entries | None, refused: Refusal | Part, request: object
    ) -> Message:
        """The response about a refused request, or about refused entries."""
        if entries is not None and entries.refuse is not None:
            answer = entries.refuse(ctx, request, refused.code)
        elif entries is not None and handler.fail is not None:
            answer = handler.fail(request, refused.code)
        else:
            message = refused.message if isinstance(refused, Refusal) else ""
            answer = self._failure(handler, ctx, request, KafkaError(message, refused.code))
        return worded(ctx.api_key, answer)

    def _handle(self, handler: Handler, ctx: RequestContext, request: object) -> None:
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


def _made(decided: Refusal | Partial) -> Deciding:
    """A decision that is made already; what follows is for later turns of the event loop."""
    yield
    return decided


def _check_answer(handler: Handler, ctx: RequestContext, request: object, decided: Partial) -> None:
    """Raises `InvalidRequest`, which closes the connection, if nothing is left of a request without a response."""
    if decided.is_empty and handler.has_answer is not None and not handler.has_answer(request):
        raise InvalidRequest(f"{ctx.api_key.name} is refused")
