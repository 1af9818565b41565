"""PLAIN: name and password in one message (RFC 4616).

    message:  [authzid] NUL name NUL password           UTF-8

Use it over TLS only. Source: Kafka's `PlainSaslServer`, `PlainSaslClient`.
"""

import hmac
from collections.abc import Callable

from headrace.security.sasl.exchange import Authenticated, Blocking, ExchangeRefused, Malformed

MECHANISM = "PLAIN"

OTHER_AUTHZID = "Authentication failed: Client requested an authorization id that is different from username"


class PlainServer:
    """The server's side."""

    mechanism = MECHANISM
    has_large_messages = False
    reason = ""

    def __init__(
        self, password_of: Callable[[str], str | None], is_stored: Callable[[str, str], bool] | None = None
    ) -> None:
        """`password_of`: the password of a user, None for an unknown one. `is_stored`: whether a name has a stored
        credential that a password fits; it takes milliseconds, for any name, and may run on any thread."""
        self._password_of, self._is_stored = password_of, is_stored
        self.claimed = ""

    def respond(self, message: bytes) -> Authenticated | Blocking:
        """See `ServerExchange`. A wrong password and an unknown user cost the same and are told the same."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise Malformed("the message is not UTF-8") from None
        if len(parts) != 3:
            raise ExchangeRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, self.claimed, password = parts
        if not self.claimed:
            raise ExchangeRefused("Authentication failed: username not specified")
        if not password:
            raise ExchangeRefused("Authentication failed: password not specified")
        expected = self._password_of(self.claimed)
        is_right = bool(_is_equal(expected or "", password) and expected)
        if self._is_stored is None:
            return self._decided(authzid, is_right=is_right)
        is_stored, name = self._is_stored, self.claimed
        return Blocking(lambda: self._decided(authzid, is_right=is_stored(name, password) or is_right))

    def _decided(self, authzid: str, *, is_right: bool) -> Authenticated:
        if not is_right:
            raise ExchangeRefused("Authentication failed: Invalid username or password")
        if authzid and authzid != self.claimed:
            raise ExchangeRefused(OTHER_AUTHZID)
        return Authenticated(b"", self.claimed)


def _is_equal(one: str, other: str) -> bool:
    """Compares digests, so that the time tells nothing, not even a length."""
    return hmac.compare_digest(_digest(one), _digest(other))


def _digest(text: str) -> bytes:
    return hmac.digest(b"headrace PLAIN", text.encode(), "sha256")


class PlainClient:
    """The client's side."""

    mechanism = MECHANISM

    def __init__(self, name: str, password: str) -> None:
        self._name, self._password = name, password
        self.is_complete = False

    def respond(self, message: bytes | None) -> bytes:
        """See `ClientExchange`."""
        if self.is_complete:
            if message:
                raise ExchangeRefused("the server sent a challenge, which PLAIN does not have")
            return b""
        self.is_complete = True
        return f"\0{self._name}\0{self._password}".encode()
