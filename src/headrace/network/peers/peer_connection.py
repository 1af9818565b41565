"""A connection to another broker: sends requests and receives their responses, in the same order.

`Conversation` keeps the requests in flight and cuts the frames. A response that fits the scratch buffer is copied out
of it. A larger one has its own buffer, and messages decoded from it are views of that buffer: records that a follower
fetches are copied once, by the kernel, before they are appended.

A connection can be lent to somebody who sends many requests, one after another (`loan`).

The first error ends the connection: all pending requests fail with its reason, and the owner opens another connection.
"""

import asyncio
from collections import deque
from collections.abc import Mapping

from headrace.errors import InvalidRequest
from headrace.network.peers.loan import Asker, Loan
from headrace.network.peers.peers import PeerUnreachable
from headrace.network.transport import Transport
from headrace.protocol.codec.message import Message
from headrace.protocol.conversation.asking import SCRATCH_BYTES, Conversation

NO_ID = -1
"""In the place of a correlation id for a loan, whose requests have one each."""


class PeerConnection:
    """A stream to another broker, owned by the event loop."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        client_id: str,
        *,
        loop: asyncio.AbstractEventLoop,
        answer_bytes_max: int,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        """`transport`: connected, after its handshake."""
        self._transport = transport
        self._loop, self._name, self._client_id = loop, name, client_id
        self._conversation: Conversation[asyncio.Future[memoryview]] = Conversation(
            client_id, answer_bytes_max=answer_bytes_max, scratch_bytes=scratch_bytes
        )
        self._unsent: deque[memoryview] = deque()
        self.versions: Mapping[int, tuple[int, int]] = {}
        """The peer's first and last version of each API, by API key."""
        self.agreed: dict[int, int] = {}
        """The newest version of each API that both sides have, once it was asked for."""
        self.failure: PeerUnreachable | None = None
        """The reason why the connection ended; None while it is usable."""
        self._over = asyncio.Event()
        loop.add_reader(self._transport.fileno(), self._on_readable)

    def send(self, request: Message, version: int, client_id: str = "") -> asyncio.Future[memoryview]:
        """Sends a request, with another client id if one is given. The future holds the response's frame with its
        header, or `PeerUnreachable` when the connection breaks."""
        assert request.API_KEY is not None, f"{type(request).__name__} is not a request"
        answered: asyncio.Future[memoryview] = self._loop.create_future()
        if self.failure is not None:
            answered.set_exception(self.failure)
            return answered
        correlation_id, header = self._conversation.header(request.API_KEY, version, client_id)
        body = request.encode(version)
        self._conversation.expect(correlation_id, answered)
        self._unsent.append(memoryview((len(header) + len(body)).to_bytes(4, "big") + header + body))
        if len(self._unsent) == 1:
            self._send()
        return answered

    def lend(self, asker: Asker, version: int, *, timeout_ms: int) -> asyncio.Future[memoryview | None] | None:
        """Lends the connection for requests of this version of their API: see `loan`. None if `asker` has none now, if
        another request is in flight, or if the stream has bytes to change. Nothing else may be sent meanwhile."""
        transport = self._transport
        if self.failure is not None or len(self._conversation) or self._unsent or transport.direct_fd < 0:
            return None
        loan = Loan(
            self,
            transport,
            self._conversation.reader,
            asker,
            version=version,
            client_id=self._client_id.encode(),
            timeout_ms=timeout_ms,
            loop=self._loop,
        )
        if not loan.begin():
            return None
        lent: asyncio.Future[memoryview | None] = loan.answered
        if self._over.is_set():  # the request could not be sent
            loan.answered.set_exception(self.failure)
            return lent
        self._conversation.expect(NO_ID, loan.answered)
        self._loop.add_reader(transport.fileno(), loan.on_readable)
        return lent

    def next_id(self) -> int:
        """The correlation id of the first request of a loan."""
        return self._conversation.next_id()

    def send_rest(self, octets: bytes) -> None:
        """Sends what the socket has not taken of a request of a loan."""
        self._unsent.append(memoryview(octets))
        self._send()

    def give_back(self, last_id: int) -> None:
        """Ends a loan, whose last request had this correlation id."""
        self._conversation.forget_first(last_id)
        self._loop.add_reader(self._transport.fileno(), self._on_readable)

    async def broken(self) -> None:
        """Returns when the connection has ended."""
        await self._over.wait()

    def close(self, why: str = "it is no longer needed") -> None:
        """Closes the connection; pending requests fail with `PeerUnreachable`."""
        if self.failure is not None:
            return
        self.failure = PeerUnreachable(f"{self._name}: {why}")
        self._over.set()
        self._loop.remove_reader(self._transport.fileno())
        self._loop.remove_writer(self._transport.fileno())
        self._transport.close()
        self._unsent.clear()
        for answered in self._conversation.end():
            if not answered.done():
                answered.set_exception(self.failure)

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._transport.send(self._unsent[0])
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._transport.fileno(), self._send)
        except OSError as error:
            self.close(error.strerror or str(error))
        else:
            self._loop.remove_writer(self._transport.fileno())

    def _on_readable(self) -> None:
        try:
            self._receive()
            while self._transport.is_buffering and self.failure is None and self._transport.pending():
                self._receive()  # the socket does not become readable for bytes that are decrypted already
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or str(error))
        except InvalidRequest as error:
            self.close(f"the response is malformed: {error.message}")

    def _receive(self) -> None:
        count = self._transport.receive_into(self._conversation.target())
        if count == 0:
            self.close("the peer closed the connection")
            return
        for answered, frame in self._conversation.received(count):
            if not answered.done():
                answered.set_result(frame)
