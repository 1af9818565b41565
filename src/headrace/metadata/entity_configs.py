"""Entity configs: reads `/config/TYPE/NAME` for every type of entity, follows changes, and rewrites configs.

    topics/T           brokers/N, brokers/<default>      users/U, users/U/clients/C      clients/C      ips/A
    client-metrics/S   groups/G                          the last two are unknown to Apache Kafka 3.9

    change:   one multi sets /config/TYPE/NAME and creates /config/changes/config_change_#, which names the entity
    notice:   the watch on /config/changes fires; the named entities are read again, and listeners are called

A name is that of the node: `sanitize` encodes users, client ids, groups and subscriptions, so that any character is
allowed; `<default>` is the entity for all that have none of their own. The node of a user, client, ip, subscription or
group is deleted when its configs become empty; that of a topic or broker stays.

Of topics only those are followed that were loaded: a broker asks for those that it hosts (`load`, `forget`).

Change notifications are deleted after some time. So a broker that may have missed some reads all configs again: after
its session ended, when the sequence of notifications has a gap, and when one is gone or corrupt. Apache Kafka misses
such changes until the broker restarts. Apache Kafka 3.9 logs an error for a notification of a type that it does not
know, and goes on. Source: Kafka's `ZkConfigManager`, `AdminZkClient`, `Sanitizer`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from urllib.parse import quote, unquote_plus

from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.metadata import znodes
from headrace.metadata.change_feed import has_gap, numbered, on_new_session
from headrace.metastore.store import (
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionLost,
    Set,
    StoreError,
    TooLarge,
    WatchEvent,
    check_path,
    ensure_path,
    parent_of,
)

log = logging.getLogger(__name__)

TOPICS, BROKERS, USERS, CLIENTS, IPS = "topics", "brokers", "users", "clients", "ips"
CLIENT_METRICS, GROUPS = "client-metrics", "groups"
TYPES = (TOPICS, BROKERS, USERS, CLIENTS, IPS, CLIENT_METRICS, GROUPS)

DEFAULT = "<default>"
"""The entity whose configs apply to all brokers, users, clients or ips that have none of their own. No sanitized name
equals it."""

CHANGES_KEPT_MAX = 1000
"""Change notifications beyond this are deleted, oldest first; Apache Kafka deletes them after 15 minutes."""

READ_AT_ONCE_MAX = 1000
"""Entities that are read from the store at once, so that a hundred thousand of them do not hold the event loop."""

REWRITES_MAX = 100
"""How often a rewrite is tried while others change the same configs."""

_KEPT_WHEN_EMPTY = (TOPICS, BROKERS)
_NONE: Mapping[str, str] = {}

Listener = Callable[[str, Mapping[str, str]], None]
Decide = Callable[[Mapping[str, str]], Mapping[str, str]]


def sanitize(name: str) -> str:
    """The node's name of a user, client id, group or subscription."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The inverse of `sanitize`."""
    return unquote_plus(name)


