"""Rules, and requests about them, in few words.

rule("Topic:t", "Read", "User:alice")                        allows; from every host
rule("Topic:pre*", "All", "User:*", permission="Deny")       a trailing * after a name is a prefix
"""

from collections.abc import Sequence
from typing import Any

from headrace.protocol import messages as m
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission, titles
from tests.asker import Asker
from tests.harness import HeadraceServer

VERSION = 3
AUTHORIZED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Settings of a broker with an authorizer whose clients, who are all anonymous, may do everything."""

ALL = BindingFilter()


def rule(
    resource: str, operation: str = "All", principal: str = "User:alice", *, host: str = "*", permission: str = "Allow"
) -> Binding:
    """A rule."""
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("*") and name != "*"
    pattern = Pattern(
        titles(ResourceType)[kind],
        name.removesuffix("*") if is_prefix else name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
    )
    return Binding(pattern, Entry(principal, host, titles(Operation)[operation], titles(Permission)[permission]))


def creation(binding: Binding) -> m.CreateAclsRequest.AclCreation:
    """A rule in a request."""
    (resource, name, kind), (principal, host, operation, permission) = binding
    return m.CreateAclsRequest.AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=kind,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create_request(*rules: Binding) -> m.CreateAclsRequest:
    """CreateAcls."""
    return m.CreateAclsRequest(creations=[creation(each) for each in rules])


def _fields(wanted: BindingFilter) -> dict[str, Any]:
    (resource, name, kind), (principal, host, operation, permission) = wanted
    return {
        "resource_type_filter": int(resource),
        "resource_name_filter": name,
        "pattern_type_filter": int(kind),
        "principal_filter": principal,
        "host_filter": host,
        "operation": int(operation),
        "permission_type": int(permission),
    }


def describe_request(wanted: BindingFilter = ALL) -> m.DescribeAclsRequest:
    """DescribeAcls."""
    return m.DescribeAclsRequest(**_fields(wanted))


def delete_request(*wanted: BindingFilter) -> m.DeleteAclsRequest:
    """DeleteAcls."""
    return m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(**_fields(each)) for each in wanted])


def exactly(binding: Binding) -> BindingFilter:
    """The filter that matches one rule."""
    return BindingFilter(PatternFilter(*binding.pattern), EntryFilter(*binding.entry))


def create(asker: Asker, *rules: Binding) -> list[tuple[int, str | None]]:
    """Creates rules; the error of each with its text."""
    answer = asker.ask(create_request(*rules), VERSION)
    return [(each.error_code, each.error_message or None) for each in answer.results]


def described(asker: Asker, wanted: BindingFilter = ALL) -> set[Binding]:
    """The rules that match a filter."""
    answer = asker.ask(describe_request(wanted), VERSION)
    assert answer.error_code == 0, answer
    return {
        Binding(
            Pattern(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)),
            Entry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
        )
        for each in answer.resources
        for acl in each.acls
    }


def deleted(asker: Asker, *wanted: BindingFilter) -> Sequence[set[Binding]]:
    """Deletes rules; those that each filter matched."""
    answer = asker.ask(delete_request(*wanted), VERSION)
    found = []
    for result in answer.filter_results:
        assert result.error_code == 0, result
        assert all(each.error_code == 0 for each in result.matching_acls), result
        found.append(
            {
                Binding(
                    Pattern(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)),
                    Entry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type)),
                )
                for each in result.matching_acls
            }
        )
    return found


def stored_before_start(server: HeadraceServer, *rules: Binding) -> None:
    """Stores rules in the data directory of a broker that is not started yet."""
    settings = server.settings
    server.settings = {**settings, **AUTHORIZED}
    server.start()
    try:
        with Asker(server.bootstrap) as asker:
            assert create(asker, *rules) == [(0, None)] * len(rules)
    finally:
        server.stop()
        server.settings = settings
