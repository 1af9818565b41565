"""Access control lists in a tree that is migrated: made from KRaft's records, checked, fitted to Kafka 3.9. Pure.

A rule that was lost on the way could be one that denies, so what cannot be read ends the migration, and what the
destination cannot have is counted. Source: Kafka's AclControlManager, ZkAclStore.
"""

from collections.abc import Iterable, Mapping

from headrace.metadata import acl_nodes
from headrace.metadata.znodes import CorruptNode
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission, title

ROOTS = ("/kafka-acl", "/kafka-acl-extended")
"""The subtrees that rules are in."""

_NOT_IN_3_9 = (Operation.TWO_PHASE_COMMIT,)
"""Operations whose rules Apache Kafka 3.9's AclAuthorizer cannot read: it would not start."""


def check_rules(nodes: Mapping[str, bytes]) -> None:
    """Raises MigrationRefused for rules that cannot be read."""
    for path in _paths(nodes):
        try:
            acl_nodes.decode_entries(nodes[path])
        except CorruptNode as error:
            raise MigrationRefused(f"node {path}: {error}") from None


def has_rules(nodes: Mapping[str, bytes]) -> bool:
    """Whether there is a rule."""
    return any(nodes[path] for path in _paths(nodes))


def without_newer_operations(nodes: dict[str, bytes]) -> int:
    """Drops the rules that Apache Kafka 3.9 cannot read from `nodes`; returns how many there were."""
    dropped = 0
    for path in _paths(nodes):
        entries = acl_nodes.decode_entries(nodes[path])
        kept = [each for each in entries if each.operation not in _NOT_IN_3_9]
        dropped += len(entries) - len(kept)
        if kept and len(kept) < len(entries):
            nodes[path] = acl_nodes.encode_entries(kept)
        elif entries and not kept:
            del nodes[path]
    return dropped


def nodes_of(records: Iterable[m.AccessControlEntryRecord]) -> dict[str, bytes]:
    """The nodes of KRaft's rules, but for those that ZooKeeper cannot have (`has_node`). Raises MigrationRefused for a
    code that is not known, and for a rule that denies and cannot be kept: another one may allow what it denies."""
    by_pattern: dict[Pattern, list[Entry]] = {}
    for each in records:
        try:
            resource, kind = ResourceType(each.resource_type), PatternType(each.pattern_type)
            if resource is ResourceType.ANY or kind not in acl_nodes.ROOTS:
                raise ValueError(f"{resource.name} and {kind.name} are for filters")
            entry = Entry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type))
        except ValueError as error:
            raise MigrationRefused(
                f"the access control entry of {each.principal} on {each.resource_name!r} cannot be understood ({error})"
            ) from None
        if not has_node(each) and entry.permission is Permission.DENY:
            raise MigrationRefused(
                f"the ACL that denies {each.principal} {title(entry.operation)} on {title(resource)} "
                f"{each.resource_name!r} cannot be kept, since the name has a /: remove it in Apache Kafka first"
            )
        if has_node(each):
            by_pattern.setdefault(Pattern(resource, each.resource_name, kind), []).append(entry)
    return {acl_nodes.path_of(pattern): acl_nodes.encode_entries(sorted(by_pattern[pattern])) for pattern in by_pattern}


def has_node(record: m.AccessControlEntryRecord) -> bool:
    """Whether a rule's name can be that of a node. Apache Kafka with ZooKeeper refuses the others."""
    return "/" not in record.resource_name


def _paths(nodes: Mapping[str, bytes]) -> list[str]:
    """The nodes of patterns of types that are known, as brokers read them."""
    found = []
    for root in acl_nodes.ROOTS.values():
        for path in nodes:
            if path.startswith(root + "/"):
                kind, slash, name = path[len(root) + 1 :].partition("/")
                if slash and name and acl_nodes.resource_of(kind) is not None:
                    found.append(path)
    return found
