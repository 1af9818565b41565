"""Admission: decides before every handler what of a request may be handled.

    connection ─▶ principal ─▶ permissions ─▶ handler ─▶ quota
                               Rules          the rest   `throttling`, when the request is answered

Each handler module declares its DEMANDS beside API_KEY and VERSIONS (`demands`). The admission asks the rules about
each, in their order. A refusal concerns the whole request, or entries of it: then the handler gets the request without
them, and the response gets their errors (`Partial`), as in Apache Kafka. The plain produce passes the same admission
(`admits_plainly`) before anything is appended; one that is not admitted takes the general path, which answers with
the reason.

Without rules every request is admitted, apart from those of brokers (`Demand.is_of_brokers`): only other brokers may
send them, which the listener tells (`_may_act_on_cluster`). With rules CLUSTER_ACTION tells, and each connection keeps
the decisions made for its client id. `rules_changed` increments the generation, and a connection drops decisions of an
older generation at its next request. A request therefore costs one comparison, and one look-up for each resource. A
request with many resources is decided in slices (`deciding` yields), since a decision that is not kept costs many times
a look-up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.broker.request.demands import PLAIN_DEMAND, AskedRequest, Demand, Demands, Entries, Names
from headrace.broker.request.in_force import RulesInForce
from headrace.errors import ErrorCode
from headrace.limits import (
    ADMISSIONS_PER_CONNECTION_MAX,
    ADMITTED_NAME_CHARS_MAX,
    DECISIONS_PER_SLICE,
    TOPIC_NAME_CHARS_MAX,
)
from headrace.security.access import (
    CLUSTER_NAME,
    Decisions,
    Operation,
    Refusal,
    RequestOrigin,
    ResourceType,
    Rules,
    refusal,
    supported_operations,
)

if TYPE_CHECKING:
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.network.connection import Connection
    from headrace.protocol.apis import ApiKey
    from headrace.protocol.plain_produce import PlainProduce

T = TypeVar("T")

_KEPT_PER_MADE = 10
"""Kept decisions that cost as much as one that is made."""


class Audit(Protocol):
    """Is told of decisions."""

    @property
    def notes_permitted(self) -> bool:
        """Whether it wants to be told of what was permitted, too."""

    def decided(
        self,
        origin: RequestOrigin,
        api_key: ApiKey,
        operation: Operation,
        resource: ResourceType,
        name: str,
        is_permitted: bool,
    ) -> None:
        """A demand of a request was decided. Not called for what a listing leaves out."""


class HasMetadata(Protocol):
    """The broker's services, as far as they are needed here."""

    @property
    def metadata(self) -> MetadataCache:
        """The topics."""


class Part(NamedTuple):
    """Refused entries of a request."""

    entries: Entries
    request: Any
    """The request with the refused entries alone."""
    positions: list[int]
    """Their places in the array of the request as it came."""
    code: ErrorCode


class Partial(NamedTuple):
    """A request some of whose entries are refused."""

    request: Any
    """The request without them."""
    is_empty: bool
    """Whether no entry is left."""
    refused: list[Part]


Deciding: TypeAlias = Generator[None, None, Refusal | Partial | None]
"""The decision about a request, which yields after each slice. None: all of it may be handled."""