class EntityConfigs:
    """The configs of every entity, as this broker knows them."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._configs: dict[str, dict[str, Mapping[str, str]]] = {each: {} for each in TYPES}
        self._listeners: dict[str, list[Listener]] = {each: [] for each in TYPES}
        self._last_seen = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def on_change(self, entity_type: str, listener: Listener) -> None:
        """Calls `listener` with the name and configs of each entity that is known now, and of each that changes; the
        configs are empty when the entity was deleted."""
        self._listeners[entity_type].append(listener)
        for name, configs in self._configs[entity_type].items():
            listener(name, configs)

    def get(self, entity_type: str, name: str) -> Mapping[str, str]:
        """The configs that are set for an entity."""
        return self._configs[entity_type].get(name, _NONE)

    def all(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """The configs of all entities of a type, by name."""
        return self._configs[entity_type]

    async def start(self) -> None:
        """Starts to watch for changes, then reads all configs."""
        on_new_session(self.store, self._on_new_session)
        names = await self._changes()
        self._last_seen = names[-1] if names else ""
        await asyncio.gather(*(self._load_all(each) for each in TYPES))

    async def close(self) -> None:
        """Stops following changes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def load(self, entity_type: str, names: Iterable[str]) -> None:
        """Reads these entities' configs, and calls the listeners for those that changed."""
        wanted = list(names)
        for first in range(0, len(wanted), READ_AT_ONCE_MAX):
            part = wanted[first : first + READ_AT_ONCE_MAX]
            nodes = await self.store.get_many([znodes.config(entity_type, name) for name in part])
            for name, node in zip(part, nodes, strict=True):
                self._take(entity_type, name, _decoded(entity_type, name, node))

    def forget(self, entity_type: str, name: str) -> None:
        """Removes a deleted topic, without a call of listeners."""
        self._configs[entity_type].pop(name, None)

    async def rewrite(
        self, entity_type: str, name: str, decide: Decide, *, validate_only: bool = False, must_exist: str | None = None
    ) -> None:
        """Sets an entity's configs to what `decide` returns for its current ones. `decide` is called again if another
        broker changed them meanwhile.

        `must_exist`: a node without which nothing is written; raises `NoNode` of it. Raises what `decide` raises,
        `InvalidRequest` for a name or size that the store refuses, and `KafkaError` (REQUEST_TIMED_OUT) if the session
        ended, so that nobody knows whether the configs changed.
        """
        path = znodes.config(entity_type, name)
        try:
            for _ in range(REWRITES_MAX):
                if await self._try_rewrite(entity_type, name, path, decide, validate_only, must_exist):
                    return
            what = f"the configs of {entity_type} {name!r:.250} change all the time: try again"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT)
        except (BadPath, TooLarge) as error:
            why = "its name is not allowed" if isinstance(error, BadPath) else "they are too large"
            raise InvalidRequest(f"The configs of {entity_type} {name!r:.250} cannot be stored: {why}.") from None
        except SessionLost:
            what = "the session with the metadata store ended: the configs may have been changed; describe them"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from None

    async def _try_rewrite(
        self, entity_type: str, name: str, path: str, decide: Decide, validate_only: bool, must_exist: str | None
    ) -> bool:
        """Returns False if the configs changed between read and write."""
        guards = [] if must_exist is None else [must_exist]
        *found, node = await self.store.get_many([*guards, path])
        if None in found:
            raise NoNode(guards[0])
        before = _decoded(entity_type, name, node)
        after = dict(decide(before))
        if validate_only or after == before:
            return True
        ops: list[Op] = [Check(each) for each in guards]
        if not after and entity_type not in _KEPT_WHEN_EMPTY and node is not None:
            ops.append(Delete(path, node.version))
        else:
            ops.append(_write(path, node, after))
        ops.append(_notice(entity_type, name))
        try:
            await self.store.multi(ops)
        except (BadVersion, NodeExists):
            return False
        except NotEmpty:  # a user that has clients
            assert node is not None
            try:
                await self.store.multi([_write(path, node, after), _notice(entity_type, name)])
            except (BadVersion, NoNode):
                return False
        except NoNode as error:
            if error.path in guards:
                raise
            if node is None:
                await ensure_path(self.store, parent_of(path))
            return False
        self._take(entity_type, name, after)
        if not after and "/" in name:
            await self._delete_empty_parents(path)
        return True

    async def _delete_empty_parents(self, path: str) -> None:
        """Deletes users/U/clients and users/U if nothing is in them any more."""
        clients = parent_of(path)
        user = parent_of(clients)
        try:
            node = await self.store.exists(user)
            await self.store.delete(clients)
            if node is not None and not znodes.decode_config(node.data):
                await self.store.delete(user, node.version)
        except (NotEmpty, NoNode, BadVersion, znodes.CorruptNode):
            return

    def _take(self, entity_type: str, name: str, configs: Mapping[str, str]) -> None:
        known = self._configs[entity_type]
        before = known.get(name)
        if configs or entity_type == TOPICS:
            known[name] = configs
        else:
            known.pop(name, None)
        if configs == (before if before is not None or entity_type == TOPICS else _NONE):
            return
        for listener in self._listeners[entity_type]:
            listener(name, configs)

    async def _load_all(self, entity_type: str) -> None:
        """Reads all entities of a type, and those that are known and may be deleted."""
        known = list(self._configs[entity_type])
        names = dict.fromkeys([*known, *await self._children(f"/config/{entity_type}")])
        if entity_type == USERS:
            for name in await self._clients_of_users([each for each in names if "/" not in each]):
                names[name] = None
        await self.load(entity_type, names)

    async def _clients_of_users(self, users: Sequence[str]) -> list[str]:
        found = []
        for first in range(0, len(users), READ_AT_ONCE_MAX):
            part = users[first : first + READ_AT_ONCE_MAX]
            lists = await asyncio.gather(*(self._children(f"/config/{USERS}/{each}/{CLIENTS}") for each in part))
            found += [f"{user}/{CLIENTS}/{client}" for user, each in zip(part, lists, strict=True) for client in each]
        return found

    async def _children(self, path: str) -> list[str]:
        try:
            return await self.store.children(path)
        except NoNode:
            return []

    def _on_new_session(self) -> None:
        self._spawn(self._follow(self._reload))

    def _on_watch(self, event: WatchEvent) -> None:
        self._spawn(self._follow(self._read_changes))

    async def _reload(self) -> None:
        """Reads all configs, except those of topics that nobody asked for."""
        await self.load(TOPICS, list(self._configs[TOPICS]))
        for entity_type in TYPES:
            if entity_type != TOPICS:
                await self._load_all(entity_type)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except SessionLost:
            return  # the store was closed, or the session ended during the trim; the watch lives on
        except (KafkaError, StoreError) as error:
            log.error("a change of configs could not be read: %s %s", type(error).__name__, error)

    async def _changes(self) -> list[str]:
        """The names of the notifications, in their order. Sets the watch again."""
        prefix = znodes.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
        return numbered(await self.store.children(znodes.CONFIG_CHANGES, self._on_watch), prefix)

    async def _read_changes(self) -> None:
        names = await self._changes()
        fresh = [name for name in names if name > self._last_seen]
        nodes = await self.store.get_many([f"{znodes.CONFIG_CHANGES}/{name}" for name in fresh])
        changed = _entities_of(nodes)
        if changed is None or has_gap(self._last_seen, fresh):
            await self._reload()
        else:
            for entity_type, entities in changed.items():
                known = self._configs[entity_type]
                await self.load(entity_type, [e for e in entities if entity_type != TOPICS or e in known])
        if fresh:
            self._last_seen = max(self._last_seen, fresh[-1])  # only now, so that a failure is tried again
        for name in names[:-CHANGES_KEPT_MAX]:
            try:
                await self.store.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}")])
            except NoNode:
                continue  # another broker was first


