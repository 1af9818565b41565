"""Where a client gets its bearer token for OAUTHBEARER.

    sasl.oauthbearer.token.endpoint.url=file:///path    a file with the token, read again for each connection
    ... tokenEnvironment="NAME" in sasl.jaas.config     a variable of the environment
    sasl.oauthbearer.token.endpoint.url=https://...     client credentials (RFC 6749, 4.4)
        sasl.oauthbearer.client.credentials.client.id, .client.secret; or clientId, clientSecret in sasl.jaas.config
        sasl.oauthbearer.scope; or scope in sasl.jaas.config
        ssl.* in sasl.jaas.config: see `endpoints`

A token of an endpoint is kept until most of its lifetime is over. Secrets go into the request only. An answer is
bounded in size and time, and a redirection is an error, since it would send the secret elsewhere.
Source: Kafka's `HttpJwtRetriever`, `FileJwtRetriever`, KIP-768.
"""

import json
import os
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from headrace.errors import AuthenticationFailed, InvalidConfig
from headrace.network.sasl.endpoints import MakeContext, check_allowed, endpoint_tls
from headrace.network.sasl.http import HttpFailed, http_bytes

URL = "sasl.oauthbearer.token.endpoint.url"
_ID, _SECRET = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"
_ANSWER_BYTES_MAX = 256 << 10
_TIMEOUT_MS = 10_000
_KEPT_PART = 0.8
_ATTEMPTS = 3


class TokenSource(Protocol):
    """Where tokens come from."""

    def token(self) -> str:
        """A token that is valid now. Raises `AuthenticationFailed`."""
        ...


def token_source(sasl: Mapping[str, str], jaas: Mapping[str, str]) -> TokenSource:
    """The source that the options name. Raises `InvalidConfig`."""
    url = sasl.get(URL, "").strip()
    variable = jaas.get("tokenEnvironment", "")
    if variable:
        check_allowed("tokenEnvironment in sasl.jaas.config", f"env:{variable}")
        return _Local(f"the environment's {variable}", lambda: os.environ.get(variable, ""))
    if not url:
        raise InvalidConfig(f"{URL} is not set: give the URL of an endpoint, or file:///PATH of a file with the token")
    check_allowed(URL, url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return _Local(f"the file {path}", lambda: path.read_text())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidConfig(f"{URL} is no URL with https, http or file")
    name = sasl.get(_ID) or jaas.get("clientId", "")
    secret = sasl.get(_SECRET) or jaas.get("clientSecret", "")
    if not (name and secret):
        raise InvalidConfig(f"{URL} names an endpoint, but there is no client: set {_ID} and {_SECRET}")
    if sasl.get("sasl.oauthbearer.header.urlencode", "").lower() == "true":
        name, secret = quote_plus(name), quote_plus(secret)
    timeout_ms = sasl.get("sasl.login.read.timeout.ms", "").strip()
    return _Endpoint(
        url, name, secret, sasl.get("sasl.oauthbearer.scope") or jaas.get("scope", ""),
        int(timeout_ms) if timeout_ms.isdecimal() else _TIMEOUT_MS, endpoint_tls(jaas),
    )  # fmt: skip


class _Local:
    """A token on this machine."""

    def __init__(self, where: str, read: Callable[[], str]) -> None:
        self._where, self._read = where, read

    def token(self) -> str:
        try:
            token = self._read().strip()
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise AuthenticationFailed(f"{self._where} has no token: {why}") from None
        if not token:
            raise AuthenticationFailed(f"{self._where} has no token: it is empty")
        return token


class _Endpoint:
    """Tokens of an endpoint, each kept for a while. One thread asks, the others wait for its answer."""

    def __init__(self, url: str, name: str, secret: str, scope: str, timeout_ms: int, tls: MakeContext | None) -> None:
        self._url, self._timeout_s, self._tls = url, timeout_ms / 1000, tls
        credentials = b64encode(f"{name}:{secret}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {credentials}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._form = urlencode(form).encode()
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def token(self) -> str:
        with self._lock:
            if not self._token or time.time() >= self._until:
                self._token = self._ask()
                self._until = _renewal(self._token, time.time())
            return self._token

    def _ask(self) -> str:
        where = urlsplit(self._url).netloc.rpartition("@")[2]
        try:
            tls = None if self._tls is None else self._tls()
        except InvalidConfig as error:
            raise AuthenticationFailed(f"no token from {where}: {error.message}") from None
        for attempt in range(_ATTEMPTS):
            try:
                answer = http_bytes(
                    self._url, self._timeout_s, _ANSWER_BYTES_MAX, data=self._form, headers=self._headers, tls=tls
                )
                break
            except HttpFailed as error:
                if attempt == _ATTEMPTS - 1 or not error.is_passing:
                    raise AuthenticationFailed(f"no token from {where}: {error}") from None
                time.sleep(0.1 * 2**attempt)
        else:
            raise AssertionError("unreachable")
        try:
            found = json.loads(answer)
        except ValueError:
            raise AuthenticationFailed(f"no token from {where}: the answer is not JSON") from None
        token = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            raise AuthenticationFailed(f"no token from {where}: the answer has no access_token")
        return token


def _renewal(token: str, now_s: float) -> float:
    """When a token should be replaced, in seconds since 1970; at once if it does not say when it expires."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return now_s + _KEPT_PART * max(0.0, float(claims["exp"]) - now_s)
    except (IndexError, KeyError, TypeError, ValueError):
        return now_s
