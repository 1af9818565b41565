"""Verifies bearer tokens: signed JWTs, with the keys of a JWKS in a file or behind a URL.

    token ─▶ thread: its kid among the keys? ─▶ signature ─▶ claims ─▶ whose it is
                          └─ no: read the keys again, not too often, and try once more

Only algorithms with a public key are accepted: a token that says `none`, or HMAC with a public key as its secret, is
refused, whatever the keys are. A changed file counts within a second, whatever its keys are called: a key that has
leaked may have a successor of the same name. Keys are fetched on a thread of its own, within a time and a size, so that
a slow endpoint delays only tokens with unknown keys. With `headrace.sasl.oauthbearer.unsecured.validator.enable` tokens
without a signature are accepted, which is for development only. `ssl.*` in the login module says whom to trust there.
Source: Kafka's `BrokerJwtValidator`, `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from headrace.broker.security.mechanisms import ListenerSettings, login_of, named_jaas
from headrace.broker.security.worker import AuthenticationThreads, HasLeft
from headrace.errors import InvalidConfig
from headrace.network.sasl.endpoints import MakeContext, check_allowed, endpoint_tls
from headrace.network.sasl.http import HttpFailed, http_bytes
from headrace.security.sasl.claims import Expected, InvalidToken, check_claims, read_object, read_unsecured
from headrace.security.sasl.oauthbearer import MECHANISM, UNSECURED, VerifiedToken

log = logging.getLogger(__name__)

_URL = "sasl.oauthbearer.jwks.endpoint.url"
_HANDLER = "sasl.server.callback.handler.class"
_JWKS_BYTES_MAX = 1 << 20
_KEYS_MAX = 1000
_FETCH_S = 10.0
_FETCH_AGAIN_S = {"file": 1.0, "http": 10.0, "https": 10.0}
"""How long after a fetch the keys are not fetched again, whatever tokens say."""

_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The algorithms that a key of a type may verify."""


_Stamp = tuple[int, int, int] | None
"""What changes with a file; None if there is none."""


class _Key(NamedTuple):
    key: Any
    algorithms: tuple[str, ...]


