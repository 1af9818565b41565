"""ApiVersions (key 18), versions 0-4.

0     the APIs that are served, each with its range of versions
1     throttle time
3     the client's software name and version; tagged features
4     the range of a feature may begin at level 0
A request of a newer version gets UNSUPPORTED_VERSION and the range for this API, in the form of version 0 (KIP-511), so
that the client can ask again. The range of Produce begins at version 0: librdkafka does not compress for a broker whose
range begins later (KAFKA-18659). Apache Kafka 4 therefore advertises 0 and serves from 3; headrace serves all of them.
Features: `group.version`, `share.version`, `streams.version` and `transaction.version`, at their highest levels while
every live broker is headrace, and at level 0 else (`broker.cluster.features`). As in Apache Kafka, a feature at level 0
is not finalized, and versions before 4 omit a feature whose levels begin at 0 from the supported ones.
"""

from __future__ import annotations

from headrace.broker.cluster.features import SUPPORTED
from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.API_VERSIONS
VERSIONS = range(5)
DEMANDS: Demands = ()

_LEVEL_0_FROM = 4  # the version that may name a feature whose levels begin at 0
_SOFTWARE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.")


def handle(ctx: RequestContext, request: m.ApiVersionsRequest | None) -> m.ApiVersionsResponse:
    """Returns the APIs and features; `request` is None for a version that is not served."""
    if request is None:
        own = [m.ApiVersionsResponse.ApiVersion(api_key=API_KEY, min_version=VERSIONS[0], max_version=VERSIONS[-1])]
        return m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_is_software_word(name) and _is_software_word(version)):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.connection.software = f"{name} {version}"
    features = ctx.services.features
    return m.ApiVersionsResponse(
        api_keys=[
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
            for key, versions in ctx.services.served
        ],
        supported_features=[
            m.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[-1])
            for name, levels in SUPPORTED.items()
            if levels[0] > 0 or ctx.api_version >= _LEVEL_0_FROM
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            m.ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )


def _is_software_word(word: str) -> bool:
    """Whether the word consists of letters and digits, with dots and dashes only between them."""
    return bool(word) and _SOFTWARE_CHARS.issuperset(word) and word[0] not in "-." and word[-1] not in "-."
