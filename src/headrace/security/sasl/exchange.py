"""What SASL mechanisms have in common: the outcomes of a step, and the failures of an exchange.

    server:  respond(message) -> Challenge      send it, and wait for the next message
                                 Authenticated  send its bytes; the exchange is over
                                 Unverified     verify the token, then call `verified` or `refused`
                                 Blocking       run it on a thread: its result is one of the first two
    client:  respond(message) -> bytes to send; the first call has no message; `is_complete` after the last one

A server's failure is one of two, as in Apache Kafka. `ExchangeRefused` has a text for the peer. `Malformed` has none:
the peer is told only which mechanism failed, and the log has the reason. Neither text tells whether a user exists.
Source: Kafka's `SaslServerAuthenticator`, javax.security.sasl.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class ExchangeRefused(ValueError):
    """An exchange that fails with a text for the peer."""


class Malformed(ValueError):
    """An exchange that fails with a reason for the log only: a message of the wrong form, or a wrong proof."""


class Challenge(NamedTuple):
    """A message to the client, which has to respond."""

    data: bytes


class Authenticated(NamedTuple):
    """The end of an exchange."""

    data: bytes | None
    """The last message to the client; may be empty. None: there is none, as of GSSAPI, so that nothing is sent to a
    client whose messages have no requests around them."""
    name: str
    """The name of the user, without its type."""
    is_token: bool = False
    """Whether the client had a delegation token of the user instead of a password."""
    expires_at_ms: int | None = None
    """When the credential expires, in ms since 1970; None if it does not."""


class Unverified(NamedTuple):
    """A token that the caller has to verify before the exchange can continue."""

    token: str


class Blocking(NamedTuple):
    """A step that may block: it calls a library that reads files."""

    work: Callable[[], Challenge | Authenticated]
    """Raises `ExchangeRefused`, `Malformed`."""


Step = Challenge | Authenticated | Unverified | Blocking


class ServerExchange(Protocol):
    """The server's side of one exchange."""

    mechanism: str
    claimed: str
    """The name that the client says to have, for the log; empty while unknown."""
    has_large_messages: bool
    """Whether a message may have more than `AUTHENTICATION_FRAME_BYTES_MAX` bytes."""

    @property
    def reason(self) -> str:
        """Why a failure happens that has only a text for the peer; else empty."""

    def respond(self, message: bytes) -> Step:
        """Takes the client's next message. Raises `ExchangeRefused`, `Malformed`."""


class ClientExchange(Protocol):
    """The client's side of one exchange."""

    mechanism: str

    @property
    def is_complete(self) -> bool:
        """Whether the client expects no further message."""

    def respond(self, message: bytes | None) -> bytes:
        """The client's first message (None), or its response to the server's. Raises `ExchangeRefused` if the server
        cannot be trusted."""
