"""Demands: what a request must be permitted, as data beside its handler (DEMANDS).

A demand names an operation on a type of resource, where the names are in the request, and what a refusal does:

    names        refuses the whole request: the answer is the handler's `fail(request, code)`
    entries      refuses entries of one array; they are answered with the error, and the others are handled
    by_handler   the handler asks (`Admission.permits`), since it learns the names while it answers; `RefusalEffect`
                 says what becomes of what is refused

Source: Kafka's KafkaApis and ControllerApis; `tests/rights` compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.errors import ErrorCode
from headrace.security.access import CLUSTER_NAME, REFUSED_WITH, Operation, ResourceType

if TYPE_CHECKING:
    from headrace.network.connection import Connection
    from headrace.protocol.apis import ApiKey
    from headrace.protocol.codec.message import Message

Names = Callable[[Any, Any], Iterable[str]]
"""The names of resources in a request, whose context comes first."""

Name = Callable[[Any, Any], str | None]
"""The name of an entry's resource; None if the demand does not concern the entry."""

Refuse = Callable[[Any, Any, "ErrorCode"], "Message"]
"""The response to a request that has the refused entries alone."""

_NO_UUID = bytes(16)
_GROUP_CONFIGS = 32  # the type of a config resource, which differs from that of an ACL's


class AskedRequest(Protocol):
    """What the admission reads of a request's context."""

    connection: Connection
    client_id: str | None
    api_key: ApiKey
    api_version: int
    is_of_broker: bool
    services: Any

    @property
    def listener(self) -> str:
        """The name of the listener that the connection came through."""


def the_cluster(_ctx: AskedRequest, _request: object) -> Iterable[str]:
    """The cluster's name, for a demand on the cluster whatever the request contains."""
    return (CLUSTER_NAME,)


class RefusalEffect(Enum):
    """What a refusal does."""

    REQUEST = "the whole request"
    ENTRY = "the entry alone"
    HIDDEN = "left out, without an error"
    ZERO = "the operations are 0"


class RefusalPlace(Enum):
    """The places of refused entries in the response, as in Apache Kafka."""

    FIRST = "before the others"
    LAST = "behind the others"
    ASKED = "in the order of the request"


class Entries(NamedTuple):
    """The entries of a request that can be refused one by one."""

    array: str
    """The field of the request."""
    answers: str
    """The field of the response that has an element for each entry."""
    name: Name
    refuse: Refuse | None = None
    """None: the handler's `fail(request, code)`."""
    place: RefusalPlace = RefusalPlace.LAST
    concerns: Callable[[Any], bool] | None = None
    """The requests whose entries are of the demand's resource; None: all."""


class Demand(NamedTuple):
    """An operation that a request must be permitted on each resource that it names."""

    operation: Operation
    resource: ResourceType
    names: Names | None = None
    """None, and neither entries nor a handler that asks: the cluster."""
    or_on_cluster: Operation | None = None
    """An operation on the cluster that permits the demand as well."""
    needs_rules: bool = False
    """Of a demand of CLUSTER_ACTION: whether anybody may send the request where there are no rules, since it does
    nothing then that a client could not do otherwise."""
    entries: Entries | None = None
    by_handler: RefusalEffect | None = None
    or_on_any: tuple[Operation, ResourceType] | None = None
    """An operation that permits the demand as well, on any resource of a type."""
    code: ErrorCode | None = None
    """The error of a refusal, if it is not that of the resource's type."""

    @property
    def is_of_brokers(self) -> bool:
        """Whether only brokers may send the request, with or without rules."""
        return self.operation is Operation.CLUSTER_ACTION and not self.needs_rules

    @property
    def asked(self) -> Names | None:
        """The names that refuse the whole request; None if only entries do, or the handler asks."""
        if self.names is not None or self.entries is not None or self.by_handler is not None:
            return self.names
        return the_cluster

    @property
    def is_explicit(self) -> bool:
        """Whether a refusal is answered with an error."""
        return self.by_handler in (None, RefusalEffect.REQUEST, RefusalEffect.ENTRY)

    @property
    def refused_with(self) -> ErrorCode:
        """The error of a refusal."""
        return REFUSED_WITH[self.resource] if self.code is None else self.code


Demands = tuple[Demand, ...]

PLAIN_DEMAND = Demand(Operation.WRITE, ResourceType.TOPIC)
"""The demand of a Produce without a transaction, on each of its topics."""

READ_TOPIC = Demand(Operation.READ, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
"""The demand of a consumer, on each topic of its request or session, whenever it is read."""

FETCH_AS_BROKER = Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, by_handler=RefusalEffect.ENTRY)
"""The demand of a follower, asked again when its request has waited."""


# The names of whole requests


def group(_ctx: AskedRequest, request: Any) -> Iterable[str]:
    """The one group of a request."""
    return (request.group_id,)


def transaction(_ctx: AskedRequest, request: Any) -> Iterable[str]:
    """The transactional id of a request, if it has one."""
    return (request.transactional_id,) if request.transactional_id else ()


# The names of entries


def itself(_ctx: AskedRequest, entry: str) -> str:
    """The name of an entry that is a name."""
    return entry


def its_topic(_ctx: AskedRequest, entry: Any) -> str:
    """The topic of an entry that names it."""
    return str(entry.name)


def topic_by_id(ctx: AskedRequest, entry: Any) -> str | None:
    """The topic of an entry that names it or gives its id. An unknown id has no name; the handler refuses it."""
    if not entry.name and entry.topic_id != _NO_UUID:
        name: str | None = ctx.services.metadata.snapshot.names_by_id.get(entry.topic_id)
        return name
    return entry.name or None


TOPICS = Entries("topics", "topics", its_topic)
"""The topics of a request whose response has them under the same name."""


# Settings of topics, groups, and of the cluster


def _configured_topic(_ctx: AskedRequest, entry: Any) -> str | None:
    return entry.resource_name if entry.resource_type == ResourceType.TOPIC else None


def _configured_group(_ctx: AskedRequest, entry: Any) -> str | None:
    return entry.resource_name if entry.resource_type == _GROUP_CONFIGS else None


def _configured_cluster(_ctx: AskedRequest, entry: Any) -> str | None:
    return None if entry.resource_type in (ResourceType.TOPIC, _GROUP_CONFIGS) else CLUSTER_NAME


def on_settings(operation: Operation, answers: str, place: RefusalPlace) -> Demands:
    """The demands of a request about settings of resources, which the response has in field `answers`."""
    named = {
        ResourceType.TOPIC: _configured_topic,
        ResourceType.GROUP: _configured_group,
        ResourceType.CLUSTER: _configured_cluster,
    }
    return tuple(
        Demand(operation, resource, entries=Entries("resources", answers, name, place=place))
        for resource, name in named.items()
    )
