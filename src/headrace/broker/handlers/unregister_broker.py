"""UnregisterBroker (key 64), version 0.

In a KRaft cluster a broker stays registered after it has stopped, until this request removes it. Here a registration
ends by itself with the broker's session, so there is nothing to remove: a broker that is not live gets
BROKER_ID_NOT_REGISTERED, as in Apache Kafka, and a live one INVALID_REQUEST, since it would only register again.
"""

from __future__ import annotations

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.UNREGISTER_BROKER
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.UnregisterBrokerRequest) -> m.UnregisterBrokerResponse:
    """Returns whether the broker is registered, as an error."""
    number = request.broker_id
    if BrokerId(number) in ctx.services.metadata.brokers:
        return m.UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {number} is live. Stop it: its registration ends with its session.",
        )
    return m.UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=f"Broker ID {number} is not currently registered"
    )


def fail(request: m.UnregisterBrokerRequest, code: ErrorCode) -> m.UnregisterBrokerResponse:
    """Returns a response with an error."""
    return m.UnregisterBrokerResponse(error_code=code)
