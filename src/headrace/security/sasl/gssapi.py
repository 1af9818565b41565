"""GSSAPI: Kerberos (RFC 4752). The security context is the caller's, since a library keeps it.

    client ─▶ token of the context, until both sides have it ◀─ server
    client ─▶ empty
                 security layers (1 byte), largest message (3 bytes); wrapped    ◀─ server
    client ─▶ the chosen layer (1 byte), largest message (3 bytes), authzid; wrapped

The server offers no layer but "none", since TLS is what encrypts; the largest message is then 0. The authzid is not
read: the ticket says who the client is, as in Apache Kafka, which authorizes each client as its authentication id.
Java's clients send their principal there, kafka-python the name of the service. Nothing follows the client's last
message. Steps of the server are `Blocking`: the library reads the key table and its replay cache.
Source: RFC 4752, the JDK's GssKrb5Server and GssKrb5Client, Kafka's `SaslServerCallbackHandler`.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol

from headrace.security.kerberos_names import NoName
from headrace.security.sasl.exchange import Authenticated, Blocking, Challenge, ExchangeRefused, Malformed

MECHANISM = "GSSAPI"

TOKEN_TAG = 0x60
"""The first byte of a context's first token (RFC 2743, 3.1). No request of Kafka begins with it."""

_NO_LAYER = 1
_LAYER = bytes([_NO_LAYER, 0, 0, 0])


class SecurityContext(Protocol):
    """One side of a security context. Each method may block."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other."""

    def step(self, token: bytes | None) -> bytes:
        """Takes the peer's token, None at the initiator's beginning. Returns the token for the peer; may be empty."""

    def wrap(self, message: bytes) -> bytes:
        """A message with a proof that it comes from this side."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """The message within."""


class AcceptorContext(SecurityContext, Protocol):
    """The server's side. Its methods raise `Malformed`."""

    @property
    def client(self) -> str:
        """The client's principal, of a complete context."""


class _Stage(Enum):
    CONTEXT = auto()
    LAYERS = auto()
    """The server offers its layers next."""
    CHOICE = auto()
    """The client has to choose, or has chosen."""


class GssapiServer:
    """The server's side of one exchange."""

    mechanism = MECHANISM
    has_large_messages = True  # tickets of Active Directory carry the groups of a user
    reason = ""

    def __init__(self, context: AcceptorContext, name_of: Callable[[str], str]) -> None:
        """`name_of`: the name of a principal; raises `NoName`."""
        self.claimed = ""
        self._context: AcceptorContext | None = context
        self._name_of = name_of
        self._stage = _Stage.CONTEXT

    def respond(self, message: bytes) -> Blocking:
        """See `ServerExchange`."""
        return Blocking(partial(self._step, message))

    def _step(self, message: bytes) -> Challenge | Authenticated:
        context = self._context
        if context is None:
            raise Malformed("a message behind the end of the exchange")
        match self._stage:
            case _Stage.CONTEXT:
                return self._establish(context, message)
            case _Stage.LAYERS:
                if message:
                    raise Malformed("a message where an empty one is expected, before the security layers")
                return self._offer(context)
            case _:
                return self._authenticate(context, message)

    def _establish(self, context: AcceptorContext, message: bytes) -> Challenge:
        if not message:
            return Challenge(b"")  # a client that waits for the server to begin
        token = context.step(message)
        if not context.is_complete:
            return Challenge(token)
        self.claimed = context.client
        self._stage = _Stage.LAYERS
        return Challenge(token) if token else self._offer(context)

    def _offer(self, context: AcceptorContext) -> Challenge:
        self._stage = _Stage.CHOICE
        return Challenge(context.wrap(_LAYER))

    def _authenticate(self, context: AcceptorContext, message: bytes) -> Authenticated:
        chosen = context.unwrap(message)
        if len(chosen) < len(_LAYER):
            raise Malformed(f"the choice of a security layer has {len(chosen)} bytes instead of {len(_LAYER)} or more")
        if chosen[0] != _NO_LAYER:
            raise Malformed(f"the client chose the security layer {chosen[0]}, which was not offered")
        try:
            name = self._name_of(self.claimed)
        except NoName as error:
            raise Malformed(str(error)) from None
        self._context = None  # it is not needed any more, and takes memory of the library
        return Authenticated(None, name)


class GssapiClient:
    """The client's side of one exchange."""

    mechanism = MECHANISM

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._stage = _Stage.CONTEXT
        self.is_complete = False

    def respond(self, message: bytes | None) -> bytes:
        """See `ClientExchange`. May ask a key distribution centre, and wait for it."""
        match self._stage:
            case _Stage.CONTEXT:
                if message == b"":
                    raise ExchangeRefused("the server did not answer with a token of Kerberos")
                token = self._context.step(message)
                if self._context.is_complete:
                    self._stage = _Stage.LAYERS
                return token
            case _Stage.LAYERS:
                offered = self._context.unwrap(message or b"")
                if len(offered) != len(_LAYER) or not offered[0] & _NO_LAYER:
                    raise ExchangeRefused("the server demands a security layer of SASL: use TLS instead (SASL_SSL)")
                self._stage = _Stage.CHOICE
                return self._context.wrap(_LAYER)
            case _:
                if message:
                    raise ExchangeRefused("the server sent a message behind the end of the exchange")
                self.is_complete = True
                return b""
