"""The HTTP endpoint for Prometheus (`headrace.metrics.listen`): `GET /metrics`, one response per connection.

Counters are read on the event loop, in slices, and rendered on a thread. Without requests the endpoint costs nothing.
It serves HTTP/1.0 and 1.1 as far as a scraper needs them. Requests are not authenticated.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Protocol

from headrace.broker.environment import UNIX
from headrace.errors import InvalidConfig
from headrace.limits import METRICS_REQUEST_BYTES_MAX, METRICS_REQUESTS_AT_ONCE_MAX

log = logging.getLogger(__name__)

PATH = "/metrics"
_WRITE_BYTES = 64 << 10
"""The part of a page that is sent in one turn of the event loop: with thousands of partitions a page has megabytes."""
_PATIENCE_S = 10.0
_TEXT = "text/plain; charset=utf-8"


class ServedPage(Protocol):
    """What the endpoint serves."""

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The page in the format of an `Accept` header, and its content type."""
        ...


def parse_address(text: str) -> tuple[str, int]:
    """Parses `HOST:PORT` or `[::1]:PORT`; without a host it is loopback. Raises `InvalidConfig`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfig(f"headrace.metrics.listen={text!r} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


@asynccontextmanager
async def metrics_endpoint(address: str, page: ServedPage) -> AsyncIterator[tuple[str, int]]:
    """Serves metrics at `address`, HOST:PORT or unix:PATH, while the context is open; yields the bound address, for a
    socket (PATH, 0). Raises `InvalidConfig`, `OSError`."""
    slots, open_now = asyncio.Semaphore(METRICS_REQUESTS_AT_ONCE_MAX), set[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            async with asyncio.timeout(_PATIENCE_S), slots:
                answer = memoryview(await _answer(reader, page))
                for start in range(0, len(answer), _WRITE_BYTES):
                    writer.write(answer[start : start + _WRITE_BYTES])
                    await writer.drain()
                    await asyncio.sleep(0)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        except Exception:
            log.exception("a request to the metrics endpoint failed")
        finally:
            open_now.discard(writer)
            writer.close()

    try:
        if address.startswith(UNIX):
            path = address.removeprefix(UNIX)
            server = await asyncio.start_unix_server(serve, path, limit=METRICS_REQUEST_BYTES_MAX)
            bound = path, 0
        else:
            host, port = parse_address(address)
            server = await asyncio.start_server(serve, host, port, limit=METRICS_REQUEST_BYTES_MAX)
            bound = server.sockets[0].getsockname()[:2]
            log.info("the metrics endpoint is ready", extra={"address": f"http://{bound[0]}:{bound[1]}{PATH}"})
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"headrace.metrics.listen={address}") from error
    try:
        yield bound
    finally:
        server.close()
        for writer in open_now:  # a slow scraper must not delay the broker's stop
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, page: ServedPage) -> bytes:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.LimitOverrunError:
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"", _TEXT)
    words = head[0].split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _response(HTTPStatus.BAD_REQUEST, b"", _TEXT)
    method, target, _ = words
    if method not in ("GET", "HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"", _TEXT)
    if target.partition("?")[0] != PATH:
        return _response(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}\n".encode(), _TEXT)
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body, content_type = await page.render(fields.get("accept", ""))
    return _response(HTTPStatus.OK, body, content_type, with_body=method == "GET")


def _response(status: HTTPStatus, body: bytes, content_type: str, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
