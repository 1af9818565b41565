"""Admission: decides before every handler whether a request may be handled.

    connection ─▶ principal ─▶ instance ─▶ permissions ─▶ quota ─▶ handler
                  ANONYMOUS    not yet     Rules          not yet

Each handler module declares its DEMANDS beside API_KEY and VERSIONS: operations on the resources that a request names.
The admission asks the rules about each. The plain produce passes the same admission (`admits_plainly`) before anything
is appended; a plain produce that is not admitted takes the general path, which answers with the reason.

Without rules every request is admitted, apart from those of brokers (`Demand.is_of_brokers`): only other brokers may
send them, with or without rules (`_may_act_on_cluster`). With rules, each connection keeps the decisions made for its
client id. `rules_changed` increments the generation, and a connection drops decisions of an older generation at its
next request. A request therefore costs one comparison, and one look-up for each resource.

A request is admitted as a whole. Apache Kafka refuses single topics of a request and answers for the others; DEMANDS
name each resource, so that rules can do the same later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import ErrorCode
from headrace.limits import ADMISSIONS_PER_CONNECTION_MAX
from headrace.security.access import (
    CLUSTER_NAME,
    Decisions,
    Operation,
    Refusal,
    RequestOrigin,
    ResourceType,
    Rules,
    refusal,
)

if TYPE_CHECKING:
    from headrace.broker.request.context import RequestContext
    from headrace.broker.services import Services
    from headrace.network.connection import Connection
    from headrace.protocol.plain_produce import PlainProduce

Names = Callable[["RequestContext", Any], Iterable[str]]
"""The names of resources in a request."""

_NO_UUID = bytes(16)


def the_cluster(_ctx: RequestContext, _request: object) -> Iterable[str]:
    """The cluster's name, for a demand on the cluster whatever the request contains."""
    return (CLUSTER_NAME,)


class Demand(NamedTuple):
    """An operation that a request must be permitted on each resource that it names."""

    operation: Operation
    resource: ResourceType
    names: Names = the_cluster
    or_on_cluster: Operation | None = None
    """An operation on the cluster that permits the demand as well."""
    needs_rules: bool = False
    """Of a demand of CLUSTER_ACTION: whether anybody may send the request where there are no rules, since it does
    nothing then that a client could not do otherwise."""

    @property
    def is_of_brokers(self) -> bool:
        """Whether only brokers may send the request, with or without rules."""
        return self.operation is Operation.CLUSTER_ACTION and not self.needs_rules


Demands = tuple[Demand, ...]


def topic_names(ctx: RequestContext, topics: Iterable[Any] | None, attribute: str = "name") -> Iterable[str]:
    """Names of topics given by name or by id. An unknown id yields no name; the handler refuses it."""
    names_by_id = ctx.services.metadata.snapshot.names_by_id
    for each in topics or ():
        name = getattr(each, attribute)
        if not name and each.topic_id != _NO_UUID:
            name = names_by_id.get(each.topic_id)
        if name:
            yield name


def topics(_ctx: RequestContext, request: Any) -> Iterable[str]:
    """The topics of a request that names them."""
    return (each.name for each in request.topics)


def topics_by_id(ctx: RequestContext, request: Any) -> Iterable[str]:
    """The topics of a request that names them or gives their ids."""
    return topic_names(ctx, request.topics)


def group(_ctx: RequestContext, request: Any) -> Iterable[str]:
    """The one group of a request."""
    return (request.group_id,)


def transaction(_ctx: RequestContext, request: Any) -> Iterable[str]:
    """The transactional id of a request, if it has one."""
    return (request.transactional_id,) if request.transactional_id else ()


def configured_topics(_ctx: RequestContext, request: Any) -> Iterable[str]:
    """The topics whose settings a request describes or alters."""
    return (each.resource_name for each in request.resources if each.resource_type == ResourceType.TOPIC)


