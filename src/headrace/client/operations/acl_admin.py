"""Administration of access control lists: describe, create and delete rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.protocol import messages as m
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.filters import BindingFilter
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission


class AclAdmin:
    """Calls about access control lists on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe_acls(self, wanted: BindingFilter = BindingFilter()) -> list[Binding]:  # noqa: B008 - it cannot be changed
        """The rules that a filter matches, ordered. Raises `KafkaError`."""
        request = m.DescribeAclsRequest(**_fields(wanted))
        deadline = self._cluster.deadline()

        def attempt() -> list[Binding]:
            answer = self._cluster.call_any(request, m.DescribeAclsResponse, deadline)
            _check(answer.error_code, answer.error_message)
            return sorted(
                _binding(each, acl.principal, acl.host, acl.operation, acl.permission_type)
                for each in answer.resources
                for acl in each.acls
            )

        return self._cluster.retry(attempt, deadline)

    def create_acls(self, rules: Iterable[Binding]) -> None:
        """Creates rules. Those that exist already are left as they are. Raises the first `KafkaError`; rules for other
        resources may have been created then."""
        request = m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequest.AclCreation(
                    resource_type=resource,
                    resource_name=name,
                    resource_pattern_type=kind,
                    principal=principal,
                    host=host,
                    operation=operation,
                    permission_type=permission,
                )
                for (resource, name, kind), (principal, host, operation, permission) in rules
            ]
        )
        deadline = self._cluster.deadline()

        def attempt() -> None:
            for result in self._cluster.call_any(request, m.CreateAclsResponse, deadline).results:
                _check(result.error_code, result.error_message)

        self._cluster.retry(attempt, deadline)

    def delete_acls(self, filters: Sequence[BindingFilter]) -> list[Binding]:
        """Deletes the rules that any of the filters matches; returns them, ordered. Raises the first `KafkaError`."""
        request = m.DeleteAclsRequest(
            filters=[m.DeleteAclsRequest.DeleteAclsFilter(**_fields(each)) for each in filters]
        )
        deadline = self._cluster.deadline()

        def attempt() -> list[Binding]:
            found = set()
            for result in self._cluster.call_any(request, m.DeleteAclsResponse, deadline).filter_results:
                _check(result.error_code, result.error_message)
                for acl in result.matching_acls:
                    _check(acl.error_code, acl.error_message)
                    found.add(_binding(acl, acl.principal, acl.host, acl.operation, acl.permission_type))
            return sorted(found)

        return self._cluster.retry(attempt, deadline)


def _fields(wanted: BindingFilter) -> dict[str, Any]:
    """The fields of a filter, which both requests have under the same names."""
    (resource, name, kind), (principal, host, operation, permission) = wanted
    return {
        "resource_type_filter": resource,
        "resource_name_filter": name,
        "pattern_type_filter": kind,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }


def _check(code: int, message: str | None) -> None:
    if code:
        raise error_for(code, message or "access control lists")


def _binding(
    pattern: m.DescribeAclsResponse.DescribeAclsResource | m.DeleteAclsResponse.DeleteAclsMatchingAcl,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Binding:
    return Binding(
        Pattern(ResourceType(pattern.resource_type), pattern.resource_name, PatternType(pattern.pattern_type)),
        Entry(principal, host, Operation(operation), Permission(permission)),
    )
