"""Access control lists in the metadata store: reads them, follows changes, and changes them by compare-and-set.

    change:   one multi writes the nodes of patterns, each with the version that was read, and a notification for each
    notice:   the watch on the notifications fires; the named patterns are read again, and `on_change` is called

A change that another broker or tool made in between is read, and the change is decided again. Apache Kafka's brokers of
the same cluster, and `kafka-acls` with `zookeeper.connect`, write the same nodes.

Corrupt rules could be ones that deny. At a start they refuse the start; later the rules that were known stay in force
until the node is corrected. So it is with Apache Kafka.
Source: Kafka's `AclAuthorizer`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.limits import ACL_PATTERNS_PER_WRITE_MAX
from headrace.metadata import acl_nodes
from headrace.metadata.change_feed import ChangeFeed, on_new_session
from headrace.metadata.entity_configs import READ_AT_ONCE_MAX, REWRITES_MAX
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import (
    BadPath,
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    Set,
    StoreError,
    TooLarge,
    ensure_path,
    parent_of,
)
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Entry, Pattern, PatternType

log = logging.getLogger(__name__)

Decide = Callable[[Sequence[Entry]], Iterable[Entry]]
"""The entries of a pattern after a change, from those before it. May be called more than once."""


class StoredAcls:
    """Keeps an authorizer's rules equal to those in the store."""

    def __init__(self, store: MetadataStore, rules: AclAuthorizer, on_change: Callable[[], None]) -> None:
        """`on_change` is called after rules have changed."""
        self._store, self.rules, self._on_change = store, rules, on_change
        self._lock = asyncio.Lock()
        self._reloading: asyncio.Task[None] | None = None
        self._feeds = [
            ChangeFeed(
                store,
                acl_nodes.CHANGES[kind],
                acl_nodes.CHANGE_PREFIX,
                changed=partial(self._read_named, kind),
                missed=self._reload,
                lock=self._lock,
            )
            for kind in acl_nodes.ROOTS
        ]

    async def start(self) -> None:
        """Starts to watch for changes, then reads all rules. Raises `CorruptNode`, which names the node."""
        await asyncio.gather(*(ensure_path(self._store, each) for each in acl_nodes.PERSISTENT))
        on_new_session(self._store, self._on_new_session)
        for feed in self._feeds:
            await feed.start()
        async with self._lock:
            await self._load_all(is_strict=True)

    async def close(self) -> None:
        """Stops following changes."""
        for feed in self._feeds:
            await feed.close()
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.gather(self._reloading, return_exceptions=True)

    async def change(self, changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        """Changes the rules of patterns. Returns the errors of those that were not changed, or of which nobody knows
        because the session ended (REQUEST_TIMED_OUT)."""
        errors: dict[Pattern, KafkaError] = {each: _bad_name(each) for each in changes if "/" in each.name}
        waiting = ((pattern, decide) for pattern, decide in changes.items() if pattern not in errors)
        while part := dict(islice(waiting, ACL_PATTERNS_PER_WRITE_MAX)):
            async with self._lock:
                errors |= await self._change_together(part)
        return errors

    async def _change_together(self, changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        """In one multi if that is possible, else one by one."""
        try:
            return await self._write(changes)
        except SessionLost:
            what = "the session with the metadata store ended: the rules may have been changed; describe them"
            return dict.fromkeys(changes, KafkaError(what, ErrorCode.REQUEST_TIMED_OUT))
        except StoreError as error:
            if len(changes) == 1:
                return {pattern: _refused(pattern, error) for pattern in changes}
        errors: dict[Pattern, KafkaError] = {}
        for pattern, decide in changes.items():
            errors |= await self._change_together({pattern: decide})
        return errors

    async def _write(self, changes: Mapping[Pattern, Decide]) -> dict[Pattern, KafkaError]:
        for _ in range(REWRITES_MAX):
            nodes = await self._store.get_many([acl_nodes.path_of(each) for each in changes])
            errors, after, ops = _decided(changes, nodes)
            try:
                if ops:
                    await self._store.multi(ops)
            except (BadVersion, NodeExists):
                continue  # another broker or tool changed the same rules
            except NoNode:
                for parent in {parent_of(acl_nodes.path_of(each)) for each in after}:
                    await ensure_path(self._store, parent)
                continue
            self._take(after)
            return errors
        what = "the rules change all the time: try again"
        return dict.fromkeys(changes, KafkaError(what, ErrorCode.REQUEST_TIMED_OUT))

    def _take(self, found: Mapping[Pattern, Iterable[Entry]]) -> None:
        changed = [self.rules.replace(pattern, entries) for pattern, entries in found.items()]
        if any(changed):
            self._on_change()

    # Reading

    async def _read_named(self, kind: PatternType, notifications: Sequence[bytes]) -> None:
        named = (acl_nodes.decode_change(kind, each) for each in notifications)
        await self._load(dict.fromkeys(each for each in named if each is not None), is_strict=False)

    async def _reload(self) -> None:
        await self._load_all(is_strict=False)

    async def _load_all(self, *, is_strict: bool) -> None:
        """Reads all rules, and those that are known and may be deleted."""
        patterns = dict.fromkeys(self.rules.patterns)
        for kind, root in acl_nodes.ROOTS.items():
            for name in await self._children(root):
                resource = acl_nodes.resource_of(name)
                if resource is None:
                    log.warning("rules for resources of type %s are ignored: the type is not known", name)
                    continue
                for each in await self._children(f"{root}/{name}"):
                    patterns[Pattern(resource, each, kind)] = None
        await self._load(patterns, is_strict=is_strict)

    async def _load(self, patterns: Iterable[Pattern], *, is_strict: bool) -> None:
        waiting = iter(patterns)
        while part := list(islice(waiting, READ_AT_ONCE_MAX)):
            nodes = await self._store.get_many([acl_nodes.path_of(each) for each in part])
            self._take(dict(_decoded(part, nodes, is_strict=is_strict)))

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNode:
            return []

    def _on_new_session(self) -> None:
        self._reloading = asyncio.get_running_loop().create_task(self._reload_after_loss())

    async def _reload_after_loss(self) -> None:
        """Reads all rules, since notifications may have come and gone while there was no session."""
        try:
            async with self._lock:
                await self._reload()
        except SessionLost:
            return  # the store was closed, or the session ended again


def _decoded(
    patterns: Sequence[Pattern], nodes: Sequence[Node | None], *, is_strict: bool
) -> Iterator[tuple[Pattern, tuple[Entry, ...]]]:
    for pattern, node in zip(patterns, nodes, strict=True):
        try:
            yield pattern, () if node is None else acl_nodes.decode_entries(node.data)
        except CorruptNode as error:
            path = acl_nodes.path_of(pattern)
            if is_strict:
                raise CorruptNode(f"{path}: {error}") from None
            log.error("the rules in %s are malformed, those known before stay in force: %s", path, error)


def _decided(
    changes: Mapping[Pattern, Decide], nodes: Sequence[Node | None]
) -> tuple[dict[Pattern, KafkaError], dict[Pattern, tuple[Entry, ...]], list[Op]]:
    """The errors of patterns, the entries of the others after the change, and the writes."""
    errors: dict[Pattern, KafkaError] = {}
    after: dict[Pattern, tuple[Entry, ...]] = {}
    ops: list[Op] = []
    for (pattern, decide), node in zip(changes.items(), nodes, strict=True):
        path = acl_nodes.path_of(pattern)
        try:
            before = () if node is None else acl_nodes.decode_entries(node.data)
        except CorruptNode as error:
            errors[pattern] = KafkaError(f"{path} is malformed: {error}")
            continue
        try:
            after[pattern] = tuple(dict.fromkeys(decide(before)))
        except KafkaError as error:
            errors[pattern] = error
            continue
        if after[pattern] == before:
            continue
        data = acl_nodes.encode_entries(after[pattern])
        if node is None:
            ops.append(Create(path, data))
        else:
            ops.append(Set(path, data, node.version) if after[pattern] else Delete(path, node.version))
        notice = f"{acl_nodes.CHANGES[pattern.kind]}/{acl_nodes.CHANGE_PREFIX}"
        ops.append(Create(notice, acl_nodes.encode_change(pattern), sequential=True))
    return errors, after, ops


def _bad_name(pattern: Pattern) -> KafkaError:
    """The error of a name that no node can have: one with a `/` would be a node below another, which nobody reads."""
    return InvalidRequest(f"ACL binding contains invalid resource name: {pattern.name}")


def _refused(pattern: Pattern, error: StoreError) -> KafkaError:
    if isinstance(error, BadPath):
        return _bad_name(pattern)
    if isinstance(error, TooLarge):
        return InvalidRequest(f"The resource {pattern.name!r:.250} has too many ACLs: they are kept in one node.")
    log.error("rules could not be stored in %s: %s", error.path, type(error).__name__)
    return KafkaError("the metadata store refused the write: see the broker's log")
