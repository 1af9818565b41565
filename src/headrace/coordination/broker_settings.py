"""Settings of brokers that change while they run: from /config/brokers/N, and /config/brokers/<default> for all.

    leader.replication.throttled.rate, follower.replication.throttled.rate,
    replica.alter.log.dirs.io.max.bytes.per.second              as a reassignment sets and takes back

A broker's own goes before that of all, which goes before what it was started with. Every other setting is the one of
the start. Source: Kafka's `DynamicBrokerConfig`, `DynamicConfig.Broker`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from headrace.config import BROKER_SETTINGS, BrokerConfig, parse_value
from headrace.coordination import paths
from headrace.coordination.config_changes import Change, changed, replaced
from headrace.coordination.tree import BadVersion, Create, NodeExists, Op, Set, Tree, TreeError, WatchEvent
from headrace.errors import InvalidConfig, InvalidRequest
from headrace.types import BrokerId

log = logging.getLogger(__name__)

ALL = "<default>"
DYNAMIC = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


class BrokerSettings:
    """The settings of one broker as they are now; any broker changes those of any other."""

    def __init__(self, tree: Tree, broker_id: BrokerId, static: BrokerConfig) -> None:
        self._tree = tree
        self._names = (ALL, str(broker_id))
        self._static = static
        self._set: dict[str, Mapping[str, str]] = {name: {} for name in self._names}
        self._numbers = {name: self._number(name) for name in DYNAMIC}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Reads what is set, and follows changes."""
        for name in self._names:
            await self._read(name)

    async def close(self) -> None:
        """Follows no longer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def number(self, name: str) -> int:
        """The value in force of one of `DYNAMIC`."""
        return self._numbers[name]

    def set_for(self, entity: str) -> Mapping[str, str]:
        """What is set for this broker (its number) or for `ALL`, by name."""
        return self._set[entity]

    async def rewrite(
        self, entity: str, changes: Sequence[Change] | None, values: Sequence[tuple[str, str | None]] = (), *,
        validate_only: bool = False,
    ) -> None:  # fmt: skip
        """Changes what is set for a broker or for `ALL`; without `changes`, it is `values` afterwards.

        Raises `InvalidRequest` for what cannot change while a broker runs, `InvalidConfig` for a bad value.
        """
        fixed = [name for name in (*(c.name for c in changes or ()), *(n for n, _ in values)) if name not in DYNAMIC]
        if fixed:
            raise InvalidRequest(
                f"Cannot update these configs dynamically: [{', '.join(fixed)}]. Settings of a broker are those it is "
                f"started with (headrace serve --set NAME=VALUE), but for {', '.join(DYNAMIC)}"
            )
        path = paths.config("brokers", entity)
        node = await self._tree.exists(path)
        before = paths.decode_config(node.data) if node is not None else {}
        after = replaced(values) if changes is None else changed(before, changes, self._static.topic_defaults)
        for name, text in after.items():
            if name in DYNAMIC:
                parse_value(BROKER_SETTINGS[name][1], text, name)
        if validate_only or after == before:
            return
        data = paths.encode_config(after)
        write: Op = Create(path, data) if node is None else Set(path, data, node.version)
        notice = Create(paths.CONFIG_CHANGE_PREFIX, paths.encode_config_change("brokers", entity), sequential=True)
        try:
            await self._tree.multi([write, notice])
        except (BadVersion, NodeExists):
            await self.rewrite(entity, changes, values)  # somebody was faster
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
                    log.warning("broker settings of %s: %s", entity, error.message)
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
        except TreeError as error:
            log.warning("a change of broker settings was not followed: %s", error)

    async def _read(self, entity: str) -> None:
        node = await self._tree.exists(paths.config("brokers", entity), self._on_watch)
        try:
            self._take(entity, paths.decode_config(node.data) if node is not None else {})
        except paths.CorruptNode as error:
            log.warning("broker settings of %s: %s", entity, error)
