"""The claims of a bearer token: whose it is, and whether it is valid here and now.

    exp             required; clock.skew.seconds of tolerance, as for the next two
    nbf, iat        must not lie in the future
    iss             sasl.oauthbearer.expected.issuer, if that is set
    aud             one of sasl.oauthbearer.expected.audience, if that is set; a text or a list
    scope           must have all of headrace.sasl.oauthbearer.expected.scope; a list, or words in a text
    sub             required: the name of the user

Pure; the signature is checked before. Source: Kafka's `BrokerJwtValidator`, `ClaimValidationUtils`, RFC 7519.
"""

import json
import math
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import NamedTuple

from headrace.security.sasl.oauthbearer import VerifiedToken

_NAME_CHARS_MAX = 1000
_SECONDS_MAX = 1 << 40


class InvalidToken(ValueError):
    """Why a token is refused, without any of its secret parts."""


class Expected(NamedTuple):
    """What a token must claim."""

    issuer: str = ""
    audience: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    name_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


def check_claims(payload: bytes, expected: Expected, now_ms: int) -> VerifiedToken:
    """Whose the token is. Raises `InvalidToken`."""
    claims = read_object(payload)
    now, skew = now_ms / 1000, expected.skew_seconds
    expires = _seconds(claims, "exp")
    if expires is None:
        raise InvalidToken("it does not say when it expires (exp)")
    if now - skew >= expires:
        raise InvalidToken("it has expired")
    for name in ("nbf", "iat"):
        moment = _seconds(claims, name)
        if moment is not None and moment > now + skew:
            raise InvalidToken(f"it is not valid yet ({name})")
    if expected.issuer and claims.get("iss") != expected.issuer:
        raise InvalidToken("it is of another issuer (iss)")
    if expected.audience and not _texts(claims.get("aud"), is_split=False) & set(expected.audience):
        raise InvalidToken("it is for another audience (aud)")
    missing = set(expected.scope) - _texts(claims.get(expected.scope_claim), is_split=True)
    if missing:
        raise InvalidToken(f"it does not have the scope {' '.join(sorted(missing))}")
    name_of = claims.get(expected.name_claim)
    if not isinstance(name_of, str) or not name_of.strip() or len(name_of) > _NAME_CHARS_MAX or not _is_text(name_of):
        raise InvalidToken(f"it names no user ({expected.name_claim})")
    return VerifiedToken(name_of, int(expires * 1000))


def read_unsecured(token: str) -> bytes:
    """The payload of a token with the algorithm none. Raises `InvalidToken`."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise InvalidToken("it is not an unsecured token")
    if read_object(_decoded(parts[0])).get("alg") != "none":
        raise InvalidToken("its algorithm is not none")
    return _decoded(parts[1])


def read_object(data: bytes) -> Mapping[str, object]:
    """A JSON object. Raises `InvalidToken`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidToken("it is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidToken("it is not a JSON object")
    return found


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (NotBase64, ValueError):
        raise InvalidToken("it is not in base64") from None


def _seconds(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"its {name} is not a number")
    if not (math.isfinite(value) and 0 <= value < _SECONDS_MAX):
        raise InvalidToken(f"its {name} is absurd")
    return float(value)


def _is_text(name: str) -> bool:
    """Whether it can be written: JSON may name half of a surrogate pair."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(value: object, *, is_split: bool) -> set[str]:
    if isinstance(value, str):
        return set(value.split()) if is_split else {value}
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
