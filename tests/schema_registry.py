"""A schema registry for tests: the part of Confluent's REST interface that serializers use, over real HTTP.

Ids are given to schemas, whatever their subject; versions to subjects. Errors have Confluent's codes. It keeps the log
of its requests, and checks no schema: the clients under test and confluent-kafka's own are each other's judges.
"""

import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Registry:
    """The schemas, and what was asked."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.failing = 0
        """How many of the next requests are answered with 503."""
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and content."""
        with self._lock:
            self.requests.append(f"{method} {target}")
            if self.failing:
                self.failing -= 1
                return 503, {"error_code": 50301, "message": "not yet"}
            parts = urlsplit(target)
            for route, function in _ROUTES:
                found = re.fullmatch(f"{route}", f"{method} {parts.path}")
                if found:
                    names = [unquote(each) for each in found.groups()]
                    return function(self, *names, body=body, query=parse_qs(parts.query))  # type: ignore[no-any-return]
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def register(self, subject: str, body: dict[str, Any], **_: Any) -> tuple[int, Any]:
        number = self._number(body)
        if number is None:
            self.schemas.append(_plain(body))
            number = len(self.schemas)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, self._version(subject, versions.index(number))

    def lookup(self, subject: str, body: dict[str, Any], **_: Any) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = self._number(body)
        if number not in self.subjects[subject]:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._version(subject, self.subjects[subject].index(number))

    def version(self, subject: str, version: str, **_: Any) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        index = len(versions) - 1 if version == "latest" else int(version) - 1
        if not 0 <= index < len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, self._version(subject, index)

    def by_id(self, number: str, **_: Any) -> tuple[int, Any]:
        if not 0 < int(number) <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, {**self.schemas[int(number) - 1], "guid": _guid(int(number))}

    def by_guid(self, guid: str, **_: Any) -> tuple[int, Any]:
        for number in range(1, len(self.schemas) + 1):
            if _guid(number) == guid:
                return 200, {**self.schemas[number - 1], "guid": guid, "id": number}
        return 404, {"error_code": 40403, "message": f"Schema {guid} not found"}

    def _number(self, body: dict[str, Any]) -> int | None:
        plain = _plain(body)
        return self.schemas.index(plain) + 1 if plain in self.schemas else None

    def _version(self, subject: str, index: int) -> dict[str, Any]:
        number = self.subjects[subject][index]
        place = {"subject": subject, "version": index + 1, "id": number, "guid": _guid(number)}
        return {**self.schemas[number - 1], **place}


_ROUTES: list[tuple[str, Any]] = [
    ("POST /subjects/([^/]+)/versions", Registry.register),
    ("POST /subjects/([^/]+)", Registry.lookup),
    (r"GET /subjects/([^/]+)/versions/(\d+|latest)", Registry.version),
    (r"GET /schemas/ids/(\d+)", Registry.by_id),
    (r"GET /schemas/guids/([^/]+)", Registry.by_guid),
]


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    kept = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
    return {key: value for key, value in kept.items() if (key, value) != ("schemaType", "AVRO")}


def _guid(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))


@contextmanager
def serving() -> Iterator[tuple[str, Registry]]:
    """An address, and the registry that answers there."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.authorizations.append(self.headers.get("Authorization"))
            status, content = registry.answer(self.command, self.path, json.loads(data or b"{}"))
            answer = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _do  # the names of http.server

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
