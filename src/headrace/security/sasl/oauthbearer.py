"""OAUTHBEARER: a bearer token, with extensions (RFC 7628).

    client first    n,[a=AUTHZID],SOH auth=Bearer TOKEN SOH [KEY=VALUE SOH]... SOH
    server          empty, if the token is valid
                    {"status":"invalid_token"}   else; the client responds with one SOH, and the exchange has failed

The server asks its caller to verify the token (`Unverified`), since that may need keys from elsewhere. The text of a
failure says nothing about the reason; the log does. Extensions are read and ignored.
Source: Kafka's `OAuthBearerSaslServer`, `OAuthBearerClientInitialResponse`.
"""

import re
from collections.abc import Mapping

from headrace.security.sasl.exchange import Authenticated, Challenge, ExchangeRefused, Malformed, Unverified

MECHANISM = "OAUTHBEARER"
UNSECURED = "headrace.sasl.oauthbearer.unsecured.validator.enable"
"""The setting by which tokens need no signature."""

_SOH = "\x01"
_INVALID = '{"status":"invalid_token"}'
_NAME = r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+={_VALUE}\x01)*)\x01")
_AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)")
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(_VALUE)


class VerifiedToken:
    """The name that a token proves, and when it expires, in ms since 1970."""

    __slots__ = ("expires_at_ms", "name")

    def __init__(self, name: str, expires_at_ms: int) -> None:
        self.name, self.expires_at_ms = name, expires_at_ms


class OAuthBearerServer:
    """The server's side."""

    mechanism = MECHANISM
    has_large_messages = True

    def __init__(self) -> None:
        self.claimed = ""
        self._authzid = ""
        self._reason = ""

    def respond(self, message: bytes) -> Unverified:
        """See `ServerExchange`."""
        if self._reason:
            if message == _SOH.encode():
                raise ExchangeRefused(_INVALID)
            raise Malformed(self._reason)
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise Malformed("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.partition("=")[::2] for pair in found[2].split(_SOH) if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None:
            raise Malformed("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        if auth[1].lower() != "bearer":
            raise Malformed("Invalid scheme in OAUTHBEARER client first message")
        self._authzid = (found[1] or "").replace("=2C", ",").replace("=3D", "=")
        return Unverified(auth[2])

    def verified(self, token: VerifiedToken) -> Authenticated:
        """The token is valid. Raises `ExchangeRefused`."""
        self.claimed = token.name
        if self._authzid and self._authzid != token.name:
            raise ExchangeRefused(
                f"Authentication failed: Client requested an authorization id ({self._authzid}) that is different from "
                f"the token's principal name ({token.name})"
            )
        return Authenticated(b"", token.name, expires_at_ms=token.expires_at_ms)

    def refused(self, reason: str) -> Challenge:
        """The token is not valid; `reason` is for the log."""
        self._reason = reason
        return Challenge(_INVALID.encode())

    @property
    def reason(self) -> str:
        """Why the token was refused."""
        return self._reason


class OAuthBearerClient:
    """The client's side."""

    mechanism = MECHANISM

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises `ValueError` for a token or an extension that cannot be sent; it does not show the token."""
        if _AUTH.fullmatch(f"Bearer {token}") is None:
            raise ValueError("the token has characters that a bearer token cannot have")
        for name, value in (extensions or {}).items():
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the extension {name!r} or its value has characters that are not allowed")
        self._token, self._extensions = token, extensions or {}
        self._is_sent = False
        self.is_complete = False

    def respond(self, message: bytes | None) -> bytes:
        """See `ClientExchange`. A failure is confirmed to the server, which then says what it is."""
        if message is None:
            self._is_sent = True
            pairs = "".join(f"{name}={value}{_SOH}" for name, value in self._extensions.items())
            return f"n,,{_SOH}auth=Bearer {self._token}{_SOH}{pairs}{_SOH}".encode()
        if message:
            return _SOH.encode()
        self.is_complete = True
        return b""


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Malformed("the message is not UTF-8") from None
