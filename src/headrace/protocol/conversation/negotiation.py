"""Version negotiation: the ApiVersions exchange at the start of a connection.

    send ApiVersions in the newest version
      response in that version                    use its ranges
      error 35, body in version 0                 send it again in the highest version that the body lists for
                                                  ApiVersions, or 0 if it lists none (before Kafka 2.4)

The error code is the first two bytes of the body in every version. Source: KIP-511.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode, KafkaError, UnsupportedVersion, known_code
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header
from headrace.version import __version__

if TYPE_CHECKING:
    Negotiation = Generator[tuple[m.ApiVersionsRequest, int], memoryview, "Negotiated"]

_HEADER_BYTES = 4


class Negotiated(NamedTuple):
    """The answer of a peer."""

    versions: Mapping[int, tuple[int, int]]
    """The first and last version of each API key."""
    features: Mapping[str, int]
    """The level of each finalized feature (KIP-584)."""


_SOFTWARE_NAME = "headrace"


def negotiation(peer: str) -> Negotiation:
    """Negotiates with `peer`: yields a request and its version, is sent the response with its header, and returns the
    outcome. Raises `KafkaError` if the peer refuses, `InvalidRequest` on a malformed response."""
    request = m.ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=__version__)
    version = m.ApiVersionsRequest.VERSIONS[-1]
    frame = yield request, version
    if version and _is_too_new(frame):
        version = _fallback(frame, version)
        frame = yield request, version
        if version and _is_too_new(frame):
            raise UnsupportedVersion(f"{peer} refuses ApiVersions version {version}, although it claims to support it")
    _, pos = read_response_header(frame, ApiKey.API_VERSIONS, version)
    answer, _ = m.ApiVersionsResponse.decode(version, frame, pos)
    if answer.error_code:
        code = answer.error_code
        raise KafkaError(f"{peer} refused ApiVersions with error code {code}", known_code(code))
    return Negotiated(
        {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys},
        {each.name: each.max_version_level for each in answer.finalized_features},
    )


def _is_too_new(frame: memoryview) -> bool:
    return int.from_bytes(frame[_HEADER_BYTES : _HEADER_BYTES + 2], "big") == ErrorCode.UNSUPPORTED_VERSION


def _fallback(frame: memoryview, version: int) -> int:
    """The version for the next request after `version` was too new."""
    refused, _ = m.ApiVersionsResponse.decode(0, frame, _HEADER_BYTES)
    listed = [each.max_version for each in refused.api_keys if each.api_key == ApiKey.API_VERSIONS]
    return max(0, min(listed[0], version - 1)) if listed else 0


def common_version(peer: str, api_key: int, spoken: tuple[int, int], served: tuple[int, int] | None) -> int:
    """The newest version in both ranges (each first and last): `spoken` of headrace, `served` of `peer`. Raises
    `UnsupportedVersion`, which names both. Of headrace's own APIs a peer names no range: it is expected to be headrace,
    and another closes the connection."""
    name = ApiKey(api_key).name
    if ApiKey(api_key).is_own:
        return spoken[1]
    if served is None:
        raise UnsupportedVersion(f"{peer} does not support {name}")
    version = min(spoken[1], served[1])
    if version < max(spoken[0], served[0]):
        raise UnsupportedVersion(
            f"{peer} supports {name} versions {served[0]}-{served[1]}, but headrace supports {spoken[0]}-{spoken[1]}"
        )
    return version
