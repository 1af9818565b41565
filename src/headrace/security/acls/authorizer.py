"""Decides by rules, in a time that does not depend on their number.

A decision looks at the rules of the patterns that apply to the resource: the literal one of its name, the literal `*`,
and the prefixed ones, of which there can be one for each length of prefix that occurs. Within a pattern it looks up the
principal and `User:*`.

    super user                                             allowed
    no rule for the resource, whoever it is for            `allow.everyone.if.no.acl.found`
    a DENY of the operation or of ALL                      denied
    an ALLOW of the operation, of one that implies it,     allowed
    or of ALL
    else                                                   denied

    READ, WRITE, DELETE, ALTER   imply DESCRIBE            only in an ALLOW: denying READ does not deny DESCRIBE
    ALTER_CONFIGS                implies DESCRIBE_CONFIGS

Hosts are addresses. An IPv6 address may be written in any form: Apache Kafka compares the text with Java's form, which
has no `::`.
Source: Kafka's AclAuthorizer and StandardAuthorizerData, which decide alike.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.limits import ACL_DECISIONS_KEPT_MAX
from headrace.security.access import Operation, RequestOrigin, ResourceType
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.security.acls.model import EVERYBODY, WILDCARD, Binding, Entry, Pattern, PatternType, Permission

_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ALLOWED_BY = {each: (each, Operation.ALL, *_IMPLIED_BY.get(each, ())) for each in Operation}
_NO_ENTRIES: Sequence[Entry] = ()


class _Rights:
    """What the rules of one pattern say of one principal: pairs of operation and host."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: set[tuple[Operation, str]] = set()
        self.denied: set[tuple[Operation, str]] = set()

    def denies(self, operation: Operation, host: str) -> bool:
        denied = self.denied
        return bool(denied) and not denied.isdisjoint(
            ((operation, host), (operation, WILDCARD), (Operation.ALL, host), (Operation.ALL, WILDCARD))
        )

    def allows(self, operation: Operation, host: str) -> bool:
        allowed = self.allowed
        for each in _ALLOWED_BY[operation]:  # noqa: SIM110 - a generator would take twice as long
            if (each, host) in allowed or (each, WILDCARD) in allowed:
                return True
        return False


_ByPrincipal = dict[str, _Rights]
_NO_NAMES: set[str] = set()


class _Under(NamedTuple):
    """The patterns for resources of one type that matter under a prefix. What is asked of them takes a time that does
    not depend on the other rules: an instance must not learn how many others have."""

    literal: set[str]
    prefixed: set[str]
    covering: set[str]
    """The prefixes, if they have rules, of which each is one of all names under the prefix."""


class _RulesOfType:
    """The rules for resources of one type, by the names of their patterns."""

    __slots__ = ("_lengths", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _ByPrincipal] = {}
        self.prefixed: dict[str, _ByPrincipal] = {}
        self._lengths: Counter[int] = Counter()
        self.lengths: tuple[int, ...] = ()
        """The lengths of the prefixes that occur, ascending."""

    def applying(self, name: str) -> Iterator[_ByPrincipal]:
        """The rules of each pattern that applies to the resource of that name."""
        for each in (name, WILDCARD) if name != WILDCARD else (name,):
            found = self.literal.get(each)
            if found is not None:
                yield found
        for length in self.lengths:
            if length > len(name):
                return
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found

    def replace(self, pattern: Pattern, rules: _ByPrincipal) -> None:
        """Sets the rules of a pattern; none removes it."""
        if pattern.kind is PatternType.LITERAL:
            if rules:
                self.literal[pattern.name] = rules
            else:
                self.literal.pop(pattern.name, None)
            return
        length, was_known = len(pattern.name), pattern.name in self.prefixed
        if rules:
            self.prefixed[pattern.name] = rules
        else:
            self.prefixed.pop(pattern.name, None)
        self._lengths[length] += bool(rules) - was_known
        if not self._lengths[length]:
            del self._lengths[length]
        self.lengths = tuple(sorted(self._lengths))


