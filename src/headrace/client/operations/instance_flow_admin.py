"""What flows through instances, and who is throttled, as all brokers of a headrace cluster know it.

Each broker answers for itself: rates in force, what flowed in its last interval, who was held. The controller also says
how it shares the limits out. A broker that does not answer is listed as silent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId


class BrokerFlow(NamedTuple):
    """One broker's answer."""

    broker: BrokerId
    instances: Mapping[str, Mapping[str, Any]]
    """By name, as `InstanceFlow.describe` has them."""


class ClusterFlow(NamedTuple):
    """All answers."""

    brokers: Sequence[BrokerFlow]
    silent: Sequence[BrokerId]
    """Brokers that did not answer."""

    @property
    def names(self) -> list[str]:
        """The instances that any broker knows."""
        return sorted({name for each in self.brokers for name in each.instances})

    def of(self, name: str) -> dict[BrokerId, Mapping[str, Any]]:
        """One instance, by broker."""
        return {each.broker: each.instances[name] for each in self.brokers if name in each.instances}

    def shared_out(self, name: str) -> Mapping[str, Any] | None:
        """How the controller shares the limits of an instance out; None if it has not answered."""
        return next((each["controller"] for each in self.of(name).values() if each["controller"]), None)


class InstanceFlowAdmin:
    """Calls about the flow of instances on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe_flow(self, names: Sequence[str] | None = None) -> ClusterFlow:
        """The flow of instances, all when None. Raises `KafkaError`: RESOURCE_NOT_FOUND for a name that no broker
        knows."""
        deadline = self._cluster.deadline()
        request = m.DescribeInstanceFlowRequest(names=None if names is None else list(names))
        found, silent = [], []
        for broker in sorted(self._cluster.refresh([], deadline).brokers):
            try:
                answer = self._cluster.call(broker, request, m.DescribeInstanceFlowResponse, deadline)
            except KafkaError as error:
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise
                silent.append(broker)
                continue
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message or "instances")
            found.append(BrokerFlow(broker, _read(answer.document)))
        flow = ClusterFlow(found, silent)
        for name in names or ():
            if not flow.of(name):
                raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no instance {name}")
        return flow


def _read(document: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        instances = json.loads(document)["instances"]
        if isinstance(instances, dict):
            return instances
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidRequest("the broker's answer does not describe the flow of instances")
