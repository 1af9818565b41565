"""A session with ZooKeeper, through kazoo: requests that end in time, and events for one listener.

kazoo's threads only set flags: the connector's thread does the work. A request whose answer does not come in time may
still be executed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_BATCH = 500
"""Requests in flight at once."""
_LEASE = 2 / 3
"""For which share of its time-out a session lives on for certain after the server received a request."""
_RENEWED_AFTER = 1 / 4
_LOOK_S = 0.2
"""How often a wait for an answer looks whether there is still a connection."""


class ZooKeeperUnavailable(KafkaError):
    """ZooKeeper did not answer, or ended the session. The message names its address."""

    code = ErrorCode.NETWORK_EXCEPTION


class NoNode(KafkaError):
    """A node does not exist."""


class ZooKeeperSession:
    """One kazoo client. `changed` is called, on kazoo's threads, when a watch fires or the connection changes."""

    def __init__(
        self,
        hosts: str,
        changed: Callable[[], None],
        *,
        guard: str = "/",
        session_timeout_ms: int = 6_000,
        connection_timeout_ms: int = 6_000,
    ) -> None:
        """`guard`: the ephemeral node that exists as long as the session."""
        self._hosts = hosts
        self._guard = guard
        self._lease_ms = session_timeout_ms * _LEASE
        self._lease = self._renewal = Deadline.after_ms(0)
        self._limit_ms = connection_timeout_ms
        self._changed = changed
        self.losses: int = 0
        """How many sessions have ended."""
        quiet = logging.getLogger(f"{__name__}.kazoo")
        quiet.setLevel(max(_log.getEffectiveLevel(), logging.ERROR))
        self._client = KazooClient(hosts, timeout=session_timeout_ms / 1000, logger=quiet)
        self._client.add_listener(self._on_state)

    def open(self) -> None:
        """Connect. Raises ZooKeeperUnavailable."""
        try:
            self._client.start(self._limit_ms / 1000)
        except KazooTimeoutError:
            self.close()
            raise ZooKeeperUnavailable(
                f"no ZooKeeper answered at {self._hosts} within {self._limit_ms} ms "
                "(zookeeper_connection_timeout_ms); expected HOST:PORT,HOST:PORT/CHROOT"
            ) from None

    def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()

    @property
    def is_connected(self) -> bool:
        """Whether a server answers at the moment."""
        return bool(self._client.connected)

    @property
    def is_certain(self) -> bool:
        """Whether the session cannot have ended, also if this process slept. Any thread may ask; asks the server at
        times, without waiting."""
        if self._renewal.expired:
            self._renewal = Deadline.after_ms(self._lease_ms * _RENEWED_AFTER)
            lease = Deadline.after_ms(self._lease_ms)
            self._client.exists_async(self._guard).rawlink(lambda answer: self._renewed(lease, answer))
        return not self._lease.expired

    def _renewed(self, lease: Deadline, answer: Any) -> None:
        if answer.successful() and answer.value is not None:  # in a later session there is no such node yet
            self._lease = lease

    @property
    def session_id(self) -> int:
        """The current session."""
        client_id = self._client.client_id
        return client_id[0] if client_id else 0

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.losses += 1
        self._changed()

    def _fired(self, _: object) -> None:
        self._changed()

    # -- requests; each raises ZooKeeperUnavailable

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """The names of the children; none if there is no node. A watch fires at the next change."""
        asked = self._client.get_children_async(path, self._fired if watch else None)
        found = self._answer(asked)
        if isinstance(found, kazoo_errors.NoNodeError):
            if watch:
                self.exists(path, watch=True)
            return []
        return list(found)

    def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether there is a node. A watch fires when that changes, or its data."""
        return self._answer(self._client.exists_async(path, self._fired if watch else None)) is not None

    def read(self, paths: Sequence[str], *, watch: bool = False) -> list[bytes | None]:
        """The data of each node, None where there is none."""
        return [None if found is None else found[0] for found in self.read_owned(paths, watch=watch)]

    def read_owned(self, paths: Sequence[str], *, watch: bool = False) -> list[tuple[bytes, int] | None]:
        """(data, the session that an ephemeral node belongs to) of each node, None where there is none."""
        fired = self._fired if watch else None
        found: list[tuple[bytes, int] | None] = []
        for start in range(0, len(paths), _BATCH):
            some = paths[start : start + _BATCH]
            asked = [self._client.get_async(path, fired) for path in some]
            for path, each in zip(some, asked, strict=True):
                answer = self._answer(each)
                if isinstance(answer, kazoo_errors.NoNodeError):
                    if watch:
                        self.exists(path, watch=True)
                    found.append(None)
                else:
                    found.append((answer[0] or b"", answer[1].ephemeralOwner))
        return found

    def ensure_path(self, path: str) -> None:
        """Create a persistent node and its parents, where they are missing."""
        parts = path.split("/")
        if not self.exists(path):
            for end in range(2, len(parts) + 1):
                self._answer(self._client.create_async("/".join(parts[:end])))

    def create_ephemeral(self, data: dict[str, bytes]) -> set[str]:
        """Create these nodes. Returns the paths that exist already."""
        paths = list(data)
        taken: set[str] = set()
        for start in range(0, len(paths), _BATCH):
            some = paths[start : start + _BATCH]
            asked = [self._client.create_async(path, data[path], ephemeral=True) for path in some]
            for path, each in zip(some, asked, strict=True):
                answer = self._answer(each)
                if isinstance(answer, kazoo_errors.NodeExistsError):
                    taken.add(path)
                elif isinstance(answer, kazoo_errors.NoNodeError):
                    raise NoNode(f"{path} cannot be created: its parent is gone, or {self._hosts} names no chroot")
        return taken

    def delete(self, path: str) -> None:
        """Delete a node if there is one."""
        self._answer(self._client.delete_async(path))

    def delete_guarded(self, paths: Sequence[str]) -> None:
        """Delete each of these nodes, unless the session has ended."""
        for start in range(0, len(paths), _BATCH):
            asked = []
            for path in paths[start : start + _BATCH]:
                transaction = self._client.transaction()
                transaction.check(self._guard, 0)
                transaction.delete(path)
                asked.append(transaction.commit_async())
            for each in asked:
                self._answer(each)

    def write_guarded(self, data: dict[str, bytes]) -> None:
        """Write these persistent nodes. Raises NoNode if the session has ended."""
        existing = {path for path, found in zip(data, self.read(list(data)), strict=True) if found is not None}
        for path in data.keys() - existing:
            self.ensure_path(path.rpartition("/")[0])
        paths = list(data)
        for start in range(0, len(paths), _BATCH):
            transaction = self._client.transaction()
            transaction.check(self._guard, 0)
            for path in paths[start : start + _BATCH]:
                if path in existing:
                    transaction.set_data(path, data[path])
                else:
                    transaction.create(path, data[path])
            results = self._answer(transaction.commit_async())
            if isinstance(results[0], kazoo_errors.NoNodeError):
                raise NoNode(f"{self._guard} is gone: the session ended")
            failed = [each for each in results if isinstance(each, Exception)]
            if failed:
                raise ZooKeeperUnavailable(f"{self._hosts}: {failed[-1]!r}")

    def _answer(self, asked: Any) -> Any:
        """The answer; a NoNodeError or NodeExistsError is one. Does not wait for a new connection."""
        limit = Deadline.after_ms(self._limit_ms)
        while not asked.ready() and not limit.expired and self.is_connected:
            asked.wait(min(_LOOK_S, limit.remaining_s))
        if not asked.ready():
            raise ZooKeeperUnavailable(f"ZooKeeper at {self._hosts} did not answer")
        try:
            return asked.get(block=False)
        except (kazoo_errors.NoNodeError, kazoo_errors.NodeExistsError) as found:
            return found
        except kazoo_errors.KazooException as error:
            raise ZooKeeperUnavailable(f"ZooKeeper at {self._hosts}: {error!r}") from None
