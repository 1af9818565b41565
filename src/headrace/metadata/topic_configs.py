"""Topic configs: reads `/config/topics/T`, and follows changes through `/config/changes`.

    change:   one multi sets /config/topics/T and creates /config/changes/config_change_#, which names T
    notice:   the watch on /config/changes fires; the named topics are read again, and listeners are called

A config or value that this version does not know stays in the metadata store, because a newer broker may have written
it, and is ignored here with a warning.

Change notifications are deleted after some time. So a broker that may have missed some reads the configs of all known
topics again: after its session ended, when the sequence of notifications has a gap, and when one is gone or corrupt.
Apache Kafka misses such changes until the broker restarts. Source: Kafka's `ZkConfigManager`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

from headrace.config import TOPIC_SETTINGS, TopicConfig, topic_config, validate_topic_overrides
from headrace.errors import ErrorCode, InvalidConfig, KafkaError, UnknownTopicOrPartition
from headrace.metadata import znodes
from headrace.metadata.config_changes import Change, Operation, changed
from headrace.metastore.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    SessionState,
    Set,
    WatchEvent,
)

log = logging.getLogger(__name__)

CHANGES_KEPT_MAX = 1000
"""Change notifications beyond this are deleted, oldest first; Apache Kafka deletes them after 15 minutes."""

Listener = Callable[[str, TopicConfig], None]
Decide = Callable[[Mapping[str, str]], Mapping[str, str]]


class TopicConfigs:
    """The configs of every topic, as this broker knows them."""

    def __init__(self, store: MetadataStore, defaults: TopicConfig) -> None:
        self._store = store
        self._defaults = defaults
        self._overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._listeners: list[Listener] = []
        self._last_seen = ""
        self._is_lost = False
        self._tasks: set[asyncio.Task[None]] = set()

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` with a topic and its new configs whenever they change."""
        self._listeners.append(listener)

    @property
    def defaults(self) -> TopicConfig:
        """The broker's defaults, for a topic that sets nothing."""
        return self._defaults

    def get(self, topic: str) -> TopicConfig:
        """A topic's configs; the broker's defaults if it sets none or was not loaded."""
        return self._configs.get(topic, self._defaults)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """The configs that the topic itself sets, by name."""
        return self._overrides.get(topic, {})

    async def start(self) -> None:
        """Starts to watch for changes, then reads every topic's configs."""
        self._store.on_session(self._on_session)
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_watch)
        self._last_seen = names[-1] if names else ""
        await self.load(await self._store.children(znodes.CONFIG_TOPICS))

    async def close(self) -> None:
        """Stops following changes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def load(self, topics: Iterable[str]) -> None:
        """Reads these topics' configs, and calls the listeners for those that changed."""
        names = list(topics)
        nodes = await self._store.get_many([znodes.config("topics", name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            self._take(name, znodes.decode_config(node.data) if node is not None else {})

    async def ensure_loaded(self, topics: Iterable[str]) -> None:
        """Reads the configs of topics that were not read before."""
        missing = [name for name in topics if name not in self._configs]
        if missing:
            await self.load(missing)

    def forget(self, topic: str) -> None:
        """Removes the configs of a deleted topic."""
        self._configs.pop(topic, None)
        self._overrides.pop(topic, None)

    async def alter(self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Sets configs, or restores the default of those that are None. Raises as `rewrite` does."""
        wanted = [
            Change(name, Operation.DELETE if text is None else Operation.SET, text) for name, text in changes.items()
        ]
        await self.rewrite(topic, lambda own: changed(own, wanted, self._defaults), validate_only=validate_only)

    async def rewrite(self, topic: str, decide: Decide, *, validate_only: bool = False) -> None:
        """Sets a topic's configs to what `decide` returns for its current ones. `decide` is called again if another
        broker changed them meanwhile.

        Raises `UnknownTopicOrPartition`, `InvalidConfig` for an invalid name or value, and what `decide` raises.
        """
        path = znodes.config("topics", topic)
        topic_node, node = await self._store.get_many([znodes.topic(topic), path])
        if topic_node is None:
            raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.")
        before = znodes.decode_config(node.data) if node is not None else {}
        after = decide(before)
        new = {name: text for name, text in after.items() if before.get(name) != text}
        known = {name: text for name, text in after.items() if name in TOPIC_SETTINGS}
        validate_topic_overrides(known | new)  # keeps what a newer broker wrote, although this version ignores it
        if validate_only or after == before:
            return
        write: Op = (
            Set(path, znodes.encode_config(after), node.version) if node else Create(path, znodes.encode_config(after))
        )
        change = Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics", topic), sequential=True)
        try:
            await self._store.multi([write, change])
        except (BadVersion, NodeExists):
            await self.rewrite(topic, decide)
        except SessionLost:
            what = "the session with the metadata store ended: the configs may have been changed; describe the topic"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from None
        else:
            self._take(topic, after)

    def _take(self, topic: str, overrides: Mapping[str, str]) -> None:
        known = {}
        for name, text in overrides.items():
            try:
                topic_config(self._defaults, {name: text})
            except InvalidConfig as error:
                log.warning("a config of topic %s is ignored: %s", topic, error.message)
            else:
                known[name] = text
        if topic in self._configs and self._overrides.get(topic) == known:
            return
        self._overrides[topic] = known
        self._configs[topic] = config = topic_config(self._defaults, known)
        for listener in self._listeners:
            listener(topic, config)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_lost = True
        elif state is SessionState.CONNECTED and self._is_lost:
            self._is_lost = False
            self._spawn(self._reload())

    def _on_watch(self, event: WatchEvent) -> None:
        self._spawn(self._follow(self._read_changes))

    async def _reload(self) -> None:
        await self._follow(lambda: self.load(list(self._configs)))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except SessionLost:
            return  # the store was closed, or the session ended during the trim; the watch lives on
        except (KafkaError, znodes.CorruptNode) as error:
            log.error("a change of topic configs could not be read: %s", error)

    async def _read_changes(self) -> None:
        names = await self._store.children(znodes.CONFIG_CHANGES, self._on_watch)
        fresh = [name for name in names if name > self._last_seen]
        nodes = await self._store.get_many([f"{znodes.CONFIG_CHANGES}/{name}" for name in fresh])
        changed = _topics_of(nodes)
        if changed is None or _has_gap(self._last_seen, fresh):
            changed = set(self._configs)
        await self.load(name for name in changed if name in self._configs)
        if fresh:
            self._last_seen = max(self._last_seen, fresh[-1])  # only now, so that a failure is tried again
        for name in names[:-CHANGES_KEPT_MAX]:
            try:
                await self._store.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}")])
            except NoNode:
                continue  # another broker was first


def _topics_of(nodes: Iterable[Node | None]) -> set[str] | None:
    """The topics that change notifications name; None when a notification is gone or corrupt."""
    topics = set()
    for node in nodes:
        if node is None:
            return None
        try:
            entity, name = znodes.decode_config_change(node.data)
        except znodes.CorruptNode as error:
            log.error("a config change notification cannot be read, all topic configs are read again: %s", error)
            return None
        if entity == "topics":
            topics.add(name)
    return topics


def _has_gap(last_seen: str, fresh: Sequence[str]) -> bool:
    """Whether notifications between the last one and the first fresh one were deleted unseen.

    A name ends with the number of children that the parent ever had.
    """
    return bool(last_seen and fresh) and int(fresh[0][-10:]) > int(last_seen[-10:]) + 1
