"""Users in a metadata store, written without a broker: the first user has to exist before anybody can log in.

The nodes are those of Apache Kafka 3.9, and each change is announced as its tools announce theirs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from headrace.metadata import znodes
from headrace.metadata.entity_configs import DEFAULT, USERS, EntityConfigs, desanitize, sanitize
from headrace.metastore.store import MetadataStore, ensure_path
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.store_place import StorePlace, work_on
from headrace.security.sasl import scram

T = TypeVar("T")

MECHANISMS: Sequence[str] = tuple(scram.HASHES)


def set_password(place: StorePlace, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Sets the credentials of a user. Raises `MigrationRefused`."""
    if not name or not password:
        raise MigrationRefused(f"the {'password' if name else 'name'} is empty")
    if not scram.ITERATIONS_MIN <= iterations <= scram.ITERATIONS_MAX:
        raise MigrationRefused(f"the iterations must be {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX}")
    made = {}
    for mechanism in mechanisms:
        salt = scram.new_salt(os.urandom(scram.SALT_BYTES))
        made[mechanism] = scram.format_credential(scram.credential(mechanism, password, salt, iterations))
    _run(place, lambda entities: entities.rewrite(USERS, sanitize(name), lambda own: {**own, **made}))


def remove(place: StorePlace, name: str, mechanisms: Sequence[str]) -> None:
    """Removes credentials of a user; without mechanisms, all of them. Raises `MigrationRefused`."""
    wanted = set(mechanisms or MECHANISMS)

    def without(own: Mapping[str, str]) -> Mapping[str, str]:
        if not wanted & own.keys():
            raise MigrationRefused(f"user {name!r} has no such credentials")
        return {key: value for key, value in own.items() if key not in wanted}

    _run(place, lambda entities: entities.rewrite(USERS, sanitize(name), without))


def list_users(place: StorePlace) -> dict[str, dict[str, int]]:
    """The iterations of every user's credentials, by user and mechanism. Raises `MigrationRefused`."""

    async def read(entities: EntityConfigs) -> dict[str, dict[str, int]]:
        names = [each for each in await entities.store.children(f"/config/{USERS}") if each != DEFAULT]
        await entities.load(USERS, names)
        found = {name: _iterations(entities.get(USERS, name)) for name in names}
        return {desanitize(name): iterations for name, iterations in sorted(found.items()) if iterations}

    return _run(place, read)


def _iterations(configs: Mapping[str, str]) -> dict[str, int]:
    found = {}
    for mechanism in MECHANISMS:
        if mechanism in configs:
            try:
                found[mechanism] = scram.parse_credential(configs[mechanism]).iterations
            except ValueError:
                found[mechanism] = 0
    return found


def _run(place: StorePlace, work: Callable[[EntityConfigs], Awaitable[T]]) -> T:
    async def on(store: MetadataStore) -> T:
        for path in (znodes.CONFIG_CHANGES, f"/config/{USERS}"):
            await ensure_path(store, path)
        return await work(EntityConfigs(store))

    return work_on(place, on)
