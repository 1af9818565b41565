"""Delegation tokens: what one is, whom it concerns, and its HMAC. Pure.

A token is a short-lived password of its owner, for jobs that should not have the real one. Its id is its name in SCRAM,
and the HMAC of its id is its password, in base64. Brokers compute the HMAC with `delegation.token.secret.key`; it is
stored nowhere. Principals are texts: `User:alice`.
Source: Kafka's `TokenInformation`, `DelegationTokenManager`, KIP-48, KIP-373.
"""

import hmac
from base64 import b64encode
from typing import NamedTuple


class DelegationToken(NamedTuple):
    """A token. Times are in ms since 1970."""

    id: str
    owner: str
    requester: str
    """The principal that asked for it: the owner, or another that may create tokens of the owner."""
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    """The end that no renewal can move."""
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether it is over."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def concerns(self, principal: str) -> bool:
        """Whether the principal may see it."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def may_renew(self, principal: str) -> bool:
        """Whether the principal may move its end."""
        return principal == self.owner or principal in self.renewers


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """The HMAC of a token."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def password_of(digest: bytes) -> str:
    """The password of a token in SCRAM."""
    return b64encode(digest).decode()
