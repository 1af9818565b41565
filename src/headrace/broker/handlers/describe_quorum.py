"""DescribeQuorum (key 55), versions 0-2.

1     when each voter last fetched
2     the voters' directories and addresses; an error message
A cluster of headrace has no quorum of its own: ZooKeeper keeps its metadata, or the broker's data directory if it is
alone. The answer is UNSUPPORTED_VERSION with a message that says so, which `kafka-metadata-quorum` prints; an Apache
Kafka 3.9 broker on ZooKeeper does not know the request. `kafka-cluster` and DescribeCluster name the controller.
"""

from __future__ import annotations

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.DescribeQuorumRequest) -> m.DescribeQuorumResponse:
    """Returns why there is no quorum."""
    where = "this broker's data directory" if ctx.services.is_alone else "ZooKeeper"
    return m.DescribeQuorumResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=f"The cluster has no KRaft quorum: its metadata is in {where}. "
        f"Its controller is broker {ctx.services.metadata.controller_id}.",
    )


def fail(request: m.DescribeQuorumRequest, code: ErrorCode) -> m.DescribeQuorumResponse:
    """Returns a response with an error."""
    return m.DescribeQuorumResponse(error_code=code)
