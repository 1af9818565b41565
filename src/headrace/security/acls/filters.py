"""Filters that select rules, as DescribeAcls and DeleteAcls have them.

A filter's field that is None, or ANY, accepts every value. The type of a filter's pattern says how its name is
compared:

    LITERAL, PREFIXED    rules of that type with that name
    ANY                  rules of either type with that name
    MATCH                rules that apply to the resource of that name: literal, prefixed, and `*`

Source: Kafka's ResourcePatternFilter, AccessControlEntryFilter.
"""

from typing import NamedTuple

from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import WILDCARD, Binding, Entry, Pattern, PatternType, Permission


class PatternFilter(NamedTuple):
    """Selects patterns."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    kind: PatternType = PatternType.ANY

    def accepts(self, pattern: Pattern) -> bool:
        """Whether a pattern is selected."""
        if self.resource not in (ResourceType.ANY, pattern.resource):
            return False
        if self.kind not in (PatternType.ANY, PatternType.MATCH, pattern.kind):
            return False
        if self.name is None:
            return True
        return applies(pattern, self.name) if self.kind is PatternType.MATCH else self.name == pattern.name


class EntryFilter(NamedTuple):
    """Selects entries."""

    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def accepts(self, entry: Entry) -> bool:
        """Whether an entry is selected."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class BindingFilter(NamedTuple):
    """Selects rules."""

    pattern: PatternFilter = PatternFilter()
    entry: EntryFilter = EntryFilter()

    def accepts(self, binding: Binding) -> bool:
        """Whether a rule is selected."""
        return self.pattern.accepts(binding.pattern) and self.entry.accepts(binding.entry)


def applies(pattern: Pattern, name: str) -> bool:
    """Whether a pattern applies to the resource of that name, of the pattern's own type."""
    if pattern.kind is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)
