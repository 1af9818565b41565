"""The context of one request: its connection and client, and the way to answer it.

A handler is `handle(ctx, request) -> message | LATER | None`:

    a message   the response, now
    LATER       the handler calls `ctx.reply(message)` later; the request keeps its place in the order of responses
    None        the request has no response (acks=0)

`ctx.in_order(coroutine)` returns LATER for work that no later request of the connection may overtake. `ctx.wait_for`
returns LATER for an operation that waits in the purgatory.

A large response is encoded in slices, so that other connections get their turn.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from enum import Enum
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from headrace.broker.request.purgatory import DelayedOperation
from headrace.broker.request.refusal_answers import RefusedPart, join
from headrace.errors import KafkaError
from headrace.limits import INLINE_RESPONSE_ELEMENTS_MAX
from headrace.network.answer_order import Slot
from headrace.network.connection import Connection
from headrace.network.held import Held
from headrace.network.outbound import Chunks
from headrace.network.request_times import RequestTimes, Timed
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message, has_more_elements
from headrace.protocol.headers import response_header

if TYPE_CHECKING:
    from headrace.broker.services import Services
    from headrace.quotas.mutations import MutationQuota

log = logging.getLogger(__name__)


class Later(Enum):
    """The type of `LATER`."""

    LATER = 0


_NEVER_SLICED = frozenset((ApiKey.FETCH, ApiKey.PRODUCE))

Refused = Sequence[RefusedPart]
"""The entries of a request that are not handled, with the responses about them."""

LATER = Later.LATER
Answer = Message | Later | None


class RequestContext:
    """The connection, listener, principal and client of a request, and the methods that answer it."""

    __slots__ = (
        "_is_answered",
        "_slot",
        "answered_ns",
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "handed_over_ns",
        "is_counted",
        "is_of_broker",
        "mutations",
        "received_ns",
        "refused",
        "request_bytes",
        "services",
        "started_ns",
        "times",
    )

    def __init__(
        self,
        services: "Services",
        connection: Connection,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        times: RequestTimes,
    ) -> None:
        self.services, self.connection = services, connection
        self.api_key, self.api_version = api_key, api_version
        self.correlation_id, self.client_id = correlation_id, client_id
        self._slot: Slot | None = None
        self._is_answered = False
        self.is_counted = False  # whether the quotas have counted it before its answer, as those of a fetch do
        self.is_of_broker = False  # whether the admission found it to be another broker's
        self.request_bytes = 0  # of the frame
        self.refused: Refused = ()  # entries that the admission has refused
        self.mutations: MutationQuota | None = None  # of a request that creates or deletes partitions
        self.times = times
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns: int
        self.answered_ns: int

    @property
    def client_host(self) -> str:
        """The client's address, as Kafka prints it."""
        return f"/{self.connection.host}"

    @property
    def listener(self) -> str:
        """The name of the listener that the connection came through."""
        return self.connection.listener

    @property
    def is_of_instance(self) -> bool:
        """Whether the client is one of an instance, not of the cluster."""
        return False

    @property
    def prefix(self) -> str:
        """What the names of the client's instance begin with; empty for a client of the cluster. Lists are made of the
        instance's own: their time must not tell how many there are of others."""
        return ""

    def stored_more(self, size: int) -> None:
        """Counts what a produce has stored beyond what it sent, as the limits of instances do; none if below 1."""

    @property
    def principal(self) -> str:
        """The one that the connection has authenticated as."""
        return self.connection.principal

    def described(self) -> dict[str, object]:
        """The request's fields for a log line."""
        return {
            "api": self.api_key.name,
            "version": self.api_version,
            "correlation": self.correlation_id,
            "client": self.client_id,
            "peer": self.connection.peer,
        }

    @property
    def is_abandoned(self) -> bool:
        """Whether the connection is closed, so that a response could not be sent."""
        return self.connection.is_closed

    def local_ns(self) -> int:
        """The time that the event loop has spent on the request, until it was to wait or else until now."""
        return (monotonic_ns() if self._slot is None else self.handed_over_ns) - self.started_ns

    def reply(self, message: Message) -> None:
        """Sends the response, once, now or later. A connection closed meanwhile is no error."""
        if self.refused:
            message = join(message, self.refused)
        if self.services.throttling.is_active:
            self.services.throttling.replied(self, message)
        if (
            message.ARRAYS
            and self.api_key not in _NEVER_SLICED
            and has_more_elements(message, INLINE_RESPONSE_ELEMENTS_MAX)
        ):
            self._reply_in_slices(message)
            return
        self._finish(encode_response(self.api_key, self.api_version, self.correlation_id, message))

    def reply_in_slices(self, message: Message) -> None:
        """As `reply`, for a large response. The message must not change any more."""
        if self.refused:
            message = join(message, self.refused)
        if self.services.throttling.is_active:
            self.services.throttling.replied(self, message)
        self._reply_in_slices(message)

    def _reply_in_slices(self, message: Message) -> None:
        self.keep_place()
        self.connection.hold(Held.ENCODING)
        work = self._encode_and_finish(message)
        if not self.services.spawn(work):
            self.connection.close("the broker is shutting down")

    async def _encode_and_finish(self, message: Message) -> None:
        try:
            head = response_header(self.api_key, self.api_version, self.correlation_id)
            encoding, worked_ns = message.encode_in_slices(self.api_version), 0
            while not self.connection.is_closed:
                began_ns = monotonic_ns()
                try:
                    next(encoding)
                except StopIteration as done:
                    if self.services.throttling.is_active:
                        self.services.throttling.worked(self, worked_ns + monotonic_ns() - began_ns)
                    self._finish(_framed(head, done.value))
                    break
                worked_ns += monotonic_ns() - began_ns
                await asyncio.sleep(0)
        except Exception:
            self.failed()
        finally:
            self.connection.release(Held.ENCODING)

    def reply_frame(self, frame: bytes) -> None:
        """Sends an encoded response, which begins with its size."""
        self._finish([frame])

    def no_reply(self) -> None:
        """Ends a request that has no response (acks=0). Only a closed connection tells of refused entries."""
        if self.refused:
            self.connection.close("a produce with acks=0 was refused")
        if self.services.throttling.is_active:
            self.services.throttling.not_replied(self)
        self._finish([])

    def _finish(self, chunks: Chunks) -> None:
        if self._is_answered:
            raise AssertionError(f"a second answer to {self.api_key.name} {self.correlation_id}")
        self._is_answered = True
        now_ns = self.answered_ns = monotonic_ns()
        if self._slot is None:
            self.handed_over_ns = self.connection.looked_ns = now_ns
            self.connection.answer(chunks, self)
        elif not self.connection.is_closed:
            # Slot and context refer to each other. Unlinked, both and the response are freed without a collection.
            slot, self._slot = self._slot, None
            self.connection.answer_later(slot, chunks, self)
        if not chunks:
            self.times.add(self, now_ns)

    def keep_place(self, abandon: Callable[[], None] | None = None) -> None:
        """Reserves the response's place in the order, unless it is sent or has a place already. `abandon` is called if
        the connection closes before the response is sent."""
        if not self._is_answered and self._slot is None:
            self._slot = self.connection.place()
            self.handed_over_ns = self.connection.looked_ns = monotonic_ns()
            self._slot.abandon = abandon

    def take_place(self, slot: Slot, timed: Timed) -> None:
        """Takes over the place of a request that has waited without a context, and its times until then."""
        self._slot = slot
        self.received_ns, self.started_ns, self.handed_over_ns = (
            timed.received_ns,
            timed.started_ns,
            timed.handed_over_ns,
        )

    def wait_for(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> Later:
        """Puts `operation` into the purgatory; it answers the request. A closed connection cancels it."""
        self.keep_place()
        entry = self.services.purgatory.wait(_Guarded(self, operation), keys, timeout_ms)
        if self._slot is not None:
            self._slot.abandon = partial(self.services.purgatory.cancel, entry)
        return LATER

    def in_order(self, work: Coroutine[object, object, Answer], fail: Callable[[Exception], Message]) -> Later:
        """Answers with the result of `work`, or with `fail(exception)`; holds the connection until then."""
        self.keep_place()
        self.connection.hold(Held.ORDER)
        if not self.services.spawn(self._work(work, fail)):
            work.close()
            self.connection.close("the broker is shutting down")
        return LATER

    def failed(self) -> None:
        """Logs the current exception, which is a bug of the broker, and closes the connection: without a response the
        client would wait until its time-out."""
        log.exception("a request failed", extra=self.described())
        self.connection.close("an internal error")

    async def _work(self, work: Coroutine[object, object, Answer], fail: Callable[[Exception], Message]) -> None:
        try:
            try:
                answer = await work
            except Exception as error:
                if not isinstance(error, KafkaError):
                    log.exception("a request failed", extra=self.described())
                answer = fail(error)
            if answer is None:
                self.no_reply()
            elif answer is not LATER:
                self.reply(answer)
        except Exception:
            self.failed()
        finally:
            self.connection.release(Held.ORDER)


class _Guarded:
    """An operation whose exceptions close its own client's connection, and do not disturb the purgatory."""

    __slots__ = ("_ctx", "_operation")

    def __init__(self, ctx: RequestContext, operation: DelayedOperation) -> None:
        self._ctx, self._operation = ctx, operation

    @property
    def api_key(self) -> ApiKey:
        """The API of the request."""
        return self._ctx.api_key

    def try_complete(self) -> bool:
        try:
            return self._operation.try_complete()
        except Exception:
            self._ctx.failed()
            return True

    def expire(self) -> None:
        try:
            self._operation.expire()
        except Exception:
            self._ctx.failed()


def encode_response(api_key: ApiKey, version: int, correlation_id: int, message: Message) -> Chunks:
    """Encodes a response: size, header and body as the chunks of one frame."""
    head = response_header(api_key, version, correlation_id)
    if api_key is not ApiKey.FETCH and api_key is not ApiKey.SHARE_FETCH:
        body = message.encode(version)
        return [(len(head) + len(body)).to_bytes(4, "big") + head + body]
    chunks = cast(Chunks, message.encode_chunks(version))  # what is not bytes is what the handler put there
    return _framed(head, chunks)


def _framed(head: bytes, chunks: Chunks) -> Chunks:
    """The chunks of a response with size and header before them."""
    size = len(head) + sum(len(c) if isinstance(c, bytes) else c.size for c in chunks)
    return [size.to_bytes(4, "big") + head, *chunks]
