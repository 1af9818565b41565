"""DescribeCluster (key 60), versions 0-2.

1     whether the request is for brokers or controllers; a broker returns brokers only
2     fenced brokers, if requested (for KRaft; headrace has none: a broker is either registered or unknown)
Flexible from the start.
"""

from __future__ import annotations

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_CLUSTER
VERSIONS = range(3)
DESCRIBED = Demand(Operation.DESCRIBE, ResourceType.CLUSTER, by_handler=RefusalEffect.ZERO)
DEMANDS: Demands = (DESCRIBED,)

_BROKERS, _CONTROLLERS = 1, 2


def handle(ctx: RequestContext, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
    """Returns the live brokers with their addresses on the client's listener."""
    if request.endpoint_type == _CONTROLLERS:
        return m.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return m.DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    metadata = ctx.services.metadata
    response = m.DescribeClusterResponse(
        cluster_id=ctx.services.cluster_id,
        controller_id=metadata.controller_id,
        brokers=[
            m.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in metadata.brokers.values()
            if (endpoint := metadata.endpoint(broker.id, ctx.listener)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(ctx)
    return response


def cluster_operations(ctx: RequestContext) -> int:
    """The operations that the client may do to the cluster; 0 if it may not describe the cluster. Used by Metadata."""
    admission = ctx.services.admission
    if not admission.permits(ctx, DESCRIBED, CLUSTER_NAME):
        return 0
    return admission.authorized_operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME)
