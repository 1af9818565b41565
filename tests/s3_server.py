"""An object store for tests: the part of S3's interface that the table library uses, over real HTTP.

Objects are in memory; signatures are not checked. Writes are conditional on demand (`If-None-Match: *`), on which the
fencing of commits rests.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

Answer = tuple[int, bytes, dict[str, str]]


class Store:
    """The objects by bucket and key, and how many requests of each method there were."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.rivals: dict[str, bytes] = {}
        """Objects, by the end of their name, that somebody else writes just before the next conditional write."""
        self.refused = 0
        self.failing = 0
        """How many of the next writes are answered with 503."""
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Status, content and headers."""
        parts = urlsplit(target)
        key, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        with self._lock:
            match method:
                case "GET" if "list-type" in query:
                    return self._list(key.rstrip("/"), query)
                case "GET" | "HEAD":
                    return self._get(key, headers)
                case "PUT":
                    return self._put(key, query, headers, body)
                case "POST":
                    return self._post(key, query, body)
                case _:
                    self.objects.pop(key, None)
                    return 204, b"", {}

    def _get(self, key: str, headers: dict[str, str]) -> Answer:
        if key not in self.objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        whole = self.objects[key]
        known = {"ETag": _etag(whole), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if "range" not in headers:
            return 200, whole, known
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        start = len(whole) - int(last) if not first else int(first)
        end = min(len(whole) - 1, int(last)) if first and last else len(whole) - 1
        return 206, whole[start : end + 1], {**known, "Content-Range": f"bytes {start}-{end}/{len(whole)}"}

    def _put(self, key: str, query: dict[str, list[str]], headers: dict[str, str], body: bytes) -> Answer:
        if self.failing:
            self.failing -= 1
            return 503, b"<Error><Code>SlowDown</Code></Error>", {}
        if headers.get("if-none-match") == "*":
            for name in [each for each in self.rivals if key.endswith(each)]:
                self.objects[key] = self.rivals.pop(name)
        if "partNumber" in query:
            self._uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
        elif headers.get("if-none-match") == "*" and key in self.objects:
            self.refused += 1
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        else:
            self.objects[key] = body
        return 200, b"", {"ETag": _etag(body)}

    def _post(self, key: str, query: dict[str, list[str]], body: bytes) -> Answer:
        if "delete" in query:
            bucket = key.rstrip("/")
            for each in ElementTree.fromstring(body).iter():
                if each.tag.endswith("Key"):
                    self.objects.pop(f"{bucket}/{each.text}", None)
            return 200, b"<DeleteResult/>", {}
        if "uploads" in query:
            number = str(next(self._numbers))
            self._uploads[number] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            return 200, text.encode(), {}
        parts = self._uploads.pop(query["uploadId"][0])
        self.objects[key] = b"".join(parts[number] for number in sorted(parts))
        tag = escape(_etag(self.objects[key]))
        return 200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode(), {}

    def _list(self, bucket: str, query: dict[str, list[str]]) -> Answer:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        keys = sorted(name.removeprefix(f"{bucket}/") for name in self.objects if name.startswith(f"{bucket}/"))
        found, folders = [], dict[str, None]()
        for key in keys:
            if not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders[prefix + rest.partition(delimiter)[0] + delimiter] = None
                continue
            content = self.objects[f"{bucket}/{key}"]
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(_etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            )
        found += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
        return 200, text.encode(), {}


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@contextmanager
def serving() -> Iterator[tuple[str, Store]]:
    """A store and its address, until the block ends. The library takes settings from `settings_of`."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, content, more = store.answer(self.command, self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _do  # the names of http.server

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def settings_of(address: str) -> dict[str, str]:
    """The variables by which the library finds a store."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
