"""The access control lists of an instance, in the names of its clients.

Their requests are not translated: the handlers work on the clients' names, and this stands between them and the rules
of the cluster. Rules that do not belong to the instance are neither shown nor changed, even where they are about its
topics: those of the operator, about principals that are not the instance's.

    clients say                       the cluster has
    TOPIC orders, User:alice          TOPIC acme.orders, User:acme.alice
    TOPIC * (literal)                 TOPIC acme. (prefixed)
    CLUSTER kafka-cluster             CLUSTER acme.kafka-cluster
    USER User:alice                   USER User:acme.alice

More than `acls_max` rules are refused with POLICY_VIOLATION: every broker has them in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.instances.entity_limits import limit_reached, name_too_long
from headrace.errors import KafkaError
from headrace.in_slices import Turns, in_slices
from headrace.limits import INSTANCE_NAME_CHARS_MAX
from headrace.metadata.stored_acls import Decide
from headrace.security.access import ResourceType
from headrace.security.acls.filters import PatternFilter
from headrace.security.acls.model import WILDCARD, Entry, Pattern, PatternType

if TYPE_CHECKING:
    from headrace.broker.instances.view import View
    from headrace.broker.security.authorizer import Authorizer


class _Audit:
    """Notes changes of rules under the names that the cluster has for them."""

    def __init__(self, acls: InstanceAcls) -> None:
        self._acls = acls

    def rules_changed(self, principal: str, host: str, what: str, patterns: Mapping[Pattern, int]) -> None:
        qualified = {self._acls.qualified(pattern): count for pattern, count in patterns.items()}
        self._acls.of_cluster.audit.rules_changed(principal, host, what, qualified)


class _Room:
    """How many rules there are, and may be."""

    __slots__ = ("count", "most")

    def __init__(self, count: int, most: int) -> None:
        self.count, self.most = count, most


class InstanceAcls:
    """The rules of an instance, as the handlers use an `Authorizer`."""

    def __init__(self, of_cluster: Authorizer, view: View) -> None:
        self.of_cluster, self._view, self._names = of_cluster, view, view.names.namespace
        self.audit = _Audit(self)
        self._changing = asyncio.Lock()

    @property
    def rules(self) -> InstanceAcls:
        """Has `entries`."""
        return self

    def entries(self, pattern: Pattern) -> Sequence[Entry]:
        """The entries of a pattern's rules that are the instance's."""
        return [own for each in self.of_cluster.rules.entries(self.qualified(pattern)) if (own := self._entry(each))]

    async def matching_patterns(self, wanted: PatternFilter, turns: Turns) -> list[Pattern]:
        """The patterns with rules that a filter selects."""
        if wanted.name is not None and wanted.kind in (PatternType.LITERAL, PatternType.PREFIXED):
            of_types = [each for each in ResourceType if wanted.resource in (ResourceType.ANY, each)]
            candidates = [Pattern(each, wanted.name, wanted.kind) for each in of_types if each is not ResourceType.ANY]
            await turns.count(len(candidates))
            return [each for each in candidates if self.entries(each)]
        found = []
        for pattern in self.of_cluster.rules.patterns_under(self._names.instance):
            own = self._pattern(pattern)
            if own is not None and wanted.accepts(own) and self.entries(own):
                found.append(own)
            await turns.count()
        return found

    async def change(self, changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        """Changes the instance's rules of patterns; the others stay."""
        known = {self.qualified(pattern): pattern for pattern in changes}
        async with self._changing:
            room = await self._room(changes)
            errors = await self.of_cluster.change(
                {qualified: self._deciding(pattern, changes[pattern], room) for qualified, pattern in known.items()}
            )
        return {known[qualified]: error for qualified, error in errors.items()}

    def qualified(self, pattern: Pattern) -> Pattern:
        """The cluster's name of a pattern."""
        resource, name, kind = pattern
        if name == WILDCARD and kind is PatternType.LITERAL:
            kind, name = PatternType.PREFIXED, ""
        if resource is ResourceType.USER:
            user, _, own = name.partition(":")
            return Pattern(resource, f"{user or 'User'}:{self._names.qualified(own)}", kind)
        return Pattern(resource, self._names.qualified(name), kind)

    def _pattern(self, qualified: Pattern) -> Pattern | None:
        """A pattern as the instance's clients know it; None for another's."""
        resource, _, kind = qualified
        user, _, own = qualified.name.partition(":") if resource is ResourceType.USER else ("", "", qualified.name)
        name = self._names.local(own)
        if name is None:
            return None
        if name and resource is ResourceType.USER:
            name = f"{user}:{name}"
        if not name and kind is PatternType.PREFIXED:
            return Pattern(resource, WILDCARD, PatternType.LITERAL)
        return Pattern(resource, name, kind)

    def _entry(self, qualified: Entry) -> Entry | None:
        principal = self._names.local_principal(qualified.principal)
        return None if principal is None else qualified._replace(principal=principal)

    async def _room(self, changes: Mapping[Pattern, Decide]) -> _Room | None:
        """The room for more rules; None if no change needs any."""
        most = self._view.instance.acls_max
        if most is None:
            return None
        async for pattern, decide in in_slices(changes.items()):
            before = self.entries(pattern)
            if len({*decide(before)}) > len(before):
                break
        else:
            return None
        count = 0
        async for qualified in in_slices(self.of_cluster.rules.patterns_under(self._names.instance)):
            own = self._pattern(qualified)
            count += 0 if own is None else len(self.entries(own))
        return _Room(count, most)

    def _deciding(self, pattern: Pattern, decide: Decide, room: _Room | None) -> Decide:
        grown = 0

        def decided(before: Sequence[Entry]) -> Iterable[Entry]:
            nonlocal grown
            others = [each for each in before if self._entry(each) is None]
            own = [each for stored in before if (each := self._entry(stored)) is not None]
            after = list(dict.fromkeys(decide(own)))
            new = [each for each in after if each not in own]
            longest = max(
                (len(each) for entry in new for each in (pattern.name, entry.principal, entry.host)), default=0
            )
            if longest > INSTANCE_NAME_CHARS_MAX:
                raise name_too_long(longest)
            if room is not None:
                room.count -= grown  # it is decided again if another broker changed the rules
                grown = 0
                more = len(after) - len(own)
                if more > 0 and room.count + more > room.most:
                    raise limit_reached("access control lists", room.count, room.most)
                grown = more
                room.count += grown
            qualified = self._names.qualified_principal
            return [*others, *(each._replace(principal=qualified(each.principal)) for each in after)]

        return decided
