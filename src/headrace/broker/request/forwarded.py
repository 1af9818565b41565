"""Requests that a broker passes on to the controller for the clients of an instance, as the controller handles them.

    client id    headrace-instance/NAME/ID      of CreateTopics, CreatePartitions and DeleteTopics

A request may arrive when its sender has given it up, and the instance is gone: it would make a topic that is nobody's,
or change one of the next instance of the name. The id says which instance is meant. The controller removes instances
itself, so that it knows; while it handles such a request, the instance is not removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.request.context import RequestContext

_PREFIX = "headrace-instance"


def forwarded_for(name: str, instance_id: str) -> str:
    """The client id of requests for an instance."""
    return f"{_PREFIX}/{name}/{instance_id}"


@contextmanager
def carried_out(ctx: RequestContext) -> Iterator[None]:
    """Around what the controller does about a request. Raises NOT_CONTROLLER if it is of an instance that is not there:
    the sender repeats it while it serves that instance, since it may have heard of it earlier than this broker."""
    prefix, _, instance = (ctx.client_id or "").partition("/")
    if prefix != _PREFIX:
        yield
        return
    from headrace.instances.definition import InstanceState  # with the first instance

    name, _, instance_id = instance.partition("/")
    services = ctx.services
    known = services.instances.get(name)
    if known is None or known.id != instance_id or known.state is not InstanceState.ACTIVE:
        raise KafkaError(f"there is no instance {name!r:.50} of this id", ErrorCode.NOT_CONTROLLER)
    services.topic_requests[name] += 1
    try:
        yield
    finally:
        services.topic_requests[name] -= 1
        if not services.topic_requests[name]:
            del services.topic_requests[name]
