"""Access control lists in a metadata store, written without a broker: with an authorizer and no super user, nobody
could make the first one.

The calls are those of `headrace.client.operations.acl_admin`. The nodes are those of Apache Kafka 3.9, and each change
is announced as its tools announce theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from headrace.metadata.stored_acls import Decide, StoredAcls
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import MetadataStore
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.store_place import StorePlace, work_on
from headrace.security.access import Operation
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.filters import BindingFilter
from headrace.security.acls.model import Binding, Entry, Pattern

T = TypeVar("T")


class StoredRules:
    """The rules of a cluster, in its metadata store. Each call opens the store and closes it. Raises
    `MigrationRefused`."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place

    def describe_acls(self, wanted: BindingFilter = BindingFilter()) -> list[Binding]:  # noqa: B008 - it cannot be changed
        """The rules that a filter matches, ordered."""

        async def read(acls: StoredAcls) -> list[Binding]:
            return sorted(acls.rules.select(wanted))

        return self._on_rules(read)

    def create_acls(self, rules: Iterable[Binding]) -> None:
        """Creates rules. Those that exist already are left as they are."""
        by_pattern: dict[Pattern, list[Entry]] = {}
        for pattern, entry in rules:
            if entry.operation is Operation.TWO_PHASE_COMMIT and self._place.zookeeper is not None:
                raise MigrationRefused(
                    "brokers of Apache Kafka 3.9 could not read a rule with operation TwoPhaseCommit: use All"
                )
            by_pattern.setdefault(pattern, []).append(entry)

        def added(more: Sequence[Entry]) -> Decide:
            return lambda own: (*own, *more)

        self._change({pattern: added(entries) for pattern, entries in by_pattern.items()})

    def delete_acls(self, filters: Sequence[BindingFilter]) -> list[Binding]:
        """Deletes the rules that any of the filters matches; returns them, ordered."""
        found = {rule for each in filters for rule in self.describe_acls(each)}

        def without(pattern: Pattern) -> Decide:
            return lambda own: [each for each in own if Binding(pattern, each) not in found]

        self._change({pattern: without(pattern) for pattern in {rule.pattern for rule in found}})
        return sorted(found)

    def _change(self, changes: Mapping[Pattern, Decide]) -> None:
        async def write(acls: StoredAcls) -> None:
            for error in (await acls.change(changes)).values():
                raise error

        if changes:
            self._on_rules(write)

    def _on_rules(self, work: Callable[[StoredAcls], Awaitable[T]]) -> T:
        async def on(store: MetadataStore) -> T:
            acls = StoredAcls(store, AclAuthorizer(), lambda: None)
            try:
                await acls.start()
                return await work(acls)
            except CorruptNode as error:
                raise MigrationRefused(str(error)) from None
            finally:
                await acls.close()

        return work_on(self._place, on)
