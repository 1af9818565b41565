"""One request over HTTP or HTTPS, bounded in size and time, without redirections. Blocks: not for an event loop."""

import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

if TYPE_CHECKING:
    from ssl import SSLContext

_CHUNK_BYTES = 64 << 10


class HttpFailed(Exception):
    """Why there is no answer. `is_passing`: whether another try may succeed."""

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def http_bytes(
    url: str,
    timeout_s: float,
    bytes_max: int,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: "SSLContext | None" = None,
) -> bytes:
    """The body of the answer: to a POST if there is `data`, else to a GET. `tls`: other trust than the system's. Raises
    `HttpFailed`."""
    deadline = time.monotonic() + timeout_s
    try:
        handlers = [_NoRedirection(), *([HTTPSHandler(context=tls)] if tls is not None else [])]
        with build_opener(*handlers).open(Request(url, data, dict(headers or {})), timeout=timeout_s) as answer:
            return _bounded(answer, bytes_max, deadline)
    except HTTPError as error:
        error.close()
        raise HttpFailed(f"status {error.code}", is_passing=error.code >= 500) from None
    except URLError as error:
        raise HttpFailed(str(error.reason), is_passing=True) from None
    except (OSError, HTTPException, ValueError) as error:
        raise HttpFailed(str(error) or type(error).__name__, is_passing=True) from None


def _bounded(answer: IO[bytes], bytes_max: int, deadline: float) -> bytes:
    parts = bytearray()
    while part := answer.read1(_CHUNK_BYTES) if hasattr(answer, "read1") else answer.read(_CHUNK_BYTES):
        parts += part
        if len(parts) > bytes_max:
            raise HttpFailed(f"an answer of more than {bytes_max} bytes")
        if time.monotonic() > deadline:
            raise HttpFailed("the answer took too long", is_passing=True)
    return bytes(parts)
