"""A client of a schema registry, by the REST interface of Confluent's. Threads may share it.

Schemas never change once they are registered, so each is asked for once. What a registry does not know is asked for
again after some seconds, and the newest version of a subject after `latest_seconds`. urllib3 does the HTTP.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

from headrace.client.serializers.errors import RegistryError, RegistryUnavailable, missing_library
from headrace.client.serializers.registry.schemas import AVRO, Reference, Registered, Schema
from headrace.errors import InvalidConfig

T = TypeVar("T")

_TYPE = "application/vnd.schemaregistry.v1+json"
_RETRIES, _BACKOFF_S = 3, 0.1
_TRANSIENT = (429, 500, 502, 503, 504)
_ANSWER_BYTES_MAX = 16 << 20
_CACHED_MAX = 10_000
_MISSING_SECONDS = 5.0


class SchemaRegistry:
    """One registry, at one or several addresses, of which the first that answers is asked."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: str | Callable[[], str] | None = None,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        latest_seconds: float = 300.0,
    ) -> None:
        """`url` may have a user and a password. `bearer_token` is called for each request. Raises InvalidConfig."""
        try:
            import urllib3
        except ModuleNotFoundError:
            raise missing_library("urllib3", "registry", "a schema registry") from None
        given = [part for each in ([url] if isinstance(url, str) else url) for part in each.split(",")]
        parsed = [urlsplit(each.strip().rstrip("/")) for each in given]
        self._urls = [each._replace(netloc=each.netloc.rpartition("@")[2]).geturl() for each in parsed]
        if not self._urls or any(each.scheme not in ("http", "https") or not each.hostname for each in parsed):
            raise InvalidConfig(f"a registry's address is http://HOST:PORT or https://HOST:PORT, not {self._urls}")
        if basic_auth is None and parsed[0].username is not None:
            basic_auth = parsed[0].username, parsed[0].password or ""
        self._headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE, **(headers or {})}
        if basic_auth is not None:
            self._headers |= urllib3.make_headers(basic_auth=":".join(basic_auth))
        self._token = bearer_token
        self._errors = urllib3.exceptions.HTTPError
        retries = urllib3.Retry(
            _RETRIES, backoff_factor=_BACKOFF_S, status_forcelist=_TRANSIENT, allowed_methods=None, redirect=0,
            raise_on_status=False, raise_on_redirect=False,
        )  # fmt: skip
        self._http = urllib3.PoolManager(ssl_context=ssl_context, timeout=timeout_s, retries=retries)
        self._latest_seconds = latest_seconds
        self._lock = threading.Lock()
        self._known: dict[Hashable, Any] = {}
        self._until: dict[Hashable, tuple[float, Any]] = {}

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(self._urls)})"  # no headers: they have secrets

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """The schema under the subject, which is registered if it is not. Raises RegistryError."""
        path = f"/subjects/{quote(subject, '')}/versions?normalize={str(normalize).lower()}"

        def ask() -> Registered:
            found = self._ask("POST", path, _body_of(schema))
            return Registered(int(found["id"]), schema, _guid(found), found.get("version"))

        return self._cached(("register", subject, schema, normalize), ask)

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """The schema as it is registered under the subject. RegistryError if it is not."""
        path = f"/subjects/{quote(subject, '')}?normalize={str(normalize).lower()}"

        def ask() -> Registered:
            found = self._ask("POST", path, _body_of(schema))
            return Registered(int(found["id"]), schema, _guid(found), found.get("version"))

        return self._cached(("lookup", subject, schema, normalize), ask)

    def latest(self, subject: str) -> Registered:
        """The newest version of a subject. Raises RegistryError."""
        path = f"/subjects/{quote(subject, '')}/versions/latest"
        return self._cached(("latest", subject), lambda: self._version(path), self._latest_seconds)

    def version(self, subject: str, version: int) -> Registered:
        """A version of a subject, also one that was deleted softly. Raises RegistryError."""
        path = f"/subjects/{quote(subject, '')}/versions/{version}?deleted=true"
        return self._cached(("version", subject, version), lambda: self._version(path))

    def schema(self, key: int | UUID, *, serialized: bool = False) -> Schema:
        """The schema of an id or guid; `serialized` asks for Protobuf in base64. Raises RegistryError."""
        place = f"/schemas/guids/{key}" if isinstance(key, UUID) else f"/schemas/ids/{key}"
        path = f"{place}?format=serialized" if serialized else place
        return self._cached(("schema", key, serialized), lambda: _schema_of(self._ask("GET", path)))

    def _version(self, path: str) -> Registered:
        found = self._ask("GET", path)
        return Registered(int(found["id"]), _schema_of(found), _guid(found), found.get("version"))

    def _cached(self, key: Hashable, ask: Callable[[], T], seconds: float | None = None) -> T:
        """What `ask` returns, once. A refusal is remembered too: a topic may have many records of an unknown schema."""
        if key in self._known:
            found: T = self._known[key]
            return found
        kept = self._until.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            if isinstance(kept[1], RegistryError):
                raise kept[1]
            fresh: T = kept[1]
            return fresh
        try:
            asked = ask()
        except RegistryError as error:
            self._keep(self._until, key, (time.monotonic() + _MISSING_SECONDS, error))
            raise
        if seconds is None:
            self._keep(self._known, key, asked)
        else:
            self._keep(self._until, key, (time.monotonic() + seconds, asked))
        return asked

    def _keep(self, where: dict[Hashable, Any], key: Hashable, value: Any) -> None:
        with self._lock:
            where[key] = value
            while len(where) > _CACHED_MAX:
                del where[next(iter(where))]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = dict(self._headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token if isinstance(self._token, str) else self._token()}"
        data = None if body is None else json.dumps(body).encode()
        cause: Exception | None = None
        for url in self._urls:
            try:
                answer = self._http.request(method, url + path, body=data, headers=headers, preload_content=False)
                content = answer.read(_ANSWER_BYTES_MAX + 1)
                answer.release_conn()
            except self._errors as error:
                cause = error
                continue
            return _content(answer.status, content, f"{method} {url}{path}")
        raise RegistryUnavailable(f"no registry answers at {', '.join(self._urls)}: {cause}") from cause

    def close(self) -> None:
        """Close the connections; a later call opens others."""
        self._http.clear()


def _content(status: int, content: bytes, request: str) -> Any:
    """The answer's JSON. Raises RegistryError for an error, RegistryUnavailable for one that passes."""
    try:
        if len(content) > _ANSWER_BYTES_MAX:
            raise ValueError(f"more than {_ANSWER_BYTES_MAX} bytes")
        found = json.loads(content)
    except ValueError:
        found = None
    if status == 200 and isinstance(found, dict):
        return found
    said = found.get("message") if isinstance(found, dict) else content[:200].decode("utf-8", "replace")
    kind = RegistryUnavailable if status in _TRANSIENT or status in (401, 403) else RegistryError
    raise kind(f"the registry answers {status} to {request}: {said}")


def _body_of(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references
        ]
    return body


def _schema_of(found: Mapping[str, Any]) -> Schema:
    references = tuple(
        Reference(each["name"], each["subject"], each["version"]) for each in found.get("references") or ()
    )
    return Schema(found["schema"], found.get("schemaType") or AVRO, references)


def _guid(found: Mapping[str, Any]) -> UUID | None:
    given = found.get("guid")
    return None if given is None else UUID(given)