def configured_cluster(_ctx: RequestContext, request: Any) -> Iterable[str]:
    """The cluster's name, if a request describes or alters settings of brokers."""
    return (CLUSTER_NAME,) if any(each.resource_type != ResourceType.TOPIC for each in request.resources) else ()


class Admission:
    """Admits requests, or refuses them."""

    __slots__ = ("_generation", "_rules", "has_rules")

    def __init__(self, rules: Rules | None = None) -> None:
        """`rules`: None admits every request."""
        self._rules = rules
        self._generation = 0
        self.has_rules = rules is not None
        """Whether rules could refuse a request. An attribute, not a property, since each request reads it."""

    def rules_changed(self, rules: Rules | None) -> None:
        """Applies `rules` from the next request on; drops earlier decisions."""
        self._rules, self.has_rules = rules, rules is not None
        self._generation += 1

    def admit(self, ctx: RequestContext, request: object, demands: Demands) -> Refusal | None:
        """The refusal of a request; None when it may be handled."""
        for demand in demands:
            for name in demand.names(ctx, request):
                if demand.is_of_brokers:
                    refused = _may_act_on_cluster(ctx)
                    if refused is not None:
                        return refused
                if self._rules is not None:
                    decisions = self._decisions(self._rules, ctx.connection, ctx.client_id)
                    if not self._is_permitted(self._rules, decisions, demand, name):
                        return refusal(decisions.origin, demand.operation, demand.resource, name)
        return None

    def admits_plainly(self, broker: Services, connection: Connection, request: PlainProduce) -> bool:
        """Whether a plain produce is admitted. Its demands are those of a Produce: WRITE on each topic."""
        if self._rules is None:
            return True
        decisions = self._decisions(self._rules, connection, request.client_id)
        for each in request.batches:
            topic = each.topic
            name = broker.metadata.snapshot.names_by_id.get(topic) if isinstance(topic, bytes) else topic
            if name is None or not self._is_permitted(self._rules, decisions, PLAIN_DEMAND, name):
                return False
        return True

    def _decisions(self, rules: Rules, connection: Connection, client_id: str | None) -> Decisions:
        kept = connection.admitted
        if kept is None or kept.generation != self._generation or kept.origin.client_id != client_id:
            origin = RequestOrigin(connection.principal, connection.host, connection.listener, client_id)
            kept = connection.admitted = Decisions(self._generation, origin)
        return kept

    def _is_permitted(self, rules: Rules, decisions: Decisions, demand: Demand, name: str) -> bool:
        key = (demand.operation, demand.resource, name)
        permitted = decisions.made.get(key)
        if permitted is None:
            permitted = rules.permits(decisions.origin, *key) or (
                demand.or_on_cluster is not None
                and rules.permits(decisions.origin, demand.or_on_cluster, ResourceType.CLUSTER, CLUSTER_NAME)
            )
            if len(decisions.made) >= ADMISSIONS_PER_CONNECTION_MAX:
                decisions.made.clear()
            decisions.made[key] = permitted
        return permitted


PLAIN_DEMAND = Demand(Operation.WRITE, ResourceType.TOPIC)
"""The demand of a Produce without a transaction, on each of its topics."""


def _may_act_on_cluster(ctx: RequestContext) -> Refusal | None:
    """The refusal of a request that only brokers may send; None for another broker. Without authentication the
    listener tells.

    a broker alone                            nobody may: there is no other broker
    `inter.broker.listener.name` is set       connections through that listener, or `control.plane.listener.name`
    else                                      everybody may, as with Apache Kafka without an authorizer
    """
    config = ctx.services.config
    listener = config.inter_broker_listener_name
    if ctx.services.is_alone:
        return Refusal(_CLUSTER_REFUSED, "only brokers may send this request, and this broker is in no cluster")
    if listener and ctx.listener not in (listener.upper(), config.control_plane_listener_name.upper()):
        message = f"only brokers may send this request, through listener {listener}; it came through {ctx.listener}"
        return Refusal(_CLUSTER_REFUSED, message)
    return None


_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