def _write(path: str, node: Node | None, configs: Mapping[str, str]) -> Op:
    data = znodes.encode_config(configs)
    return Create(path, data) if node is None else Set(path, data, node.version)


def _notice(entity_type: str, name: str) -> Op:
    return Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity_type, name), sequential=True)


def _decoded(entity_type: str, name: str, node: Node | None) -> dict[str, str]:
    if node is None:
        return {}
    try:
        return znodes.decode_config(node.data)
    except znodes.CorruptNode as error:
        log.warning("the configs in %s are malformed and are ignored: %s", znodes.config(entity_type, name), error)
        return {}


def _entities_of(nodes: Iterable[Node | None]) -> dict[str, list[str]] | None:
    """The entities that change notifications name, by type; None when a notification is gone or corrupt."""
    found: dict[str, dict[str, None]] = {}
    for node in nodes:
        if node is None:
            return None
        try:
            entity_type, name = znodes.decode_config_change(node.data)
            check_path(znodes.config(entity_type, name))
        except (znodes.CorruptNode, BadPath) as error:
            log.error("a config change notification cannot be read, all configs are read again: %s", error)
            return None
        if entity_type in TYPES:  # a newer broker may know more
            found.setdefault(entity_type, {})[name] = None
    return {entity_type: list(names) for entity_type, names in found.items()}
