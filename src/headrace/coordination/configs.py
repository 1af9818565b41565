"""Topics' own settings: from `/config/topics/T` to whoever uses them, kept up to date by `/config/changes`.

    change:   one multi sets /config/topics/T and makes /config/changes/config_change_#, which names T
    notice:   the watch on /config/changes fires, the named topics are read again, the listeners are told

A setting or value that this version does not know (a newer broker may have written it) stays in the tree and is left
out here, with a warning.
Source: Kafka's `ZkConfigManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from headrace.config import TOPIC_SETTINGS, TopicConfig, topic_config, validate_topic_overrides
from headrace.coordination import paths
from headrace.coordination.config_changes import Change, Operation, changed
from headrace.coordination.tree import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    Set,
    Tree,
    WatchEvent,
)
from headrace.errors import ErrorCode, InvalidConfig, KafkaError, UnknownTopicOrPartition

log = logging.getLogger(__name__)

CHANGES_KEPT_MAX = 1000
"""Change notifications beyond this are deleted, oldest first; Apache Kafka deletes them after 15 minutes."""

Listener = Callable[[str, TopicConfig], None]
Decide = Callable[[Mapping[str, str]], Mapping[str, str]]


class TopicConfigs:
    """Every topic's settings as this broker knows them."""

    def __init__(self, tree: Tree, defaults: TopicConfig) -> None:
        self._tree = tree
        self._defaults = defaults
        self._overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._listeners: list[Listener] = []
        self._last_seen = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` with a topic and its new settings whenever they change."""
        self._listeners.append(listener)

    @property
    def defaults(self) -> TopicConfig:
        """What the broker gives a topic that sets nothing."""
        return self._defaults

    def get(self, topic: str) -> TopicConfig:
        """A topic's settings; the broker's defaults when it has none of its own or was not loaded."""
        return self._configs.get(topic, self._defaults)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What the topic sets itself, by Kafka's name."""
        return self._overrides.get(topic, {})

    async def start(self) -> None:
        """Begins to watch for changes, then reads every topic's settings."""
        names = await self._tree.children(paths.CONFIG_CHANGES, self._on_watch)
        self._last_seen = names[-1] if names else ""
        await self.load(await self._tree.children(paths.CONFIG_TOPICS))

    async def close(self) -> None:
        """Stops following changes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def load(self, topics: Iterable[str]) -> None:
        """Reads these topics' settings, and tells the listeners of those that are not as they were."""
        names = list(topics)
        nodes = await self._tree.get_many([paths.config("topics", name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            self._take(name, paths.decode_config(node.data) if node is not None else {})

    async def ensure_loaded(self, topics: Iterable[str]) -> None:
        """Reads the settings of those topics that were not read before."""
        missing = [name for name in topics if name not in self._configs]
        if missing:
            await self.load(missing)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._configs.pop(topic, None)
        self._overrides.pop(topic, None)

    async def alter(self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Sets settings, or takes back those that are None. Raises as `rewrite` does."""
        wanted = [
            Change(name, Operation.DELETE if text is None else Operation.SET, text) for name, text in changes.items()
        ]
        await self.rewrite(topic, lambda own: changed(own, wanted, self._defaults), validate_only=validate_only)

    async def rewrite(self, topic: str, decide: Decide, *, validate_only: bool = False) -> None:
        """Gives a topic the settings that `decide` makes of its own; that is asked again when somebody was faster.

        Raises `UnknownTopicOrPartition`; `InvalidConfig` for a name or value that a topic cannot have; and what
        `decide` raises.
        """
        path = paths.config("topics", topic)
        topic_node, node = await self._tree.get_many([paths.topic(topic), path])
        if topic_node is None:
            raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.")
        before = paths.decode_config(node.data) if node is not None else {}
        after = decide(before)
        new = {name: text for name, text in after.items() if before.get(name) != text}
        known = {name: text for name, text in after.items() if name in TOPIC_SETTINGS}
        validate_topic_overrides(known | new)  # what a newer broker wrote stays, though it is not known here
        if validate_only or after == before:
            return
        write: Op = (
            Set(path, paths.encode_config(after), node.version) if node else Create(path, paths.encode_config(after))
        )
        change = Create(paths.CONFIG_CHANGE_PREFIX, paths.encode_config_change("topics", topic), sequential=True)
        try:
            await self._tree.multi([write, change])
        except (BadVersion, NodeExists):
            await self.rewrite(topic, decide)
        except SessionLost:
            what = "the session with the cluster's tree ended: whether the settings were changed is not known"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from None
        else:
            self._take(topic, after)

    def _take(self, topic: str, overrides: Mapping[str, str]) -> None:
        known = {}
        for name, text in overrides.items():
            try:
                topic_config(self._defaults, {name: text})
            except InvalidConfig as error:
                log.warning("topic %s: %s", topic, error.message)
            else:
                known[name] = text
        if topic in self._configs and self._overrides.get(topic) == known:
            return
        self._overrides[topic] = known
        self._configs[topic] = config = topic_config(self._defaults, known)
        for listener in self._listeners:
            listener(topic, config)

    def _on_watch(self, event: WatchEvent) -> None:
        task = asyncio.get_running_loop().create_task(self._follow())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        try:
            await self._read_changes()
        except SessionLost:
            return  # whoever opens the next session starts anew
        except (KafkaError, paths.CorruptNode) as error:
            log.error("a change of settings was not followed: %s", error)

    async def _read_changes(self) -> None:
        names = await self._tree.children(paths.CONFIG_CHANGES, self._on_watch)
        fresh = [name for name in names if name > self._last_seen]
        if fresh:
            self._last_seen = fresh[-1]
        nodes = await self._tree.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh])
        changed = {paths.decode_config_change(node.data) for node in nodes if node is not None}
        await self.load(name for entity, name in changed if entity == "topics" and name in self._configs)
        for name in names[:-CHANGES_KEPT_MAX]:
            try:
                await self._tree.multi([Delete(f"{paths.CONFIG_CHANGES}/{name}")])
            except NoNode:
                continue  # another broker was first
