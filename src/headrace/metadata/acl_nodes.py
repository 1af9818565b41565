"""Where Kafka 3.9 keeps access control lists in ZooKeeper, and the JSON of it. Pure.

    /kafka-acl/TYPE/NAME                         the rules of the literal pattern NAME; TYPE is Topic, Group, Cluster,
    /kafka-acl-extended/prefixed/TYPE/NAME       TransactionalId, DelegationToken or User
                                                 {"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*",
                                                 "operation":"Read"},...],"version":1}
    /kafka-acl-changes/acl_changes_#             TYPE:NAME, with TYPE as TRANSACTIONAL_ID
    /kafka-acl-extended-changes/acl_changes_#    {"version":1,"resourceType":"TOPIC","name":NAME,
                                                 "patternType":"PREFIXED"}

NAME is the name itself: Apache Kafka encodes nothing here, and refuses a rule whose name has a `/`. The node of a
pattern without rules does not exist. A type or operation that is not known makes a node corrupt: a rule that is ignored
could be one that denies. Of types of resources that are not known no node is read, as in Apache Kafka.
Source: Kafka's `ZkData.scala` (ZkAclStore, ZkAclChangeStore), `AclEntry`.
"""

from collections.abc import Iterable, Mapping

from headrace.metadata.znodes import CorruptNode, as_text, dump_json, load_object
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission, check_principal, title, titles

ROOTS: Mapping[PatternType, str] = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
CHANGES: Mapping[PatternType, str] = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
CHANGE_PREFIX = "acl_changes_"

_RESOURCES = {name: each for name, each in titles(ResourceType).items() if each is not ResourceType.ANY}
_OPERATIONS = {name: each for name, each in titles(Operation).items() if each is not Operation.ANY}
_PERMISSIONS = {name: each for name, each in titles(Permission).items() if each is not Permission.ANY}

PERSISTENT = (
    *(f"{root}/{title(each)}" for root in ROOTS.values() for each in ResourceType if each is not ResourceType.ANY),
    *CHANGES.values(),
)
"""The nodes that every broker with an authorizer creates at its start if they are missing."""


def path_of(pattern: Pattern) -> str:
    """The node of a pattern."""
    return f"{ROOTS[pattern.kind]}/{title(pattern.resource)}/{pattern.name}"


def resource_of(name: str) -> ResourceType | None:
    """The type of a directory of nodes; None if it is not known."""
    return _RESOURCES.get(name)


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Version 1."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": title(each.permission),
            "host": each.host,
            "operation": title(each.operation),
        }
        for each in entries
    ]
    return dump_json({"acls": acls, "version": 1})


def decode_entries(data: bytes) -> tuple[Entry, ...]:
    """The rules of a node, each once. Raises `CorruptNode`."""
    if not data:
        return ()
    value = load_object(data)
    acls = value.get("acls")
    if value.get("version") != 1 or not isinstance(acls, list):
        raise CorruptNode(f"not version 1 of access control lists: {data[:200]!r}")
    return tuple(dict.fromkeys(map(_entry, acls)))


def encode_change(pattern: Pattern) -> bytes:
    """The notification that the rules of a pattern have changed."""
    if pattern.kind is PatternType.LITERAL:
        return f"{pattern.resource.name}:{pattern.name}".encode()
    return dump_json(
        {
            "version": 1,
            "resourceType": pattern.resource.name,
            "name": pattern.name,
            "patternType": pattern.kind.name,
        }
    )


def decode_change(kind: PatternType, data: bytes) -> Pattern | None:
    """The pattern of a notification from the directory of `kind`; None for a type that is not known. Raises
    `CorruptNode`."""
    if kind is PatternType.LITERAL:
        try:
            resource, colon, name = data.decode().partition(":")
        except UnicodeDecodeError:
            raise CorruptNode(f"{data[:200]!r} is not TYPE:NAME") from None
        if not colon:
            raise CorruptNode(f"{data[:200]!r} is not TYPE:NAME")
    else:
        value = load_object(data)
        if value.get("patternType") != kind.name:
            raise CorruptNode(f"{data[:200]!r} is no change of a prefixed pattern")
        resource, name = as_text(value.get("resourceType")), as_text(value.get("name"))
    found = _RESOURCES.get(resource) or _RESOURCES.get(resource.upper())
    return None if found is None else Pattern(found, name, kind)


def _entry(value: object) -> Entry:
    if not isinstance(value, dict):
        raise CorruptNode(f"{value!r:.200} is not an access control entry")
    try:
        return Entry(
            check_principal(as_text(value.get("principal"))),
            as_text(value.get("host")),
            _OPERATIONS[as_text(value.get("operation"))],
            _PERMISSIONS[as_text(value.get("permissionType"))],
        )
    except KeyError as error:
        raise CorruptNode(f"{error.args[0]!r:.200} is not known: {value!r:.200}") from None
    except ValueError as error:
        raise CorruptNode(str(error)) from None
