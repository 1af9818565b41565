"""One request on its way: who asked what, over which connection, and how the answer gets back.

A handler is `handle(ctx, request) -> message | LATER | None`:

    a message   the answer, now
    LATER       `ctx.reply(message)` will be called; the request keeps its place in the order of answers
    None        the request has no answer (acks=0)

`ctx.in_order(coroutine)` is LATER for work that no later request of the connection may overtake; `ctx.wait_for` is
LATER for what waits in the purgatory.
"""

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable
from enum import Enum
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from headrace.broker.connection import Chunks, Connection, Slot
from headrace.broker.metrics.request_times import RequestTimes
from headrace.broker.purgatory import Operation
from headrace.errors import KafkaError
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import response_header
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.broker.parts import Broker

log = logging.getLogger(__name__)


class Later(Enum):
    """The type of `LATER`."""

    LATER = 0


LATER = Later.LATER
Answer = Message | Later | None


class RequestContext:
    """A request's surroundings: connection, listener, principal, client, and the way back."""

    __slots__ = (
        "_is_answered",
        "_slot",
        "answered_ns",
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "handed_over_ns",
        "received_ns",
        "started_ns",
        "times",
    )

    def __init__(
        self,
        broker: "Broker",
        connection: Connection,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        times: RequestTimes,
    ) -> None:
        self.broker, self.connection = broker, connection
        self.api_key, self.api_version = api_key, api_version
        self.correlation_id, self.client_id = correlation_id, client_id
        self._slot: Slot | None = None
        self._is_answered = False
        self.times = times
        self.received_ns, self.started_ns = connection.received_ns, connection.looked_ns
        self.handed_over_ns: int
        self.answered_ns: int

    @property
    def client_host(self) -> str:
        """The address that the request came from, as Kafka prints it."""
        return f"/{self.connection.host}"

    @property
    def listener(self) -> str:
        """The name of the listener that it came through."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        """Who asks. Nothing is authenticated on a plaintext listener."""
        return "User:ANONYMOUS"

    def described(self) -> dict[str, object]:
        """The request in a few words, for the log."""
        return {
            "api": self.api_key.name,
            "version": self.api_version,
            "correlation": self.correlation_id,
            "client": self.client_id,
            "peer": self.connection.peer,
        }

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has gone, so that an answer would reach nobody."""
        return self.connection.is_closed

    def reply(self, message: Message) -> None:
        """Sends the answer; once, now or later. A client that has gone meanwhile is no error."""
        self._finish(encode_response(self.api_key, self.api_version, self.correlation_id, message))

    def reply_frame(self, frame: bytes) -> None:
        """Sends an answer that is encoded already, its size before it."""
        self._finish([frame])

    def no_reply(self) -> None:
        """Ends a request that has no answer (acks=0)."""
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
            slot, self._slot = self._slot, None  # each would keep the other, and the answer, until a collection
            self.connection.answer_later(slot, chunks, self)
        if not chunks:
            self.times.add(self, now_ns)

    def keep_place(self) -> None:
        """Reserves the answer's place, unless it is given already."""
        if not self._is_answered and self._slot is None:
            self._slot = self.connection.place()
            self.handed_over_ns = self.connection.looked_ns = monotonic_ns()

    def wait_for(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> Later:
        """Answers as `operation` does; it leaves the purgatory when the client leaves."""
        self.keep_place()
        entry = self.broker.purgatory.wait(_Guarded(self, operation), keys, timeout_ms)
        if self._slot is not None:
            self._slot.abandon = partial(self.broker.purgatory.cancel, entry)
        return LATER

    def in_order(self, work: Coroutine[object, object, Answer], fail: Callable[[Exception], Message]) -> Later:
        """Answers as `work` returns (or with what `fail` makes of its exception); holds the connection until then."""
        self.keep_place()
        self.connection.hold()
        if not self.broker.spawn(self._work(work, fail)):
            work.close()
            self.connection.close("the broker is ending")
        return LATER

    def failed(self) -> None:
        """There is no answer, for a bug of ours (the current exception): the client must not wait for ever."""
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
            self.connection.release()


class _Guarded:
    """An operation of a request: when it fails, only its own client suffers."""

    __slots__ = ("_ctx", "_operation")

    def __init__(self, ctx: RequestContext, operation: Operation) -> None:
        self._ctx, self._operation = ctx, operation

    @property
    def api_key(self) -> ApiKey:
        """What was asked for."""
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
    """Size, header and body as the chunks of one frame."""
    head = response_header(api_key, version, correlation_id)
    if api_key is not ApiKey.FETCH:
        body = message.encode(version)
        return [(len(head) + len(body)).to_bytes(4, "big") + head + body]
    chunks = cast(Chunks, message.encode_chunks(version))  # what is not bytes is what the handler put there
    size = len(head) + sum(len(c) if isinstance(c, bytes) else c.size for c in chunks)
    return [size.to_bytes(4, "big") + head, *chunks]
