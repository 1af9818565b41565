"""Request and response headers.

    request v0    api_key int16 | api_version int16 | correlation_id int32                    ControlledShutdown v0
    request v1    ... | client_id nullable string (int16 length, also where the body is compact)
    request v2    ... | tagged fields                                                         flexible versions
    response v0   correlation_id int32
    response v1   ... | tagged fields                                                         flexible versions

An ApiVersions response always has header v0, because its reader does not know the broker's versions yet. A request of
an unknown version is read as v2 if the API has flexible versions and the version is above them all, so that it gets the
response UNSUPPORTED_VERSION. Source: KIP-482, KIP-511, Kafka's ApiMessageType.
"""

from struct import Struct, error
from typing import NamedTuple

from headrace.errors import InvalidRequest
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema
from headrace.protocol.codec.wire import Buffer, read_uvarint, skip_tags

_FIXED = Struct(">hhih")
_CORRELATION = Struct(">i")
_NEVER = 1 << 15
_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_flexible_from: dict[int, int] = {}  # by known API key, filled as they are first seen


class RequestHeader(NamedTuple):
    """The header of a request; `client_id` is the name that the client chose."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def flexible_from(api_key: int) -> int:
    """The first version of an API with a flexible header; above all versions if there is none."""
    found = _flexible_from.get(api_key)
    if found is None:
        found = _NEVER
        if api_key in ApiKey._value2member_map_:
            declared = schema.load(ApiKey(api_key).title + "Request").flexible_from
            found = _NEVER if declared is None else declared
            _flexible_from[api_key] = found
    return found


def read_request_header(buf: Buffer, pos: int = 0) -> tuple[RequestHeader, int]:
    """(the header at `pos`, the position of the body). Raises InvalidRequest if the header is malformed."""
    view = memoryview(buf)
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(view, pos)
        pos += _FIXED.size
        if api_key == _SHUTDOWN and api_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None), pos - 2
        client_id = None
        if length >= 0:
            client_id = view[pos : pos + length].tobytes().decode()
            pos += length
        elif length < -1:
            raise InvalidRequest("malformed request header: the client id has a negative length")
        if api_version >= flexible_from(api_key):
            count = view[pos]
            pos += 1
            if count:
                pos = skip_tags(view, pos, count)
    except (error, IndexError, UnicodeDecodeError) as cause:
        raise InvalidRequest(f"malformed request header: {cause}") from cause
    if pos > len(view):
        raise InvalidRequest("malformed request header: the header is cut off")
    return RequestHeader(api_key, api_version, correlation_id, client_id), pos


def write_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encodes the header of a request."""
    if api_key == _SHUTDOWN and api_version == 0:
        return _FIXED.pack(api_key, api_version, correlation_id, 0)[:-2]
    name = b"" if client_id is None else client_id.encode()
    fixed = _FIXED.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    return fixed + name + (b"\0" if api_version >= flexible_from(api_key) else b"")


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Encodes the header of a response."""
    return _CORRELATION.pack(correlation_id) + (b"\0" if _is_tagged_response(api_key, api_version) else b"")


def read_response_header(buf: Buffer, api_key: int, api_version: int, pos: int = 0) -> tuple[int, int]:
    """(the correlation id of a response to a request of this key and version, the position of the body)."""
    view = memoryview(buf)
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view, pos)
        pos += _CORRELATION.size
        if _is_tagged_response(api_key, api_version):
            count, pos = read_uvarint(view, pos)
            if count:
                pos = skip_tags(view, pos, count)
    except (error, IndexError) as cause:
        raise InvalidRequest(f"malformed response header: {cause}") from cause
    if pos > len(view):
        raise InvalidRequest("malformed response header: the header is cut off")
    return correlation_id, pos


def _is_tagged_response(api_key: int, api_version: int) -> bool:
    """Whether a response's header ends in tagged fields (v1)."""
    return api_key != _API_VERSIONS and api_version >= flexible_from(api_key)