class Admission(RulesInForce):
    """Admits requests, or refuses them."""

    __slots__ = ("_generation", "_heeds_client_ids", "_rules", "audit")

    def __init__(self, rules: Rules | None = None) -> None:
        """`rules`: None admits every request."""
        super().__init__()
        self._rules = rules
        self._heeds_client_ids = rules is not None and rules.heeds_client_ids
        self._generation = 0
        self.has_rules = rules is not None
        self.audit: Audit | None = None

    def rules_changed(self, rules: Rules | None) -> None:
        """Applies `rules` from the next request on; drops earlier decisions."""
        self._rules, self.has_rules = rules, rules is not None
        self._heeds_client_ids = rules is not None and rules.heeds_client_ids
        self._generation += 1

    def audit_changed(self) -> None:
        """Drops earlier decisions, since the audit may want to be told of them now."""
        self._generation += 1

    def deciding(self, ctx: AskedRequest, request: Any, demands: Demands) -> Deciding:
        """Decides about a request; yields after each slice. Returns None when all of it may be handled."""
        decider = None if self._rules is None else _Decider(self, ctx, self._rules)
        partial: Partial | None = None
        for demand in demands:
            names = () if demand.asked is None else demand.asked(ctx, request)
            for name in names:
                if decider is None:
                    refused = _may_act_on_cluster(ctx) if demand.is_of_brokers else None
                elif demand.is_of_brokers and ctx.services.is_alone:
                    refused = _ALONE
                else:
                    refused = None if decider.permits(demand, name) else decider.refusal(demand, name)
                if refused is not None:
                    return refused if demand.code is None else refused._replace(code=demand.code)
                ctx.is_of_broker |= demand.is_of_brokers
                if decider is not None and decider.is_due():
                    yield
            if demand.entries is not None and decider is not None:
                partial = yield from decider.split(demand, demand.entries, request, partial)
                request = request if partial is None else partial.request
        return partial

    def permits(self, ctx: AskedRequest, demand: Demand, name: str) -> bool:
        """Whether a demand of a handler that asks by itself is met."""
        rules = self._rules
        if rules is None:
            return True
        decisions = self.decisions(ctx.connection, ctx.client_id)
        permitted = self.is_permitted(rules, decisions, demand, name)
        audit = self.audit
        if audit is not None and demand.is_explicit and (audit.notes_permitted or not permitted):
            audit.decided(decisions.origin, ctx.api_key, demand.operation, demand.resource, name, permitted)
        return permitted

    def permitted(self, ctx: AskedRequest, demand: Demand, elements: Iterable[T], name: str) -> list[T]:
        """The elements whose attribute `name` names a resource for which the demand is met."""
        return [each for each in elements if self.permits(ctx, demand, getattr(each, name))]

    def authorized_operations(self, ctx: AskedRequest, resource: ResourceType, name: str) -> int:
        """The operations that the client may do to a resource, one bit for each."""
        rules = self._rules
        if rules is None:
            return _all_operations(resource)
        # Not kept: they would displace the decisions about what the client does.
        origin = self.decisions(ctx.connection, ctx.client_id).origin
        return sum(1 << each for each in rules.permitted(origin, supported_operations(resource), resource, name))

    def admits_plainly(self, services: HasMetadata, connection: Connection, request: PlainProduce) -> bool:
        """Whether a plain produce is admitted. Its demands are those of a Produce: WRITE on each topic."""
        kept = connection.admitted  # None after another authentication
        if kept is not None and kept.generation == self._generation and request.is_all_of(kept.plain):
            return True
        if self._rules is None:
            return True
        return self._decides_plainly(self._rules, services.metadata.snapshot.names_by_id, connection, request)

    def _decides_plainly(
        self, rules: Rules, names_by_id: Mapping[bytes, str], connection: Connection, request: PlainProduce
    ) -> bool:
        if self.audit is not None and self.audit.notes_permitted:
            return False  # the general path notes it
        decisions = self.decisions(connection, request.client_id)
        for each in request.batches:
            topic = each.topic
            if len(topic) > TOPIC_NAME_CHARS_MAX:
                return False  # there is no such topic, and nothing must keep the name
            name = self.plain_name(topic, names_by_id)
            if name is None or not self.is_permitted(rules, decisions, PLAIN_DEMAND, name):
                return False
            if not self._heeds_client_ids:
                if len(decisions.plain) >= ADMISSIONS_PER_CONNECTION_MAX:
                    decisions.plain.clear()
                decisions.plain.add(topic)
        return True

    def plain_name(self, topic: str | bytes, names_by_id: Mapping[bytes, str]) -> str | None:
        """The name of a topic that a plain produce names or gives the id of; None for an unknown id."""
        return names_by_id.get(topic) if isinstance(topic, bytes) else topic

    def decisions(self, connection: Connection, client_id: str | None) -> Decisions:
        """What was decided for the client before."""
        kept = connection.admitted
        if (
            kept is None
            or kept.generation != self._generation
            or kept.client_id != client_id
            or kept.principal is not connection.principal
        ):
            origin = RequestOrigin(connection.principal, connection.host, connection.listener, client_id)
            kept = connection.admitted = Decisions(self._generation, origin)
        return kept

    def is_permitted(self, rules: Rules, decisions: Decisions, demand: Demand, name: str) -> bool:
        """Whether a demand is met; keeps the decision."""
        key = (demand.operation, demand.resource, name)
        made = decisions.made
        permitted = made.get(key)
        if permitted is None:
            permitted = rules.permits(decisions.origin, *key)
            if len(name) <= ADMITTED_NAME_CHARS_MAX:
                if len(made) >= ADMISSIONS_PER_CONNECTION_MAX:
                    made.clear()
                made[key] = permitted
        if not permitted and demand.or_on_cluster is not None:
            permitted = self.is_permitted(
                rules, decisions, Demand(demand.or_on_cluster, ResourceType.CLUSTER), CLUSTER_NAME
            )
        if not permitted and demand.or_on_any is not None:
            permitted = rules.permits_any(decisions.origin, *demand.or_on_any)
        return permitted


