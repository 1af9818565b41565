"""The limits of instances as quotas of Kafka's protocol, for an entity of the type `instance`.

    {instance: acme}    producer_byte_rate    bytes_in, over all brokers
                        consumer_byte_rate    bytes_out

Every broker serves these requests: such a limit depends on no other instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.instances.definition import Instance, InstanceState
from headrace.metadata.entity_configs import USERS
from headrace.metadata.quota_nodes import INSTANCE, QuotaEntity, altered

if TYPE_CHECKING:
    from headrace.metadata.stored_instances import StoredInstances

_FIELDS = {"producer_byte_rate": "bytes_in", "consumer_byte_rate": "bytes_out"}

Ops = Sequence[tuple[str, float | None]]
"""Key and value, None to remove the quota."""


async def alter_limits(instances: StoredInstances, entity: QuotaEntity, ops: Ops, *, validate_only: bool) -> None:
    """Sets and removes limits of an instance. Raises `KafkaError`."""
    name = entity[INSTANCE]
    if name is None:
        raise InvalidRequest("instances have no default quota: name the instance")
    for key, _ in ops:
        if key not in _FIELDS:
            raise InvalidRequest(f"Invalid configuration key {key}: an instance has {', '.join(_FIELDS)}")
    texts = altered(USERS, {}, ops)
    changes = {_FIELDS[key]: int(texts[key]) if key in texts else None for key, _ in ops}

    def decide(before: Instance) -> Instance:
        if before.state is not InstanceState.ACTIVE:
            raise KafkaError(f"instance {name} is being deleted", ErrorCode.POLICY_VIOLATION)
        return before.altered(changes)

    known = instances.get(name)
    if known is None:
        raise KafkaError(f"there is no instance called {name!r:.100}", ErrorCode.RESOURCE_NOT_FOUND)
    if validate_only:
        decide(known)
    else:
        await instances.change(name, decide)


def limits_of(instances: Iterable[Instance]) -> Iterable[tuple[QuotaEntity, Mapping[str, float]]]:
    """The limits of those that have any."""
    for each in instances:
        found = {key: float(limit) for key, field in _FIELDS.items() if (limit := getattr(each, field)) is not None}
        if found:
            yield {INSTANCE: each.name}, found
