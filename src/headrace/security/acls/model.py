"""Rules: who may do what to which resources from where.

    Binding
      pattern   resource type, name, pattern type      the resources that the rule applies to
      entry     principal, host, operation, permission

    LITERAL     the resource of that name; `*` stands for every resource of the type
    PREFIXED    every resource whose name begins with the pattern's; `*` is a character like others

Names of types and operations occur in two forms, as in Apache Kafka: `TransactionalId` in nodes and on command lines,
`TRANSACTIONAL_ID` in messages. Both are read.
Source: Kafka's AclBinding, ResourcePattern, AccessControlEntry, SecurityUtils, KafkaPrincipal.
"""

from enum import IntEnum
from typing import NamedTuple, TypeVar

from headrace.security.access import Operation, ResourceType

WILDCARD = "*"
"""Every host, and as the name of a literal pattern every resource of its type."""

EVERYBODY = "User:*"
"""The principal of rules that apply to all principals."""


class PatternType(IntEnum):
    """How a pattern's name is compared. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether a rule allows or denies. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """The resources that a rule applies to."""

    resource: ResourceType
    name: str
    kind: PatternType = PatternType.LITERAL


class Entry(NamedTuple):
    """A principal that may, or may not, do an operation from a host."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Binding(NamedTuple):
    """A rule."""

    pattern: Pattern
    entry: Entry


E = TypeVar("E", bound=IntEnum)


def title(value: IntEnum) -> str:
    """The name in the form of nodes and command lines: `TransactionalId`."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def titles(kind: type[E]) -> dict[str, E]:
    """The members of an enumeration by both forms of their names."""
    return {name: each for each in kind for name in (title(each), each.name)}


def check_principal(text: str) -> str:
    """The principal, `Type:name`. Raises `ValueError` with Kafka's text if it has another form."""
    if ":" not in text:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return text
