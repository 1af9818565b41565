"""Reads the rules and filters of requests about access control lists.

A code of 0 in a filter or rule is one that the client itself did not know. Apache Kafka closes the connection then;
here the request is refused with INVALID_REQUEST. A code that is not known here:

    in a new rule    the rule is refused
    in a filter      DescribeAcls finds nothing, DeleteAcls refuses the filter

Source: Kafka's CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest, AclApis, AclControlManager.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol, TypeVar

from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.instances.names import SEPARATOR
from headrace.protocol import messages as m
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission

_UNKNOWN = 0

E = TypeVar("E", bound=IntEnum)


class FilterMessage(Protocol):
    """A filter, as DescribeAcls and DeleteAcls have it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class UnknownFilter(InvalidRequest):
    """A filter with a code that is not known here."""


def no_authorizer(where: str = "") -> KafkaError:
    """The error of a broker that has no authorizer."""
    return KafkaError(f"No Authorizer is configured{where}.", ErrorCode.SECURITY_DISABLED)


def read_filter(message: FilterMessage) -> BindingFilter:
    """A filter. Raises `InvalidRequest`, and `UnknownFilter` for a code that is not known here."""
    codes = (message.resource_type_filter, message.pattern_type_filter, message.operation, message.permission_type)
    if _UNKNOWN in codes:
        raise InvalidRequest("The filter contains UNKNOWN elements")
    resource, kind = _member(ResourceType, codes[0]), _member(PatternType, codes[1])
    if resource is None or kind is None:
        raise UnknownFilter("Unknown patternFilter.")
    operation, permission = _member(Operation, codes[2]), _member(Permission, codes[3])
    if operation is None or permission is None:
        raise UnknownFilter("Unknown entryFilter.")
    return BindingFilter(
        PatternFilter(resource, message.resource_name_filter, kind),
        EntryFilter(message.principal_filter, message.host_filter, operation, permission),
    )


def has_unknown_codes(creation: m.CreateAclsRequest.AclCreation) -> bool:
    """Whether a rule has a code of 0."""
    return _UNKNOWN in (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


def read_binding(
    creation: m.CreateAclsRequest.AclCreation, *, may_two_phase_commit: bool, is_instance: Callable[[str], bool]
) -> Binding:
    """A new rule. Raises `InvalidRequest` with Kafka's text. `is_instance`: whether an instance has a name, for a rule
    about what is the cluster to its clients (`acme.kafka-cluster`)."""
    resource, name = _member(ResourceType, creation.resource_type), creation.resource_name
    kind = _member(PatternType, creation.resource_pattern_type)
    operation, permission = _member(Operation, creation.operation), _member(Permission, creation.permission_type)
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME and not _is_cluster_of(name, is_instance):
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise InvalidRequest("Invalid empty resource name")
    if resource in (None, ResourceType.ANY):
        raise InvalidRequest(f"Invalid resourceType {_shown(resource)}")
    if kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {_shown(kind)}")
    if operation in (None, Operation.ANY):
        raise InvalidRequest(f"Invalid operation {_shown(operation)}")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequest(f"Invalid permissionType {_shown(permission)}")
    if ":" not in creation.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if "/" in name:
        raise InvalidRequest(f"ACL binding contains invalid resource name: {name}")
    if operation is Operation.TWO_PHASE_COMMIT and not may_two_phase_commit:
        raise InvalidRequest(
            "Brokers of Apache Kafka 3.9 in this cluster could not read an ACL with operation TWO_PHASE_COMMIT: use ALL"
        )
    assert resource is not None
    assert kind is not None
    assert operation is not None
    assert permission is not None
    return Binding(Pattern(resource, name, kind), Entry(creation.principal, creation.host, operation, permission))


def _is_cluster_of(name: str, is_instance: Callable[[str], bool]) -> bool:
    instance, _, local = name.partition(SEPARATOR)
    return local == CLUSTER_NAME and is_instance(instance)


def _member(kind: type[E], code: int) -> E | None:
    return kind(code) if code in kind._value2member_map_ else None


def _shown(value: IntEnum | None) -> str:
    return "UNKNOWN" if value is None else value.name
