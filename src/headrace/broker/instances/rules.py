"""Who may do what in an instance: the cluster's rules about qualified names, and nothing outside of it.

    another's topic, group, transactional id or user     refused, whatever the cluster's rules say
    admins of the instance                               may do everything in it
    CLUSTER_ACTION                                       refused: it is for brokers
    CLUSTER                                              the cluster's rules about `acme.kafka-cluster`
    configs of brokers and loggers                       refused: they are the operator's
    no authorizer                                        everything is permitted; if there are admins, only they may
                                                         change quotas and users

An instance's requests pass the admission in any case, since also without an authorizer there is something to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.request.admission import Admission
from headrace.broker.request.demands import Demand
from headrace.errors import ErrorCode
from headrace.security.access import CLUSTER_NAME, Decisions, Operation, RequestOrigin, ResourceType, Rules

if TYPE_CHECKING:
    from headrace.broker.instances.view import View

_ADMINISTRATION = (Operation.ALTER, Operation.ALTER_CONFIGS)


class InstanceRules:
    """The rules of one instance; implements `headrace.security.access.Rules`."""

    def __init__(self, view: View, of_cluster: Rules | None) -> None:
        """`of_cluster`: None without an authorizer."""
        self._view, self._of_cluster = view, of_cluster

    @property
    def heeds_client_ids(self) -> bool:
        return self._of_cluster is not None and self._of_cluster.heeds_client_ids

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        view, rules = self._view, self._of_cluster
        names = view.names.namespace
        if operation is Operation.CLUSTER_ACTION:
            return False
        if resource is ResourceType.CLUSTER:
            name = names.qualified(CLUSTER_NAME)
        elif resource is ResourceType.USER:
            if names.local_principal(name) is None:
                return False
        elif name and not names.has(name):
            return False
        if origin.principal in view.admins:
            return True
        if rules is None:
            return not (view.admins and resource is ResourceType.CLUSTER and operation in _ADMINISTRATION)
        return rules.permits(origin, operation, resource, name)

    def permitted(
        self, origin: RequestOrigin, operations: Sequence[Operation], resource: ResourceType, name: str
    ) -> Sequence[Operation]:
        return [each for each in operations if self.permits(origin, each, resource, name)]

    def permits_any(
        self, origin: RequestOrigin, operation: Operation, resource: ResourceType, *, prefix: str = ""
    ) -> bool:
        if origin.principal in self._view.admins or self._of_cluster is None:
            return True
        assert not prefix
        return self._of_cluster.permits_any(origin, operation, resource, prefix=self._view.names.prefix)


class InstanceAdmission(Admission):
    """Admits the requests of one instance's clients."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        super().__init__(InstanceRules(view, None))
        self._view = view

    def rules_changed(self, rules: Rules | None) -> None:
        """The cluster has other rules."""
        super().rules_changed(InstanceRules(self._view, rules))

    def is_permitted(self, rules: Rules, decisions: Decisions, demand: Demand, name: str) -> bool:
        if demand.code is ErrorCode.POLICY_VIOLATION:
            return False  # `policies` names only what is refused
        if demand.entries is not None and demand.resource is ResourceType.CLUSTER:
            return False  # configs of brokers
        return super().is_permitted(rules, decisions, demand, name)

    def plain_name(self, topic: str | bytes, names_by_id: Mapping[bytes, str]) -> str | None:
        return names_by_id.get(topic) if isinstance(topic, bytes) else self._view.names.prefix + topic
