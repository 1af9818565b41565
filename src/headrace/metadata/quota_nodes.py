"""Where Kafka 3.9 keeps the quotas of which entity, and which quotas an entity may have. Pure.

    {user: U}                 users/U                  producer_byte_rate, consumer_byte_rate, request_percentage,
    {user: U, client-id: C}   users/U/clients/C        controller_mutation_rate
    {client-id: C}            clients/C
    {ip: A}                   ips/A                    connection_creation_rate

A name of None is the default. Source: Kafka's `ZkAdminManager`, `ClientQuotaControlManager`, `QuotaConfig`.
"""

import math
from collections.abc import Mapping, Sequence

from headrace.errors import InvalidRequest
from headrace.limits import INT32_MAX, INT64_MAX
from headrace.metadata import entity_configs
from headrace.metadata.entity_configs import CLIENTS, IPS, USERS, desanitize, sanitize
from headrace.quotas.entities import DEFAULT, Entity, Name

USER, CLIENT_ID, IP = "user", "client-id", "ip"
INSTANCE = "instance"
"""headrace's own: the limits of an instance, which are kept elsewhere (`broker.instances.limits_as_quotas`)."""

_CLIENT_KEYS = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS = {"connection_creation_rate": INT32_MAX}
_FRACTION_MAX = 1e-6

QuotaEntity = dict[str, str | None]
"""Names by type of entity; a name of None is the default."""


def user_entity(name: str) -> Entity | None:
    """The entity of a node below /config/users; None if the name is of another form."""
    user, *rest = name.split("/")
    if not rest:
        return Entity(_name(user))
    return Entity(_name(user), _name(rest[1])) if len(rest) == 2 and rest[0] == CLIENTS else None


def client_entity(name: str) -> Entity | None:
    """The entity of a node below /config/clients; None if the name is of another form."""
    return None if "/" in name else Entity(None, _name(name))


def ip_of(name: str) -> str | None:
    """The address of a node below /config/ips; None for the default."""
    return None if name == entity_configs.DEFAULT else desanitize(name)


def _name(node: str) -> Name:
    return DEFAULT if node == entity_configs.DEFAULT else desanitize(node)


def read_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request. Raises `InvalidRequest` unless it is one that may have quotas."""
    entity: QuotaEntity = {}
    for kind, name in parts:
        if kind in entity:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry: {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
        entity[kind] = name
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    if IP in entity and len(entity) > 1:
        raise InvalidRequest("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    return entity


def node_of(entity: QuotaEntity) -> tuple[str, str]:
    """The type and name of the entity's node."""
    nodes = {kind: entity_configs.DEFAULT if name is None else sanitize(name) for kind, name in entity.items()}
    if IP in nodes:
        return IPS, nodes[IP]
    if USER not in nodes:
        return CLIENTS, nodes[CLIENT_ID]
    return USERS, f"{nodes[USER]}/{CLIENTS}/{nodes[CLIENT_ID]}" if CLIENT_ID in nodes else nodes[USER]


def entity_of(entity_type: str, name: str) -> QuotaEntity | None:
    """The inverse of `node_of`; None if the node has another form."""
    parts = [None if part == entity_configs.DEFAULT else desanitize(part) for part in name.split("/")]
    if entity_type == IPS:
        return {IP: parts[0]}
    if entity_type == CLIENTS:
        return {CLIENT_ID: parts[0]}
    if len(parts) == 3 and parts[1] == CLIENTS:
        return {USER: parts[0], CLIENT_ID: parts[2]}
    return {USER: parts[0]} if len(parts) == 1 else None


def quotas_of(entity_type: str, configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's configs: a user has its SCRAM credentials beside them."""
    keys = _IP_KEYS if entity_type == IPS else _CLIENT_KEYS
    found = {}
    for key in keys:
        if key in configs:
            try:
                found[key] = float(configs[key])
            except ValueError:
                continue
    return found


def altered(entity_type: str, own: Mapping[str, str], ops: Sequence[tuple[str, float | None]]) -> dict[str, str]:
    """An entity's configs after `ops`: key and value, None to remove the quota. Raises `InvalidRequest`."""
    keys = _IP_KEYS if entity_type == IPS else _CLIENT_KEYS
    after, named = dict(own), set()
    for key, value in ops:
        if key in named:
            raise InvalidRequest(f"Duplicate quota key {key} not allowed")
        named.add(key)
        if value is None:
            after.pop(key, None)
            continue
        if key not in keys:
            raise InvalidRequest(f"Invalid configuration key {key}")
        if not value > 0:
            raise InvalidRequest(f"Quota {key} must be greater than 0")
        after[key] = _text(key, value, keys[key])
    return after


def _text(key: str, value: float, most: int | None) -> str:
    if most is None:
        if math.isinf(value):
            raise InvalidRequest(f"Quota {key} must be finite")
        return repr(value)
    if value > most:
        raise InvalidRequest(
            f"Proposed value for {key} is too large for {'an INT' if most == INT32_MAX else 'a LONG'}."
        )
    whole = math.floor(value + _FRACTION_MAX)
    if abs(value - whole) > _FRACTION_MAX:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
    if whole < 1:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    return str(min(whole, most))
