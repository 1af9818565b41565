"""UpdateFeatures (key 57), versions 0-2.

0     allows downgrades or not
1     the kind of upgrade; validation alone
2     no result for each feature
The levels of features follow the brokers (`broker.cluster.features`): a feature is finalized as soon as every live
broker supports it, and no request changes that. So an update to the level in force succeeds, and any other is refused:

    INVALID_UPDATE_VERSION     the feature is unknown, as `metadata.version` is, which is KRaft's; or this broker does
                               not support the level
    FEATURE_UPDATE_FAILED      the level is supported, but not the one in force
    INVALID_REQUEST            a feature that is named twice, or an unknown kind of upgrade

As in Apache Kafka, one error fails the request at every version. Nothing changes, so validation alone gives the same
answer.
"""

from __future__ import annotations

from headrace.broker.cluster.features import SUPPORTED
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import counted, in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.UPDATE_FEATURES
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)

_WITHOUT_RESULTS_FROM = 2
_UPGRADE_TYPES = (1, 2, 3)  # upgrade, safe downgrade, unsafe downgrade
_Update = m.UpdateFeaturesRequest.FeatureUpdateKey


def handle(ctx: RequestContext, request: m.UpdateFeaturesRequest) -> Answer:
    """Returns whether each level is in force; later requests of the connection wait."""
    return ctx.in_order(_update(ctx, request), lambda error: fail(request, code_of(error)))


async def _update(ctx: RequestContext, request: m.UpdateFeaturesRequest) -> m.UpdateFeaturesResponse:
    times = await counted(each.feature for each in request.feature_updates)
    finalized = ctx.services.features.finalized
    response = m.UpdateFeaturesResponse()
    async for each in in_slices(request.feature_updates):
        code, text = _judged(each, times[each.feature] > 1, finalized.get(each.feature, 0), ctx.api_version)
        if code:
            what = "The update failed for all features since the following feature had an error"
            return m.UpdateFeaturesResponse(error_code=code, error_message=f"{what}: {text}")
        if ctx.api_version < _WITHOUT_RESULTS_FROM:
            response.results.append(m.UpdateFeaturesResponse.UpdatableFeatureResult(feature=each.feature))
    return response


def fail(request: m.UpdateFeaturesRequest, code: ErrorCode) -> m.UpdateFeaturesResponse:
    """Returns a response with an error."""
    return m.UpdateFeaturesResponse(error_code=code)


def _judged(update: _Update, is_repeated: bool, level: int, version: int) -> tuple[ErrorCode, str]:
    name, wanted = update.feature, update.max_version_level
    if is_repeated:
        return ErrorCode.INVALID_REQUEST, "Each feature must appear only once."
    if version >= 1 and update.upgrade_type not in _UPGRADE_TYPES:
        return ErrorCode.INVALID_REQUEST, f"Unknown upgrade type {update.upgrade_type} of feature {name}."
    levels = SUPPORTED.get(name)
    if levels is None:
        return (
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {wanted} for feature {name}. Broker does not support this feature.",
        )
    if wanted == level:
        return ErrorCode.NONE, ""
    if wanted != 0 and wanted not in levels:
        return (
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {wanted} for feature {name}. Broker supports versions {levels[0]}-{levels[-1]}.",
        )
    return (
        ErrorCode.FEATURE_UPDATE_FAILED,
        f"Feature {name} is at level {level}. Its level follows the brokers: it is {levels[-1]} as soon as every live "
        "broker supports that, and cannot be set.",
    )
