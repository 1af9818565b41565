"""Who may ask what only brokers ask: LeaderAndIsr, UpdateMetadata, StopReplica, AlterPartition, a follower's Fetch.

    a broker alone                            nobody: there is no other broker
    `inter.broker.listener.name` is set       who comes in through that listener
    else                                      whoever reaches the broker, as with Apache Kafka without an authorizer

Apache Kafka asks its authorizer for ClusterAction on the cluster here; where requests
are authorized, this is the place.
"""

from headrace.broker.context import RequestContext
from headrace.errors import ErrorCode, KafkaError


def must_be_a_broker(ctx: RequestContext) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED for who may not ask what only brokers ask."""
    broker = ctx.broker
    listener = broker.config.inter_broker_listener_name
    if broker.is_alone:
        raise KafkaError("this broker has no others beside it", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if listener and ctx.listener != listener.upper():
        raise KafkaError(
            f"only brokers ask for this, through the listener {listener}", ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