class AclAuthorizer:
    """The rules of a cluster; implements `headrace.security.access.Rules`."""

    heeds_client_ids = False

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_rule: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_rule = allow_if_no_rule
        self._types: dict[ResourceType, _RulesOfType] = {
            each: _RulesOfType() for each in ResourceType if each is not ResourceType.ANY
        }
        self._entries: dict[Pattern, tuple[Entry, ...]] = {}
        self._names: dict[tuple[Entry, ResourceType, PatternType], set[str]] = {}
        """The patterns' names by entry, type of resource and type of pattern; for `permits_any`."""
        self._any: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}
        self._by_first: dict[str, dict[Pattern, None]] = {}
        """The patterns whose names have a dot, by what is before it."""

    @property
    def patterns(self) -> Sequence[Pattern]:
        """All patterns that have rules."""
        return tuple(self._entries)

    def patterns_under(self, first: str) -> Sequence[Pattern]:
        """The patterns whose names begin with `first` and a dot; of users, what is behind `User:`. In a time that does
        not depend on the number of the others."""
        return tuple(self._by_first.get(first, ()))

    def entries(self, pattern: Pattern) -> Sequence[Entry]:
        """The entries of a pattern's rules, in their order."""
        return self._entries.get(pattern, _NO_ENTRIES)

    def replace(self, pattern: Pattern, entries: Iterable[Entry]) -> bool:
        """Sets the rules of a pattern; none removes it. Returns whether that changed anything."""
        before, after = self.entries(pattern), tuple(dict.fromkeys(entries))
        if before == after:
            return False
        self._any.clear()
        rules: _ByPrincipal = {}
        for each in after:
            rights = rules.setdefault(each.principal, _Rights())
            chosen = rights.allowed if each.permission is Permission.ALLOW else rights.denied
            chosen.add((each.operation, canonical_host(each.host)))
        self._types[pattern.resource].replace(pattern, rules)
        if after:
            self._entries[pattern] = after
        else:
            del self._entries[pattern]
        self._index(pattern, is_there=bool(after))
        old, new = _normal(before), _normal(after)
        for entry in old - new:
            key = (entry, pattern.resource, pattern.kind)
            self._names[key].discard(pattern.name)
            if not self._names[key]:
                del self._names[key]
        for entry in new - old:
            self._names.setdefault((entry, pattern.resource, pattern.kind), set()).add(pattern.name)
        return True

    def _index(self, pattern: Pattern, *, is_there: bool) -> None:
        name = pattern.name.partition(":")[2] if pattern.resource is ResourceType.USER else pattern.name
        first, dot, _ = name.partition(".")
        if not dot:
            return
        if is_there:
            self._by_first.setdefault(first, {})[pattern] = None
            return
        own = self._by_first[first]
        del own[pattern]
        if not own:
            del self._by_first[first]

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        """See `Rules.permits`."""
        if origin.principal in self._super_users:
            return True
        found = self._rights(origin.principal, resource, name)
        return self._allow_if_no_rule if found is None else _permits(found, operation, canonical_host(origin.host))

    def permitted(
        self, origin: RequestOrigin, operations: Sequence[Operation], resource: ResourceType, name: str
    ) -> Sequence[Operation]:
        """See `Rules.permitted`."""
        if origin.principal in self._super_users:
            return operations
        found = self._rights(origin.principal, resource, name)
        if found is None:
            return operations if self._allow_if_no_rule else ()
        host = canonical_host(origin.host)
        return [each for each in operations if _permits(found, each, host)] if found else ()

    def _rights(self, principal: str, resource: ResourceType, name: str) -> list[_Rights] | None:
        """What the rules for a resource say of a principal; None if there is no rule for it, whoever it is for."""
        found, has_rules = [], False
        for rules in self._types[resource].applying(name):
            has_rules = True
            for each in (principal, EVERYBODY):
                rights = rules.get(each)
                if rights is not None:
                    found.append(rights)
        return found if has_rules else None

    def permits_any(
        self, origin: RequestOrigin, operation: Operation, resource: ResourceType, *, prefix: str = ""
    ) -> bool:
        """See `Rules.permits_any`. As in Apache Kafka, no operation implies another here, and a name that is allowed
        counts unless a DENY covers it whole. Kafka's two authorizers differ where everybody may use a resource without
        rules, but a rule for `*` leaves none: AclAuthorizer permits then, StandardAuthorizer and this one do not.

        Under a prefix, rules for names that are not under it do not count, and one for all names under it is one for
        `*`."""
        if origin.principal in self._super_users:
            return True
        key = (origin.principal, canonical_host(origin.host), operation, resource, prefix)
        permitted = self._any.get(key)
        if permitted is None:
            if len(self._any) >= ACL_DECISIONS_KEPT_MAX:
                self._any.clear()
            permitted = self._any[key] = self._permits_any(*key)
        return permitted

    def _permits_any(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, prefix: str
    ) -> bool:
        rules = self._types[resource]
        under = self._under(prefix, resource) if prefix else None

        def names(permission: Permission, kind: PatternType) -> list[set[str]]:
            entries = (
                Entry(who, where, what, permission)
                for who in (principal, EVERYBODY)
                for where in (host, WILDCARD)
                for what in (operation, Operation.ALL)
            )
            found = (self._names_of(each, resource, kind, under) for each in entries)
            return [each for each in found if each]

        denied = names(Permission.DENY, PatternType.LITERAL)
        if any(WILDCARD in each for each in denied):
            return False
        has_rule_for_all = WILDCARD in rules.literal or (
            under is not None and not under.covering.isdisjoint(rules.prefixed)
        )
        if self._allow_if_no_rule and not has_rule_for_all:
            return True  # of a resource without rules
        denied_prefixes = names(Permission.DENY, PatternType.PREFIXED)
        lengths = rules.lengths

        def is_covered(name: str) -> bool:
            return any(name[:length] in each for each in denied_prefixes for length in lengths if length <= len(name))

        for each in names(Permission.ALLOW, PatternType.PREFIXED):
            if not denied_prefixes or not all(map(is_covered, each)):
                return True
        for each in names(Permission.ALLOW, PatternType.LITERAL):
            if WILDCARD in each or any(
                not is_covered(name) and not any(name in others for others in denied) for name in each
            ):
                return True
        return False

    def _under(self, prefix: str, resource: ResourceType) -> _Under:
        own = [each for each in self.patterns_under(prefix.partition(".")[0]) if each.resource is resource]
        return _Under(
            {each.name for each in own if each.kind is PatternType.LITERAL},
            {each.name for each in own if each.kind is PatternType.PREFIXED and len(each.name) > len(prefix)},
            {prefix[:length] for length in self._types[resource].lengths if length <= len(prefix)},
        )

    def _names_of(self, entry: Entry, resource: ResourceType, kind: PatternType, under: _Under | None) -> set[str]:
        """The names of the patterns that have a rule; under a prefix, `*` stands for all names under it."""
        found = self._names.get((entry, resource, kind), _NO_NAMES)
        if under is None:
            return found
        if kind is PatternType.PREFIXED:
            return under.prefixed & found
        own = under.literal & found
        prefixes = self._names.get((entry, resource, PatternType.PREFIXED), _NO_NAMES)
        return own | {WILDCARD} if WILDCARD in found or not under.covering.isdisjoint(prefixes) else own

    def matching_patterns(self, wanted: PatternFilter) -> list[Pattern]:
        """The patterns with rules that a filter selects."""
        if wanted.name is None:
            return [each for each in self._entries if wanted.accepts(each)]
        found = (
            candidate
            for resource, rules in self._types.items()
            if wanted.resource in (ResourceType.ANY, resource)
            for candidate in _candidates(resource, wanted.name, wanted.kind, rules.lengths)
        )
        return [each for each in dict.fromkeys(found) if each in self._entries and wanted.accepts(each)]

    def look_ups(self, wanted: PatternFilter) -> int:
        """How many patterns `matching_patterns` looks at: its time is in proportion to it."""
        if wanted.name is None:
            return len(self._entries)
        if wanted.kind is not PatternType.MATCH:
            return len(self._types)
        found = (rules for kind, rules in self._types.items() if wanted.resource in (ResourceType.ANY, kind))
        return sum(2 + len(rules.lengths) for rules in found)

    def select(self, wanted: BindingFilter) -> Iterator[Binding]:
        """The rules that a filter selects. They must not change meanwhile."""
        for pattern in self.matching_patterns(wanted.pattern):
            for entry in self._entries[pattern]:
                if wanted.entry.accepts(entry):
                    yield Binding(pattern, entry)


