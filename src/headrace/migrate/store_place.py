"""A metadata store that a command works on without a broker.

--zookeeper HOSTS    the ensemble of a cluster, whose brokers may run: they follow the change
--data DIR           the embedded store of a broker that does not run
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace.errors import KafkaError
from headrace.metastore.database import StoreInUse
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore, NotAllowed, StoreError
from headrace.migrate.access import StoreAccess
from headrace.migrate.refusal import MigrationRefused

T = TypeVar("T")


class StorePlace(NamedTuple):
    """Where the store is: one of the two."""

    data: Path | None = None
    zookeeper: StoreAccess | None = None


def work_on(place: StorePlace, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """The result of `work` on the store, which is closed afterwards. Raises `MigrationRefused`."""

    async def main() -> T:
        store = await _open(place)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(main())
    except NotAllowed:
        raise MigrationRefused("the access control lists of ZooKeeper deny it: see --zookeeper-config") from None
    except StoreError as error:
        raise MigrationRefused(f"the metadata store failed: {type(error).__name__}") from error
    except KafkaError as error:
        raise MigrationRefused(error.message or error.code.name) from error


async def _open(place: StorePlace) -> MetadataStore:
    if place.data is not None:
        try:
            place.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await EmbeddedStore.open(place.data)
        except StoreInUse:
            raise MigrationRefused(
                f"a broker runs on {place.data}: use --bootstrap instead of --data, or stop the broker"
            ) from None
        except OSError as error:
            raise MigrationRefused(f"{place.data}: {error.strerror or error}") from None
    assert place.zookeeper is not None
    try:
        from headrace.metastore.zookeeper.connection import NotAuthenticated, ZooKeeperUnreachable, open_store
    except ImportError as error:
        raise MigrationRefused(f"--zookeeper requires kazoo ({error}): pip install 'headrace[zookeeper]'") from error
    try:
        return await open_store(place.zookeeper.ensemble())
    except (ZooKeeperUnreachable, NotAuthenticated) as error:
        raise MigrationRefused(f"{place.zookeeper.address}: {error}") from None
