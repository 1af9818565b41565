"""How many users, quotas and group configs an instance may have: each is in the memory of every broker.

    users            users with a SCRAM credential        users_max
    quotas           users and client ids with quotas     quotas_max
    group_configs    groups that set configs              group_configs_max

Their names have `INSTANCE_NAME_CHARS_MAX` characters at most.

What is over a limit is refused with POLICY_VIOLATION by the broker that is asked. Requests to two brokers at the same
moment may both pass. What is there already can be changed, also above a limit that was lowered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import ErrorCode, KafkaError
from headrace.instances.names import instance_of
from headrace.limits import INSTANCE_NAME_CHARS_MAX
from headrace.metadata.entity_configs import CLIENTS, GROUPS, USERS, Decide, EntityConfigs, desanitize
from headrace.metadata.group_configs import GroupConfigs
from headrace.security.sasl.scram import HASHES

if TYPE_CHECKING:
    from headrace.broker.instances.view import View
    from headrace.metadata.config_changes import Alteration

_WORDS = {"users": "users", "quotas": "users and client ids with quotas", "group_configs": "groups with configs"}


class OwnedEntities:
    """The entities of all instances, by what they have."""

    def __init__(self, entities: EntityConfigs) -> None:
        self._found: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for kind in (USERS, CLIENTS, GROUPS):
            entities.on_change(kind, partial(self._take, kind))

    def count(self, instance: str, what: str) -> int:
        """How many entities of an instance have something."""
        return len(self._found.get((instance, what), ()))

    def nodes(self, instance: str, kind: str) -> set[str]:
        """The nodes of an instance's entities of a kind, found without a look at those of others."""
        return {node for what in _WORDS for of, node in self._found.get((instance, what), ()) if of == kind}

    def _take(self, kind: str, node: str, configs: Mapping[str, str]) -> None:
        instance = instance_of(desanitize(node.partition("/")[0]))
        if not instance:
            return
        now = set(_had(kind, configs))
        for what in _WORDS:
            found = self._found.setdefault((instance, what), set()) if what in now else None
            if found is not None:
                found.add((kind, node))
            elif (before := self._found.get((instance, what))) is not None:
                before.discard((kind, node))
                if not before:
                    del self._found[instance, what]


def _had(kind: str, configs: Mapping[str, str]) -> Iterator[str]:
    """What an entity has that is limited."""
    if kind == GROUPS:
        if configs:
            yield "group_configs"
        return
    if kind == USERS and not HASHES.keys().isdisjoint(configs):
        yield "users"
    if configs.keys() - HASHES.keys():
        yield "quotas"


class LimitedEntities:
    """The configs of entities, as the handlers of an instance's requests change them."""

    def __init__(self, of_cluster: EntityConfigs, owned: OwnedEntities, view: View) -> None:
        self._of_cluster, self._owned, self._view = of_cluster, owned, view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_cluster, name)

    def all(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """As `EntityConfigs.all`, of the instance's own users, client ids and groups: there are no others to see."""
        of_cluster, nodes = self._of_cluster, self._owned.nodes(self._view.instance.name, entity_type)
        return {each: of_cluster.get(entity_type, each) for each in nodes}

    async def rewrite(
        self, entity_type: str, name: str, decide: Decide, *, validate_only: bool = False, must_exist: str | None = None
    ) -> None:
        """As `EntityConfigs.rewrite`. Raises POLICY_VIOLATION."""
        longest = max(len(desanitize(each)) for each in name.split("/"))

        def decided(before: Mapping[str, str]) -> Mapping[str, str]:
            after = decide(before)
            for what in {*_had(entity_type, after)} - {*_had(entity_type, before)}:
                if longest > INSTANCE_NAME_CHARS_MAX:
                    raise name_too_long(longest)
                self._check(what)
            return after

        await self._of_cluster.rewrite(entity_type, name, decided, validate_only=validate_only, must_exist=must_exist)

    def _check(self, what: str) -> None:
        instance = self._view.instance
        most, count = getattr(instance, f"{what}_max"), self._owned.count(instance.name, what)
        if most is not None and count >= most:
            raise limit_reached(_WORDS[what], count, most)


class LimitedGroupConfigs:
    """The configs of groups, likewise."""

    def __init__(self, of_cluster: GroupConfigs, entities: LimitedEntities) -> None:
        self._of_cluster, self._entities = of_cluster, entities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_cluster, name)

    async def rewrite(self, group: str, alteration: Alteration, *, validate_only: bool = False) -> None:
        """As `GroupConfigs.rewrite`. Raises POLICY_VIOLATION."""
        await self._of_cluster.rewrite(group, alteration, validate_only=validate_only, through=self._entities)


def name_too_long(length: int) -> KafkaError:
    """POLICY_VIOLATION for a name that would take too much of every broker's memory."""
    message = f"a name has {length} characters, of at most {INSTANCE_NAME_CHARS_MAX} here"
    return KafkaError(message, ErrorCode.POLICY_VIOLATION)


def limit_reached(what: str, count: int, most: int) -> KafkaError:
    """POLICY_VIOLATION for one more than there may be."""
    message = f"there are {count} {what}, of at most {most} here: delete some, or ask for a higher limit"
    return KafkaError(message, ErrorCode.POLICY_VIOLATION)
