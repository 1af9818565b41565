"""Dynamic broker configs: read from /config/brokers/N for one broker and /config/brokers/<default> for all.

    leader.replication.throttled.rate, follower.replication.throttled.rate,
    replica.alter.log.dirs.io.max.bytes.per.second      which kafka-reassign-partitions.sh sets and removes

A broker's own value wins over the default for all, which wins over the value of the start. Every other config is fixed
at the start. Source: Kafka's `DynamicBrokerConfig`, `DynamicConfig.Broker`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from headrace.config import BROKER_SETTINGS, BrokerConfig, parse_value
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.metadata import znodes
from headrace.metadata.config_changes import Change, changed, replaced
from headrace.metastore.store import BadVersion, Create, MetadataStore, NodeExists, Op, Set, StoreError, WatchEvent
from headrace.types import BrokerId

log = logging.getLogger(__name__)

ALL = "<default>"
DYNAMIC = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


class BrokerSettings:
    """The dynamic configs of one broker. Every broker can change the configs of every other."""

    def __init__(self, store: MetadataStore, broker_id: BrokerId, static: BrokerConfig) -> None:
        self._store = store
        self._names = (ALL, str(broker_id))
        self._static = static
        self._set: dict[str, Mapping[str, str]] = {name: {} for name in self._names}
        self._numbers = {name: self._number(name) for name in DYNAMIC}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Reads the configs, and starts to follow changes."""
        for name in self._names:
            await self._read(name)

    async def close(self) -> None:
        """Stops following changes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def number(self, name: str) -> int:
        """The effective value of a config in `DYNAMIC`."""
        return self._numbers[name]

    def set_for(self, entity: str) -> Mapping[str, str]:
        """The configs set for this broker (`entity` is its id) or for `ALL`, by name."""
        return self._set[entity]

    async def rewrite(
        self, entity: str, changes: Sequence[Change] | None, values: Sequence[tuple[str, str | None]] = (), *,
        validate_only: bool = False,
    ) -> None:  # fmt: skip
        """Applies `changes` to the configs of a broker or of `ALL`; without `changes`, replaces them by `values`.

        Raises `InvalidRequest` for a config that is fixed at the start, `InvalidConfig` for an invalid value.
        """
        fixed = [name for name in (*(c.name for c in changes or ()), *(n for n, _ in values)) if name not in DYNAMIC]
        if fixed:
            raise InvalidRequest(
                f"Cannot update these configs dynamically: [{', '.join(fixed)}]. Set them when the broker starts "
                f"(headrace serve --set NAME=VALUE). Only these configs are dynamic: {', '.join(DYNAMIC)}"
            )
        path = znodes.config("brokers", entity)
        node = await self._store.exists(path)
        before = znodes.decode_config(node.data) if node is not None else {}
        after = replaced(values) if changes is None else changed(before, changes, self._static.topic_defaults)
        for name, text in after.items():
            if name in DYNAMIC:
                parse_value(BROKER_SETTINGS[name][1], text, name)
        if validate_only or after == before:
            return
        data = znodes.encode_config(after)
        write: Op = Create(path, data) if node is None else Set(path, data, node.version)
        notice = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("brokers", entity), sequential=True)
        try:
            await self._store.multi([write, notice])
        except (BadVersion, NodeExists):
            await self.rewrite(entity, changes, values)  # another broker was first
        else:
            if entity in self._set:
                self._take(entity, after)

    def _take(self, entity: str, values: Mapping[str, str]) -> None:
        known = {}
        for name in DYNAMIC:
            if name in values:
                try:
                    parse_value(BROKER_SETTINGS[name][1], values[name], name)
                except InvalidConfig as error:
                    log.warning("a dynamic config of broker %s is ignored: %s", entity, error.message)
                else:
                    known[name] = values[name]
        self._set[entity] = known
        self._numbers = {name: self._number(name) for name in DYNAMIC}

    def _number(self, name: str) -> int:
        attribute, setting = BROKER_SETTINGS[name]
        value = getattr(self._static, attribute)
        for entity in self._names:
            if name in self._set[entity]:
                value = parse_value(setting, self._set[entity][name], name)
        assert isinstance(value, int)
        return value

    def _on_watch(self, event: WatchEvent) -> None:
        task = asyncio.get_running_loop().create_task(self._follow(event.path.rpartition("/")[2]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, entity: str) -> None:
        try:
            await self._read(entity)
        except StoreError as error:
            log.warning("a change of dynamic broker configs could not be read: %s", error)

    async def _read(self, entity: str) -> None:
        node = await self._store.exists(znodes.config("brokers", entity), self._on_watch)
        try:
            self._take(entity, znodes.decode_config(node.data) if node is not None else {})
        except znodes.CorruptNode as error:
            log.warning("the dynamic configs of broker %s are malformed and are ignored: %s", entity, error)
