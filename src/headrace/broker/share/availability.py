"""Whether this cluster has share groups: the feature share.version."""

from headrace.broker.cluster.features import SHARE_VERSION
from headrace.broker.request.context import RequestContext


def are_share_groups_enabled(ctx: RequestContext) -> bool:
    """Whether share.version is finalized above level 0."""
    return ctx.services.features.finalized.get(SHARE_VERSION, 0) > 0
