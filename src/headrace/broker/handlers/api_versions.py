"""ApiVersions (key 18), versions 0-4.

0     the keys that are served, each with its range of versions
1     throttle time
3     the client's software and its version; tagged features
4     a feature's range may begin at 0
Any newer version is answered in version 0's form with UNSUPPORTED_VERSION and the range for this key (KIP-511), so
that the client asks again. Produce has to begin at version 0: librdkafka does not compress for a broker whose range
begins later (KAFKA-18659), and so Apache Kafka 4 says 0, and serves from 3. Here all of it is served.
Features: `group.version` and `transaction.version` at level 0, which is the classic group protocol and transactions
that the client registers. What is at level 0 is not finalized, and versions before 4 do not name it, as in Kafka.
"""

from __future__ import annotations

from headrace.broker.context import RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.API_VERSIONS
VERSIONS = range(5)

FEATURES = {"group.version": range(1), "transaction.version": range(1)}
"""The levels of each feature (KIP-584) that this broker could work at."""
FEATURES_EPOCH = 0
"""How often the finalized features have changed: they do not."""

_LEVEL_0_FROM = 4  # the version that may name a feature whose levels begin at 0
_SOFTWARE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.")


def handle(ctx: RequestContext, request: m.ApiVersionsRequest | None) -> m.ApiVersionsResponse:
    """`request` is None for a version that is not served."""
    if request is None:
        own = [m.ApiVersionsResponse.ApiVersion(api_key=API_KEY, min_version=VERSIONS[0], max_version=VERSIONS[-1])]
        return m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_is_software_word(name) and _is_software_word(version)):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.software = f"{name} {version}"
    return m.ApiVersionsResponse(
        api_keys=[
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
            for key, versions in ctx.broker.served
        ],
        supported_features=[
            m.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[-1])
            for name, levels in FEATURES.items()
            if levels[0] > 0 or ctx.api_version >= _LEVEL_0_FROM
        ],
        finalized_features_epoch=FEATURES_EPOCH,
    )


def _is_software_word(word: str) -> bool:
    """Letters, digits, and between them dots and dashes."""
    return bool(word) and _SOFTWARE_CHARS.issuperset(word) and word[0] not in "-." and word[-1] not in "-."
