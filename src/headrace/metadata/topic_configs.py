"""Topic configs: what topics set (`/config/topics/T`) over the broker's defaults.

`EntityConfigs` reads and follows them.

The topics of an instance keep within its bounds, whatever they set (`bound`).

A config or value that this version does not know stays in the metadata store, because a newer broker may have written
it, and is ignored here with a warning.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from headrace.config import TOPIC_SETTINGS, TopicConfig, topic_config, validate_topic_overrides
from headrace.config.topic_bounds import TopicBounds
from headrace.errors import InvalidConfig, UnknownTopicOrPartition
from headrace.in_slices import in_slices
from headrace.metadata import znodes
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation, lists_of_topics
from headrace.metadata.entity_configs import TOPICS, Decide, EntityConfigs
from headrace.metastore.store import NoNode

log = logging.getLogger(__name__)

RELIABLE = "headrace.reliable"

TOPICS_PER_SLICE = 200
"""Topics whose configs are computed in one turn of the event loop."""

Listener = Callable[[str, TopicConfig], None]


class TopicConfigs:
    """The configs of the topics that this broker knows."""

    def __init__(self, entities: EntityConfigs, defaults: TopicConfig) -> None:
        self.entities = entities
        self._defaults = defaults
        self._overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._listeners: list[Listener] = []
        self._on_defaults: list[Callable[[], Awaitable[None]]] = []
        self._bounds: dict[str, TopicBounds] = {}
        self._unapplied: dict[str, None] = {}
        self._are_defaults_new = False
        self._applying: asyncio.Task[None] | None = None
        entities.on_change(TOPICS, self._take)

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` with a topic and its new configs whenever they change."""
        self._listeners.append(listener)

    def on_defaults_change(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Calls `listener` when changed defaults have reached every topic. The listeners of `on_change` are not called
        for them: a call for each topic would cost too much."""
        self._on_defaults.append(listener)

    def set_defaults(self, defaults: TopicConfig) -> None:
        """Replaces the broker's defaults. They apply to every topic soon: thousands of topics take several turns."""
        if defaults == self._defaults:
            return
        self._defaults = defaults
        self._are_defaults_new = True
        self._apply()

    def bound(self, prefix: str, bounds: TopicBounds | None) -> None:
        """Sets the bounds of the topics whose names begin with `prefix`, which ends with its only dot. Listeners are
        called for each of them soon: thousands of topics take several turns."""
        if bounds == TopicBounds():
            bounds = None
        if bounds == self._bounds.get(prefix):
            return
        if bounds is not None:
            self._bounds[prefix] = bounds
        else:
            del self._bounds[prefix]
        self._unapplied[prefix] = None
        self._apply()

    def is_reliable(self, topic: str) -> bool:
        """Whether a topic is reliable by its name."""
        bounds = self._bounds_of(topic)
        return bounds is not None and bounds.reliable

    def _bounds_of(self, topic: str) -> TopicBounds | None:
        return self._bounds.get(topic[: topic.find(".") + 1]) if self._bounds else None

    def _apply(self) -> None:
        if self._applying is None or self._applying.done():
            self._applying = asyncio.get_running_loop().create_task(self._apply_soon())

    async def close(self) -> None:
        """Stops applying what was set for many topics."""
        if self._applying is not None:
            self._applying.cancel()
            await asyncio.gather(self._applying, return_exceptions=True)

    @property
    def defaults(self) -> TopicConfig:
        """The broker's defaults, for a topic that sets nothing."""
        return self._defaults

    def get(self, topic: str) -> TopicConfig:
        """A topic's configs; the broker's defaults if it sets none or was not loaded."""
        found = self._configs.get(topic)
        if found is not None:
            return found
        return self.effective(topic, {}) if self._bounds else self._defaults

    def effective(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """A topic's configs if it set these. Raises `InvalidConfig` if they do not fit together."""
        bounds = self._bounds_of(topic)
        if bounds is not None and bounds.reliable:
            overrides = {**overrides, RELIABLE: "true"}
        config = topic_config(self._defaults, overrides) if overrides else self._defaults
        return config if bounds is None else bounds.applied(config, self._defaults)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """The configs that the topic itself sets, by name."""
        return self._overrides.get(topic, {})

    async def load(self, topics: Iterable[str]) -> None:
        """Reads these topics' configs, and calls the listeners for those that changed."""
        await self.entities.load(TOPICS, topics)

    async def ensure_loaded(self, topics: Iterable[str]) -> None:
        """Reads the configs of topics that were not read before."""
        missing = sorted(name for name in topics if name not in self._configs)
        if missing:
            await self.load(missing)

    def forget(self, topic: str) -> None:
        """Removes the configs of a deleted topic."""
        self.entities.forget(TOPICS, topic)
        self._configs.pop(topic, None)
        self._overrides.pop(topic, None)

    async def alter(self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Sets configs, or restores the default of those that are None. Raises as `rewrite` does."""
        wanted = Alteration(
            [
                ConfigChange(name, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text)
                for name, text in changes.items()
            ]
        )
        lists = lists_of_topics(self._defaults)
        await self.rewrite(topic, lambda own: wanted.applied(own, lists), validate_only=validate_only)

    async def rewrite(self, topic: str, decide: Decide, *, validate_only: bool = False) -> None:
        """Sets a topic's configs to what `decide` returns for its current ones, as `EntityConfigs.rewrite`.

        Raises `UnknownTopicOrPartition`, `InvalidConfig` for an invalid name or value, and what `decide` raises.
        """

        def decide_valid(before: Mapping[str, str]) -> Mapping[str, str]:
            after = decide(before)
            new = {name: text for name, text in after.items() if before.get(name) != text}
            known = {name: text for name, text in after.items() if name in TOPIC_SETTINGS}
            validate_topic_overrides(known | new)  # keeps what a newer broker wrote, although this version ignores it
            return after

        node = znodes.topic(topic)
        try:
            await self.entities.rewrite(TOPICS, topic, decide_valid, validate_only=validate_only, must_exist=node)
        except NoNode:
            raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.") from None

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
        self._configs[topic] = config = self._effective(topic)
        for listener in self._listeners:
            listener(topic, config)

    def _effective(self, topic: str) -> TopicConfig:
        """A topic's overrides over the defaults; the overrides that still fit if they no longer fit together."""
        overrides = self._overrides[topic]
        try:
            return self.effective(topic, overrides)
        except InvalidConfig as error:
            log.warning("the configs of topic %s do not fit the broker's defaults: %s", topic, error.message)
        config = self.effective(topic, {})
        for name, text in overrides.items():
            with suppress(InvalidConfig):
                config = topic_config(config, {name: text})
        return config

    async def _apply_soon(self) -> None:
        while self._are_defaults_new or self._unapplied:
            if self._unapplied:
                await self._apply_bounds(self._unapplied.popitem()[0])
                continue
            self._are_defaults_new = False
            async for topic in in_slices(list(self._configs), TOPICS_PER_SLICE):
                if topic in self._configs:  # else deleted meanwhile
                    self._configs[topic] = self._effective(topic)
            for listener in self._on_defaults:
                await listener()

    async def _apply_bounds(self, prefix: str) -> None:
        async for topic in in_slices([each for each in self._configs if each.startswith(prefix)], TOPICS_PER_SLICE):
            if topic in self._configs:  # else deleted meanwhile
                self._configs[topic] = config = self._effective(topic)
                for listener in self._listeners:
                    listener(topic, config)
