"""The first exchange on every connection: what does this broker serve?

    ask ApiVersions 4
      answered in version 4                       -> take its ranges
      answered with error 35, body in version 0   -> ask again with the highest version that the body lists for
                                                     ApiVersions itself, or 0 where it lists none (before Kafka 2.4)

The error is told apart by the first two bytes of the body, which every version puts there. Source: KIP-511.
"""

from __future__ import annotations

import headrace
from headrace.client.connection import Connection
from headrace.client.failures import error_for
from headrace.client.timing import Deadline
from headrace.client.versions import SPOKEN, BrokerVersions
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

_HEADER_BYTES = 4
_SOFTWARE_NAME = "headrace"


def negotiate(connection: Connection, deadline: Deadline) -> BrokerVersions:
    """Ask the broker for its versions; to be called before any other request. KafkaError when it refuses."""
    answer, fallback = _ask(connection, SPOKEN[ApiKey.API_VERSIONS][1], deadline)
    if fallback is not None:
        answer, again = _ask(connection, fallback, deadline)
        if again is not None:
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} refuses every ApiVersions version")
    if answer.error_code:
        raise error_for(answer.error_code, f"{connection.address} refused ApiVersions")
    served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    return BrokerVersions(str(connection.address), served)


def _ask(connection: Connection, version: int, deadline: Deadline) -> tuple[m.ApiVersionsResponse, int | None]:
    """The answer, and the version to ask again with when this one was refused."""
    request = m.ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=headrace.__version__)
    pending = connection.send(request, m.ApiVersionsResponse, deadline, version)
    connection.settle(pending, deadline)
    frame = pending.frame()
    refused = int.from_bytes(frame[_HEADER_BYTES : _HEADER_BYTES + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
    if not refused or version == 0:
        return pending.result(), None
    answer, _ = m.ApiVersionsResponse.decode(0, frame, _HEADER_BYTES)
    listed = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
    return answer, min(listed[0], version - 1) if listed else 0