def _permits(rights: Sequence[_Rights], operation: Operation, host: str) -> bool:
    for each in rights:
        if each.denies(operation, host):
            return False
    return any(each.allows(operation, host) for each in rights)


def _candidates(resource: ResourceType, name: str, kind: PatternType, lengths: Sequence[int]) -> Iterator[Pattern]:
    """The patterns that a filter with a name could select."""
    if kind is not PatternType.PREFIXED:
        yield Pattern(resource, name, PatternType.LITERAL)
    if kind is PatternType.MATCH:
        yield Pattern(resource, WILDCARD, PatternType.LITERAL)
        for length in lengths:
            if length <= len(name):
                yield Pattern(resource, name[:length], PatternType.PREFIXED)
    elif kind is not PatternType.LITERAL:
        yield Pattern(resource, name, PatternType.PREFIXED)


def _normal(entries: Iterable[Entry]) -> set[Entry]:
    return {each._replace(host=canonical_host(each.host)) for each in entries}


def canonical_host(host: str) -> str:
    """One form for each address: `::1` for `0:0:0:0:0:0:0:1`, `10.0.0.7` for `::ffff:10.0.0.7`."""
    return host if ":" not in host else _canonical_address(host)


def _canonical_address(host: str) -> str:
    from ipaddress import IPv6Address  # only where there is such an address

    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
