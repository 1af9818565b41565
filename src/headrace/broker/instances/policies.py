"""What the operator has bounded of an instance, as demands beside those of the handlers.

    AlterConfigs, IncrementalAlterConfigs    the bounds of retention and of files, and the operator's own settings
    AlterClientQuotas                        quotas of the instance's own users and client ids only: the defaults, and
                                             addresses, are the cluster's
    requests that make a group                the number of groups, at each broker that coordinates some
    requests about a member of a group        what all members bring, likewise (`member_bytes`)
    InitProducerId                            the number of transactional ids, likewise

What is over a bound is refused with POLICY_VIOLATION, with a text where the response has a place for one; the other
entries are handled. The demands here have names only for what is refused, and `rules` refuses all that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.instances.names import ENTITIES
from headrace.broker.instances.topics import (
    AFTER_MAX_MS,
    BOUNDED,
    CLEANUP_POLICY,
    cleanup_error,
    operators_error,
    setting_error,
    value_error,
)
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalPlace
from headrace.config.topic_bounds import DELETE
from headrace.errors import ErrorCode
from headrace.limits import INSTANCE_NAME_CHARS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.instances.context import InstanceContext

_SET, _SUBTRACT = 0, 3
_HEARTBEATS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT)
_HEARTBEAT_BYTES = 1024
"""Of a heartbeat with the member's partitions, and no more than a few names."""
_QUOTAS_OF_OTHERS = (
    "only quotas of users and client ids by name can be set here, not defaults and not those of addresses"
)
Why = Callable[["InstanceContext", Any], str | None]
"""Why an entry of a request is refused; None if it is not."""


def _settings(ctx: InstanceContext, resource: Any) -> str | None:
    """Why the configs of a topic are refused. One that the request does not set will have the default."""
    if resource.resource_type != ResourceType.TOPIC:
        return None
    defaults = ctx.services.settings.current.topic_defaults
    for each in resource.configs:
        if each.name == CLEANUP_POLICY and (why := _cleanup(ctx, each)):
            return why
        if why := value_error(each.name, each.value):
            return why
        if getattr(each, "config_operation", _SET) == _SET and (why := operators_error(each.name, each.value)):
            return why
    for name, attribute in BOUNDED.items():
        found = [each for each in resource.configs if each.name == name]
        if not found and ctx.api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS:
            continue
        last = found[-1] if found else None
        is_set = last is not None and getattr(last, "config_operation", _SET) == _SET and last.value is not None
        try:
            value = int(last.value) if is_set and last is not None else getattr(defaults, attribute)
        except ValueError:
            continue  # the handler refuses it
        if name == AFTER_MAX_MS and not is_set:
            continue  # the default is held to the bound
        why = setting_error(ctx.view, defaults, name, value)
        if why is not None:
            return why if is_set else f"{why}; set {name}"
    return None


def _cleanup(ctx: InstanceContext, config: Any) -> str | None:
    """Why a change of `cleanup.policy` is refused. What is removed must not be what deletes."""
    text, operation = config.value or "", getattr(config, "config_operation", _SET)
    if operation == _SUBTRACT:
        if DELETE not in (each.strip() for each in text.split(",")):
            return None
        text = "compact"
    elif operation != _SET or config.value is None:
        return None  # the default keeps within the bounds, and so does what has a further policy
    return cleanup_error(ctx.view, text)


def _quotas(_ctx: InstanceContext, entry: Any) -> str | None:
    is_own = all(each.entity_type in ENTITIES and each.entity_name for each in entry.entity)
    return None if is_own else _QUOTAS_OF_OTHERS


def _refuse_settings(ctx: InstanceContext, request: Any, code: ErrorCode) -> Any:
    kind: Any = m.AlterConfigsResponse if ctx.api_key is ApiKey.ALTER_CONFIGS else m.IncrementalAlterConfigsResponse
    return kind(
        responses=[
            kind.AlterConfigsResourceResponse(
                error_code=code,
                error_message=_settings(ctx, each),
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )


def _refuse_quotas(ctx: InstanceContext, request: Any, code: ErrorCode) -> Any:
    response = m.AlterClientQuotasResponse
    return response(
        entries=[
            response.EntryData(
                error_code=code,
                error_message=_quotas(ctx, entry),
                entity=[
                    response.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _policy(array: str, answers: str, why: Why, refuse: Callable[[Any, Any, ErrorCode], Any]) -> Demands:
    def name(ctx: Any, entry: Any) -> str | None:
        return None if why(ctx, entry) is None else "policy"

    entries = Entries(array, answers, name, refuse, RefusalPlace.ASKED)
    return (Demand(Operation.ALTER, ResourceType.CLUSTER, entries=entries, code=ErrorCode.POLICY_VIOLATION),)


def _new_groups(ctx: InstanceContext, request: Any) -> Iterable[str]:
    """The group of a request, if the request would make it, and there are too many already or its name is too long."""
    most, group_id = ctx.view.instance.groups_max, request.group_id
    is_long = len(group_id) > INSTANCE_NAME_CHARS_MAX
    if most is None and not is_long:
        return ()
    coordinator = ctx.services.groups.coordinator
    if coordinator.find(group_id) is not None:
        return ()
    if not is_long and (most is None or coordinator.count(ctx.view.names.prefix) < most):
        return ()
    return (group_id,)


def _large_members(ctx: InstanceContext, request: Any) -> Iterable[str]:
    """The group of a request that brings more of a member than there is room for."""
    if ctx.api_key in _HEARTBEATS:
        leaves = request.member_epoch < 0
        if leaves or (request.member_epoch > 0 and ctx.request_bytes <= _HEARTBEAT_BYTES):
            return ()  # it says nothing new
    return () if ctx.view.member_bytes.admits(ctx.request_bytes) else (request.group_id,)


def _new_transactional_ids(ctx: InstanceContext, request: Any) -> Iterable[str]:
    """The transactional id of a request, if it is a new one and there are too many already."""
    name, most, transactions = (
        request.transactional_id,
        ctx.view.instance.transactional_ids_max,
        ctx.services.transactions,
    )
    if not name or transactions.knows(name):
        return ()
    if len(name) <= INSTANCE_NAME_CHARS_MAX and (most is None or transactions.count(ctx.view.names.prefix) < most):
        return ()
    return (name,)


_TRANSACTIONAL_IDS = (
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _new_transactional_ids, code=ErrorCode.POLICY_VIOLATION),
)
_GROUPS = (Demand(Operation.READ, ResourceType.GROUP, _new_groups, code=ErrorCode.POLICY_VIOLATION),)
_SYNCS = (Demand(Operation.READ, ResourceType.GROUP, _large_members, code=ErrorCode.POLICY_VIOLATION),)
_MEMBERS = _GROUPS + _SYNCS


POLICIES: Mapping[ApiKey, Demands] = {
    ApiKey.JOIN_GROUP: _MEMBERS,
    ApiKey.SYNC_GROUP: _SYNCS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _MEMBERS,
    ApiKey.SHARE_GROUP_HEARTBEAT: _MEMBERS,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _MEMBERS,
    ApiKey.OFFSET_COMMIT: _GROUPS,
    ApiKey.TXN_OFFSET_COMMIT: _GROUPS,
    ApiKey.INIT_PRODUCER_ID: _TRANSACTIONAL_IDS,
    ApiKey.ALTER_CONFIGS: _policy("resources", "responses", _settings, _refuse_settings),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _policy("resources", "responses", _settings, _refuse_settings),
    ApiKey.ALTER_CLIENT_QUOTAS: _policy("entries", "entries", _quotas, _refuse_quotas),
}