class TokenVerifier:
    """Verifies the tokens of one listener."""

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        verifying: AuthenticationThreads,
        fetching: Executor,
    ) -> None:
        """`fetching`: one thread. Raises `InvalidConfig`."""
        self._loop, self._now_ms, self._verifying, self._fetching = loop, now_ms, verifying, fetching
        self._expected = _expected(settings)
        self._is_unsecured = _is_unsecured(settings)
        self._url = (settings.text(MECHANISM, _URL) or "").strip()
        self._scheme = urlsplit(self._url).scheme
        named = settings.named(MECHANISM, _URL)
        if not self._is_unsecured and self._scheme not in _FETCH_AGAIN_S:
            raise InvalidConfig(f"{named} must be the https, http or file URL of a JWKS, for {MECHANISM}")
        if not self._is_unsecured:
            check_allowed(named, self._url)
        self._tls = _endpoint_tls(settings)
        self._refresh_s = settings.number(MECHANISM, "sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000
        self._keys: Mapping[str, _Key] = {}
        self._fetched_at = self._looked_at = float("-inf")
        self._stamp: _Stamp = None
        self._fetch: asyncio.Task[None] | None = None
        self._jws = PyJWS()

    async def start(self) -> None:
        """Reads the keys. Raises `InvalidConfig` if a file has none; an endpoint is asked again later."""
        if self._is_unsecured:
            log.warning("%s is true: everybody can log in by OAUTHBEARER under any name", UNSECURED)
            return
        await self._refreshed()
        if not self._keys and self._scheme == "file":
            raise InvalidConfig(f"{_URL}={self._url}: there are no keys for signatures in it, or it cannot be read")

    async def verify(self, token: str, has_left: HasLeft) -> VerifiedToken | str:
        """Whose the token is, or why it is refused. Raises `ClientLeft`."""
        try:
            if self._is_unsecured:
                return check_claims(read_unsecured(token), self._expected, self._now_ms())
            if self._loop.time() - self._fetched_at > self._refresh_s:
                self._begin_fetch()
            if self._is_file_changed():
                await self._refreshed()
            for is_last in (False, True):
                payload = await self._verifying.run(partial(self._payload, token, self._keys), has_left)
                if payload is not None:
                    return check_claims(payload, self._expected, self._now_ms())
                if is_last or not await self._refreshed():
                    break
        except InvalidToken as error:
            return f"the token is refused: {error}"
        return "the token is refused: no key has its kid"

    def _payload(self, token: str, keys: Mapping[str, _Key]) -> bytes | None:
        """The signed bytes of a token; None if the key is unknown. On a thread. Raises `InvalidToken`."""
        try:
            header = self._jws.get_unverified_header(token)
            if "crit" in header:
                raise InvalidToken("its header has extensions (crit)")
            kid = header.get("kid")
            key = keys.get(kid) if kid else next(iter(keys.values())) if len(keys) == 1 else None
            if key is None:
                return None
            found = self._jws.decode_complete(token, key.key, algorithms=list(key.algorithms))
        except PyJWTError as error:
            raise InvalidToken(str(error)[:200]) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidToken(f"it is malformed ({type(error).__name__})") from None
        payload = found["payload"]
        assert isinstance(payload, bytes)
        return payload

    def _is_file_changed(self) -> bool:
        """Whether the file is another one than when it was last read. Looks at it once in a while."""
        now = self._loop.time()
        if self._scheme != "file" or now - self._looked_at < _FETCH_AGAIN_S["file"]:
            return False
        self._looked_at = now
        return _stamp(self._url) != self._stamp

    async def _refreshed(self) -> bool:
        """Whether the keys were just fetched; False if that was too short a time ago."""
        if self._fetch is None and self._loop.time() - self._fetched_at < _FETCH_AGAIN_S[self._scheme]:
            return False
        await asyncio.shield(self._begin_fetch())
        return True

    def _begin_fetch(self) -> asyncio.Task[None]:
        if self._fetch is None:
            self._fetched_at = self._loop.time()
            self._fetch = self._loop.create_task(self._fetch_keys())
        return self._fetch

    async def _fetch_keys(self) -> None:
        if self._scheme == "file":
            self._stamp = _stamp(self._url)  # before it is read: it may change meanwhile
        try:
            self._keys = await self._loop.run_in_executor(self._fetching, _read_keys, self._url, self._tls)
        except (InvalidToken, InvalidConfig, HttpFailed, OSError) as error:
            log.warning("the keys of bearer tokens cannot be read: %s", error, extra={"url": _shown(self._url)})
        finally:
            self._fetch = None


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _stamp(url: str) -> _Stamp:
    try:
        found = _path(url).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_keys(url: str, make_tls: MakeContext | None) -> dict[str, _Key]:
    """The keys for signatures, by kid. On a thread."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with _path(url).open("rb") as file:
            data = file.read(_JWKS_BYTES_MAX + 1)
        if len(data) > _JWKS_BYTES_MAX:
            raise InvalidToken(f"the file has more than {_JWKS_BYTES_MAX} bytes")
    else:
        data = http_bytes(url, _FETCH_S, _JWKS_BYTES_MAX, tls=None if make_tls is None else make_tls())
    listed = read_object(data).get("keys")
    found: dict[str, _Key] = {}
    for number, each in enumerate(listed[:_KEYS_MAX] if isinstance(listed, list) else ()):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        kind = each.get("kty")
        algorithms = _ALGORITHMS.get(kind, ()) if isinstance(kind, str) else ()
        if isinstance(each.get("alg"), str):
            algorithms = tuple(name for name in algorithms if name == each["alg"])
        if not algorithms:
            continue
        public = {name: value for name, value in each.items() if name not in ("alg", "d")}
        try:
            key = PyJWK.from_dict(public, algorithm=algorithms[0]).key
        except (PyJWTError, ValueError, TypeError) as error:
            log.warning("a key of bearer tokens is ignored: %s", type(error).__name__)
            continue
        kid = each.get("kid")
        found[kid if isinstance(kid, str) else f"#{number}"] = _Key(key, algorithms)
    return found


def _endpoint_tls(settings: ListenerSettings) -> MakeContext | None:
    """TLS with the endpoint, by `ssl.*` in the login module, if there is one. Raises `InvalidConfig`."""
    if not (settings.text(MECHANISM, "sasl.jaas.config") or "").strip():
        return None
    module = login_of(settings, MECHANISM, "")
    try:
        return endpoint_tls(module.options)
    except InvalidConfig as error:
        raise named_jaas(error, settings.named(MECHANISM, "sasl.jaas.config")) from None


def _shown(url: str) -> str:
    """A URL without a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _expected(settings: ListenerSettings) -> Expected:
    def text(name: str) -> str:
        return (settings.text(MECHANISM, name) or "").strip()

    def words(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text(name).split(",") if part.strip())

    return Expected(
        issuer=text("sasl.oauthbearer.expected.issuer"),
        audience=words("sasl.oauthbearer.expected.audience"),
        scope=words("headrace.sasl.oauthbearer.expected.scope"),
        name_claim=text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=text("sasl.oauthbearer.scope.claim.name") or "scope",
        skew_seconds=settings.number(MECHANISM, "sasl.oauthbearer.clock.skew.seconds"),
    )


def _is_unsecured(settings: ListenerSettings) -> bool:
    """Whether tokens need no signature. Raises `InvalidConfig`."""
    handler = (settings.text(MECHANISM, _HANDLER) or "").strip()
    is_enabled = (settings.text(MECHANISM, UNSECURED) or "").strip().lower() == "true"
    kind = handler.rpartition(".")[2]
    if kind == "OAuthBearerUnsecuredValidatorCallbackHandler":
        if not is_enabled:
            raise InvalidConfig(
                f"{settings.named(MECHANISM, _HANDLER)} accepts tokens without a signature: set {UNSECURED}=true, for "
                f"development only, or remove it and set {_URL}"
            )
    elif handler and kind != "OAuthBearerValidatorCallbackHandler":
        raise InvalidConfig(f"{settings.named(MECHANISM, _HANDLER)} names a Java class, which headrace cannot load")
    return is_enabled
