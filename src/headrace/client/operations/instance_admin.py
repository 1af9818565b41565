"""Administration of instances: create, describe, alter and delete the tenants of a headrace cluster.

    with Cluster("127.0.0.1:9092") as cluster:
        admin = InstanceAdmin(cluster)
        admin.create_instance("acme", {"bytes_in": 10 << 20, "brokers": [1, 2]})
        admin.await_listeners("acme").bootstrap         # 'host:port,host:port'

A broker that is not headrace closes the connection: these requests are headrace's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import DeadlineExceeded, error_for
from headrace.client.core.timing import Deadline
from headrace.errors import InvalidRequest, KafkaError
from headrace.instances.definition import Instance, read_fields
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.types import BrokerId

_CREATE, _ALTER, _DELETE = range(3)
Call = Callable[[Message, type[m.DescribeInstancesResponse], Deadline], m.DescribeInstancesResponse]


class DescribedInstance(NamedTuple):
    """An instance, where it is, and what it holds."""

    instance: Instance
    endpoints: Mapping[BrokerId, str]
    """`host:port` of its listener on each broker that has opened it; empty in answers to changes."""
    topics: int | None
    """None if it was not asked for."""
    partitions: int | None
    stored: int | None = None
    """The bytes that count towards its capacity, as the broker knows them; None without a capacity."""

    @property
    def bootstrap(self) -> str:
        """The addresses of all its listeners, separated by commas; empty without one."""
        return ",".join(self.endpoints.values())


class InstanceAdmin:
    """Calls about instances on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create_instance(
        self, name: str, fields: Mapping[str, object] | None = None, *, adopt: bool = False, validate_only: bool = False
    ) -> DescribedInstance:
        """Creates an instance with these fields of `Instance`. With `adopt`, topics that are called `NAME.…` already
        become its own. Raises `KafkaError`: DUPLICATE_RESOURCE if there is one of the name."""
        return self._alter(_CREATE, name, {**(fields or {}), "adopt": adopt}, validate_only)

    def alter_instance(
        self, name: str, changes: Mapping[str, object], *, force: bool = False, validate_only: bool = False
    ) -> DescribedInstance:
        """Changes fields of an instance; the others keep their values. `force` allows limits below what there is.
        `{"state": "active"}` brings back an instance whose grace period has not passed. Raises `KafkaError`:
        RESOURCE_NOT_FOUND if there is none of the name."""
        return self._alter(_ALTER, name, {**changes, "force": force}, validate_only)

    def delete_instance(
        self, name: str, *, with_data: bool = False, grace_ms: int | None = None, validate_only: bool = False
    ) -> DescribedInstance:
        """Deletes an instance that has no topics, or any `with_data`. Its data goes after the grace period, which is a
        day for None if there are topics. Returns it as it is until then. Raises `KafkaError`."""
        asked: dict[str, object] = {"with_data": with_data}
        if grace_ms is not None:
            asked["grace_ms"] = grace_ms
        return self._alter(_DELETE, name, asked, validate_only)

    def describe_instances(self, names: Sequence[str] | None = None) -> list[DescribedInstance]:
        """Instances by name, or all of them, as any broker knows them. Raises `KafkaError`: RESOURCE_NOT_FOUND for a
        name without one."""
        return self._describe(names, self._cluster.call_any, self._cluster.deadline())

    def _describe(self, names: Sequence[str] | None, call: Call, deadline: Deadline) -> list[DescribedInstance]:
        request = m.DescribeInstancesRequest(names=None if names is None else list(names), include_contents=True)

        def attempt() -> list[DescribedInstance]:
            answer = call(request, m.DescribeInstancesResponse, deadline)
            _check(answer.error_code, answer.error_message)
            for each in answer.instances:
                _check(each.error_code, each.error_message)
            return [_read(each.document) for each in answer.instances]

        return self._cluster.retry(attempt, deadline)

    def await_listeners(self, name: str) -> DescribedInstance:
        """The instance once each live broker has opened its listener, or at once if it has none of its own. Raises
        `DeadlineExceeded` after `api_timeout_ms`."""
        deadline = self._cluster.deadline()
        missing: set[BrokerId] = set()
        while not (missing and deadline.expired):
            try:
                # The controller knows an instance that it has just made; another broker hears of it moments later.
                [found] = self._describe([name], self._cluster.call_controller, deadline)
                missing = set(self._cluster.refresh([], deadline).brokers) - set(found.endpoints)
            except KafkaError:
                if missing and deadline.expired:
                    break
                raise
            if found.instance.port is None or not missing:
                return found
            deadline.sleep_ms(self._cluster.settings.retry_backoff_ms)
        numbers = ", ".join(map(str, sorted(missing)))
        raise DeadlineExceeded(f"instance {name} has no listener on brokers {numbers} yet: see their logs")

    def _alter(self, action: int, name: str, document: Mapping[str, object], validate_only: bool) -> DescribedInstance:
        deadline = self._cluster.deadline()
        alteration = m.AlterInstancesRequest.Alteration(name=name, action=action, document=json.dumps(document))
        request = m.AlterInstancesRequest(
            timeout_ms=self._cluster.settings.request_timeout_ms, validate_only=validate_only, alterations=[alteration]
        )

        def attempt() -> DescribedInstance:
            answer = self._cluster.call_controller(request, m.AlterInstancesResponse, deadline)
            _check(answer.error_code, answer.error_message)
            [result] = answer.results
            _check(result.error_code, result.error_message)
            return _read(result.document)

        return self._cluster.retry(attempt, deadline)


def _check(code: int, message: str | None) -> None:
    if code:
        raise error_for(code, message or "instances")


def _read(document: str) -> DescribedInstance:
    try:
        value = json.loads(document)
        contents = value.get("contents") or {}
        endpoints = {BrokerId(int(broker)): str(address) for broker, address in value.get("endpoints", {}).items()}
        return DescribedInstance(
            read_fields(value), endpoints, contents.get("topics"), contents.get("partitions"), contents.get("bytes")
        )
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequest("the broker's answer is not the description of an instance") from None