@cache
def _all_operations(resource: ResourceType) -> int:
    return sum(1 << each for each in supported_operations(resource))


class _Decider:
    """The decisions about one request."""

    __slots__ = ("_admission", "_ctx", "_decisions", "_left", "_rules")

    def __init__(self, admission: Admission, ctx: AskedRequest, rules: Rules) -> None:
        self._admission, self._ctx, self._rules = admission, ctx, rules
        self._decisions = admission.decisions(ctx.connection, ctx.client_id)
        self._left = DECISIONS_PER_SLICE

    def permits(self, demand: Demand, name: str) -> bool:
        made = self._decisions.made
        before = len(made)
        permitted = self._admission.is_permitted(self._rules, self._decisions, demand, name)
        is_kept = len(made) == before and len(name) <= ADMITTED_NAME_CHARS_MAX
        self._left -= 1 if is_kept else _KEPT_PER_MADE
        audit = self._admission.audit
        if audit is not None and (audit.notes_permitted or not permitted):
            audit.decided(self._decisions.origin, self._ctx.api_key, demand.operation, demand.resource, name, permitted)
        return permitted

    def is_due(self) -> bool:
        """Whether a slice is over."""
        if self._left > 0:
            return False
        self._left = DECISIONS_PER_SLICE
        return True

    def refusal(self, demand: Demand, name: str) -> Refusal:
        return refusal(self._decisions.origin, demand.operation, demand.resource, name)

    def split(
        self, demand: Demand, entries: Entries, request: Any, partial: Partial | None
    ) -> Generator[None, None, Partial | None]:
        """Splits a request; returns `partial` if all of its entries are permitted."""
        elements = getattr(request, entries.array)
        if not elements or (entries.concerns is not None and not entries.concerns(request)):
            return partial
        refused = {}
        for number, each in enumerate(elements):
            name = entries.name(self._ctx, each)
            if name is not None and not self.permits(demand, name):
                refused[number] = each
            if self.is_due():
                yield
        if not refused:
            return partial
        rest, part = copy(request), copy(request)
        setattr(rest, entries.array, [each for number, each in enumerate(elements) if number not in refused])
        setattr(part, entries.array, list(refused.values()))
        earlier = [] if partial is None else partial.refused
        is_empty = len(refused) == len(elements)
        gone = {at for each in earlier if each.entries.array == entries.array for at in each.positions}
        if gone:
            left = [at for at in range(len(elements) + len(gone)) if at not in gone]
            positions = [left[number] for number in refused]
        else:
            positions = list(refused)
        return Partial(rest, is_empty, [*earlier, Part(entries, part, positions, demand.refused_with)])


def refusal_without_rules(
    ctx: AskedRequest, request: object, asked: Iterable[tuple[Names, ErrorCode | None]]
) -> Refusal | None:
    """The refusal of a request that only brokers may send, where there are no rules. `asked`: the names that its
    demands concern, and the error of a refusal. Most requests pass here: so it is no generator as `deciding` is."""
    for names, code in asked:
        for _ in names(ctx, request):
            refused = _may_act_on_cluster(ctx)
            if refused is not None:
                return refused if code is None else refused._replace(code=code)
            ctx.is_of_broker = True
    return None


def _may_act_on_cluster(ctx: AskedRequest) -> Refusal | None:
    """The refusal of a request that only brokers may send; None for another broker. Without authentication the
    listener tells.

    a broker alone                            nobody may: there is no other broker
    `inter.broker.listener.name` is set       connections through that listener, or `control.plane.listener.name`
    else                                      everybody may, as with Apache Kafka without an authorizer
    """
    config = ctx.services.config
    listener = config.inter_broker_listener_name
    if ctx.services.is_alone:
        return _ALONE
    if listener and ctx.listener not in (listener.upper(), config.control_plane_listener_name.upper()):
        message = f"only brokers may send this request, through listener {listener}; it came through {ctx.listener}"
        return Refusal(_CLUSTER_REFUSED, message)
    return None


_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ALONE = Refusal(_CLUSTER_REFUSED, "only brokers may send this request, and this broker is in no cluster")
