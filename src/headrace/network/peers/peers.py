"""The interface for requests from one broker to another.

Its users are the controller (LeaderAndIsr, UpdateMetadata, StopReplica), leaders (AlterPartition, to the controller),
followers (Fetch, OffsetForLeaderEpoch), and brokers that forward a client's request to the controller. `peer_links`
implements it over sockets; a simulation has its own implementation.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.codec.message import Message
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.network.peers.loan import Asker

R = TypeVar("R", bound=Message)
"""The class of the response."""


class PeerAddress(NamedTuple):
    """A broker's address for other brokers."""

    id: BrokerId
    host: str
    port: int


class PeerUnreachable(KafkaError):
    """No response: no connection, a broken connection, or a time-out. The peer may have handled the request."""

    code = ErrorCode.NETWORK_EXCEPTION


class PeerRefused(PeerUnreachable):
    """The peer's machine refused the connection, so its process is gone. A time-out would not prove that."""


class HeldConnection(Protocol):
    """A connection that serves only to detect when it breaks."""

    async def broken(self) -> None:
        """Returns when the connection has ended, from either side."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Peers(Protocol):
    """Connections to the other brokers of a cluster, opened at first use and reopened after they broke."""

    async def send(
        self,
        to: PeerAddress,
        request: Message,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        client_id: str = "",
    ) -> R:
        """Sends a request and returns the decoded response. Requests of one `lane` to one broker are sent and answered
        in the order of the calls. Each lane has its own connection, so that a long poll delays no other request. The
        request may have another `client_id` than this broker's. Raises `PeerUnreachable`."""
        ...

    def lend(
        self, to: PeerAddress, asker: Asker, request: type[Message], answer: type[R], *, timeout_ms: int, lane: str = ""
    ) -> Awaitable[R | None] | None:
        """Lends a lane to `asker`, which writes requests of this class, one after another, and takes in their answers
        (see `loan`). What is returned has to be awaited at once, and raises `PeerUnreachable`: it is the first answer
        that the asker has left, or None once it has nothing more to ask. Returns None if the lane has no open
        connection that can be lent (`send` opens it), or the asker nothing to ask."""
        ...

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> HeldConnection:
        """Opens a separate connection to a broker and waits for a first response on it; the caller closes it. Tries
        once, without pauses. Raises `PeerUnreachable`, `PeerRefused`."""
        ...

    def disconnect(self, broker: BrokerId, why: str) -> None:
        """Closes the connections to a broker, except those that are held; pending requests raise `PeerUnreachable`. For
        a broker that may never answer. A later request opens a connection again."""
        ...

    async def close(self) -> None:
        """Closes every connection; pending requests raise `PeerUnreachable`."""
        ...
