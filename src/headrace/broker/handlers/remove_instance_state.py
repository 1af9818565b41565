"""RemoveInstanceState (key 10004), version 0. headrace's own: ApiVersions does not name it.

The controller asks each live broker to remove the groups, with their offsets, and the transactional ids that it
coordinates for an instance that is being removed. The answer says how many were found, with the topics that the broker
has not heard the deletion of, and the requests of the instance's clients under way that make or delete topics; what is
in use is left, and asked for again. It also names the partitions of which the
broker is the coordinator, and in which all that it wrote is committed. A broker that has answered does not serve the
instance any more. An instance that is not being removed is not touched. With `only_counts` nothing is removed: so the
controller learns what has the names of an instance that is to be created.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, InvalidRequest
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.REMOVE_INSTANCE_STATE
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.RemoveInstanceStateRequest) -> Answer:
    """Removes them; later requests of the connection wait."""
    return ctx.in_order(_remove(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.RemoveInstanceStateRequest, code: ErrorCode) -> m.RemoveInstanceStateResponse:
    """Returns a response with an error."""
    return m.RemoveInstanceStateResponse(error_code=code, error_message=None)


async def _remove(ctx: RequestContext, request: m.RemoveInstanceStateRequest) -> m.RemoveInstanceStateResponse:
    from headrace.broker.instances.state_removal import count_state, remove_state
    from headrace.instances.definition import InstanceState

    if request.only_counts:
        return m.RemoveInstanceStateResponse(error_message=None, found=count_state(ctx.services, request.name))
    instances = ctx.services.instances
    instance = instances.get(request.name)
    if instance is not None and instance.state is not InstanceState.REMOVING:
        await instances.refresh(request.name)  # its notice may be late
        instance = instances.get(request.name)
    if instance is None or instance.state is not InstanceState.REMOVING:
        raise InvalidRequest(f"instance {request.name!r:.100} is not being removed")
    removed = await remove_state(ctx.services, request.name)
    coordinated = [
        m.RemoveInstanceStateResponse.CoordinatedPartition(topic=topic, partition=partition, leader_epoch=epoch)
        for (topic, partition), epoch in removed.coordinated.items()
    ]
    return m.RemoveInstanceStateResponse(error_message=None, found=removed.found, coordinated=coordinated)
