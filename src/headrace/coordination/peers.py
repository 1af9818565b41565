"""The way from one broker to another, as those who use it see it: a request out, its answer back.

Who asks: the controller (LeaderAndIsr, UpdateMetadata, StopReplica), leaders (AlterPartition, to the controller),
followers (Fetch, OffsetForLeaderEpoch), and brokers that hand a client's wish on to the controller. Over sockets it is
`broker.peer_links`; a simulation has another.
"""

from typing import NamedTuple, Protocol, TypeVar

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.message import Message
from headrace.types import BrokerId

R = TypeVar("R", bound=Message)
"""The class of the answer."""


class PeerAddress(NamedTuple):
    """Where a broker listens for other brokers."""

    id: BrokerId
    host: str
    port: int


class PeerUnreachable(KafkaError):
    """There is no answer: no connection, it broke, or the time was up. Whether the request was done is not known."""

    code = ErrorCode.NETWORK_EXCEPTION


class PeerRefused(PeerUnreachable):
    """Its machine answered that nobody listens there: the process is gone, where silence would say nothing."""


class Held(Protocol):
    """A connection that is there only to be seen breaking."""

    async def broken(self) -> None:
        """Returns when it is over, whoever ended it."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Peers(Protocol):
    """Connections to the other brokers of a cluster, made when first used, made anew after they broke."""

    async def ask(self, to: PeerAddress, request: Message, answer: type[R], *, timeout_ms: int, lane: str = "") -> R:
        """The decoded answer. Requests of one `lane` to one broker are sent, and answered, in the order of the calls;
        each lane has its connection, so that a long poll holds up nobody else. Raises `PeerUnreachable`."""
        ...

    async def hold(self, to: PeerAddress, *, timeout_ms: int) -> Held:
        """A connection of its own to a broker that has answered on it; the caller closes it. Raises `PeerUnreachable`,
        `PeerRefused`; it tries once, without pauses."""
        ...

    async def close(self) -> None:
        """Ends every connection; whoever waits gets `PeerUnreachable`."""
        ...
