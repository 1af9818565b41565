"""The connection to a ZooKeeper ensemble through kazoo (the extra `zookeeper`).

kazoo has one thread, which owns the socket. Answers and watch events are passed to the event loop in the order in which
that thread receives them. kazoo's own queues, one for answers and one for watch events, each with a thread, would lose
the order between the two. No call here blocks on a server.

Deviations from kazoo's defaults:

    wake-ups      a pipe, which holds 65,536; kazoo's socket pair holds 277 and then blocks the caller
    TLS, SASL     `secured_client`; a socket with bytes that are decrypted but unread counts as readable
    connecting    a silent server gets the session time-out divided by the number of servers
    thread        started again after an error ended it
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry

from headrace.metastore.store import (
    BadPath,
    BadVersion,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    StoreError,
    StoreRefused,
)
from headrace.metastore.zookeeper.access_lists import AccessLists
from headrace.metastore.zookeeper.ensemble import Ensemble
from headrace.metastore.zookeeper.link import ConnectionBroken, PendingAnswer, ReadMany, Unsupported, Watching
from headrace.metastore.zookeeper.multi_read import MultiRead
from headrace.metastore.zookeeper.multi_write import MultiWrite
from headrace.metastore.zookeeper.own_nodes import close_own_nodes
from headrace.metastore.zookeeper.secured_client import SecuredHandler, make_client
from headrace.metastore.zookeeper.store import ZooKeeperStore

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
"""The delay before kazoo's thread is started again after an error ended it."""

_ERRORS: dict[type[Exception], type[Exception]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.BadArgumentsError: BadPath,
    kazoo_errors.NoAuthError: NotAllowed,
    kazoo_errors.InvalidACLError: NotAllowed,
    kazoo_errors.ConnectionLoss: ConnectionBroken,
    RuntimeError: ConnectionBroken,  # an answer to another request than was sent; it ends kazoo's thread
    kazoo_errors.SessionExpiredError: SessionLost,
    kazoo_errors.ConnectionClosedError: SessionLost,
    kazoo_errors.AuthFailedError: SessionLost,
}
_EVENTS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperUnreachable(OSError):
    """No server answered in time."""


class NotAuthenticated(OSError):
    """A server answered, and refused the broker's identity, or the broker the server's."""


async def open_store(ensemble: Ensemble) -> ZooKeeperStore:
    """Opens a metadata store with a session. Raises `ZooKeeperUnreachable`, `NotAuthenticated`, or `StoreError` if the
    ensemble refuses an operation that a broker needs."""
    link = KazooLink(ensemble)
    seconds = ensemble.connection_timeout_ms / 1000
    link.start()
    opening = asyncio.create_task(link.store.opened())
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wait([opening, link.refused], return_when=asyncio.FIRST_COMPLETED)
            if link.refused.done():
                raise NotAuthenticated(link.failure)
            await opening
            await link.close_own_nodes()
    except TimeoutError:
        await link.store.close()
        if link.failure:
            raise NotAuthenticated(link.failure) from None
        raise ZooKeeperUnreachable(f"no server answered within {seconds:g} s") from None
    except BaseException:
        await link.store.close()
        raise
    finally:
        opening.cancel()
    return link.store


class KazooLink:
    """A `Link`: one kazoo client and the metadata store that it serves."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._loop = asyncio.get_running_loop()
        self._acls = AccessLists(ensemble.root, ensemble.set_acl)
        self._handler = _Handler(self._post, self._answered, self._happened, ensemble)
        self._ensemble = ensemble
        self._client = self._make_client()
        self._ending = False
        self._reads_many = True  # as far as is known
        self.refused: asyncio.Future[None] = self._loop.create_future()
        """Done when a server has refused the broker's identity, for the first time."""
        self.store = ZooKeeperStore(self, ensemble.root, self._loop)

    def _make_client(self) -> KazooClient:
        ensemble = self._ensemble
        own_log = logging.getLogger(f"{__name__}.kazoo")
        own_log.setLevel(max(log.getEffectiveLevel(), logging.ERROR))  # kazoo warns of each attempt to connect
        client = make_client(
            ensemble,
            self._handler,
            timeout=ensemble.session_timeout_ms / 1000,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=1.5, max_delay=1.0, sleep_func=self._handler.sleep_func
            ),
            logger=own_log,
        )
        client.add_listener(lambda state: self._on_state(client, state))
        return client

    @property
    def failure(self) -> str:
        """Why the last attempt to connect failed at TLS or SASL; '' if it did not."""
        return self._handler.failure

    def start(self) -> None:
        """Starts to connect."""
        self._client.start_async()

    async def close_own_nodes(self) -> None:
        """See `own_nodes`."""
        if self._ensemble.set_acl:
            await close_own_nodes(self._client, self._acls, self._ensemble.root)

    # Requests; on the loop

    def data(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.data`."""
        return self._own(self._client.get_async(path, watch))

    @property
    def read_many(self) -> ReadMany | None:
        """See `Link.read_many`."""
        return self._read_many if self._reads_many else None

    def _read_many(self, paths: Sequence[str]) -> PendingAnswer:
        answer = _Answer(self._handler)
        answer.reads = len(paths)
        self._client._call(MultiRead(paths), answer)
        return answer

    def stat(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.stat`."""
        return self._own(self._client.exists_async(path, watch))

    def children(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.children`."""
        return self._own(self._client.get_children_async(path, watch, include_data=True))

    def write(self, ops: Sequence[Op]) -> PendingAnswer:
        """See `Link.write`."""
        answer = _Answer(self._handler)
        answer.writes = True
        self._client._call(MultiWrite(ops, self._acls.of), answer)
        return answer

    def end(self, done: Callable[[], None]) -> None:
        """See `Link.end`."""
        self._ending = True
        self._drop(self._client, done)

    def _drop(self, client: KazooClient, done: Callable[[], None]) -> None:
        def stop() -> None:
            try:
                client.stop()
                client.close()
            except Exception as error:
                log.warning("the session with ZooKeeper could not be closed, and expires after its timeout: %s", error)
            self._post(done)

        self._handler.spawn(stop)

    @staticmethod
    def _own(answer: "_Answer") -> "_Answer":
        return answer

    # Events from kazoo's thread

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # the loop is closed

    def _on_state(self, client: KazooClient, state: str) -> None:
        client_id = client.client_id
        session = client_id[0] if client_id else 0
        self._post(self._session_changed, client, _STATES[state], session, client.client_state)

    def _session_changed(self, client: KazooClient, state: SessionState, session: int, detail: str) -> None:
        if self._ending or client is not self._client:
            return
        match state:
            case SessionState.CONNECTED:
                log.info("the broker is connected to ZooKeeper with session %#x", session & (1 << 64) - 1)
            case SessionState.SUSPENDED:
                log.warning("the connection to ZooKeeper is lost; reconnecting")
            case SessionState.LOST:
                if detail != KeeperState.AUTH_FAILED:  # the handler has told
                    log.error("the session with ZooKeeper ended (%s)", detail.lower())
                elif not self.refused.done():
                    self.refused.set_result(None)
        self.store.session_changed(state, session)
        if state is SessionState.LOST and detail != KeeperState.EXPIRED_SESSION:
            self._loop.call_later(RESTART_SECONDS, self._restart)

    def _restart(self) -> None:
        if not self._ending:
            self._drop(self._client, lambda: None)
            self._client = self._make_client()
            self.start()

    def _answered(self, answer: "_Answer", result: Any, error: Exception | None) -> None:
        if error is None and answer.writes:
            result, error = _write_results(result)
        elif error is None and answer.reads:
            result = [_translated(each) if isinstance(each, Exception) else each for each in result]
        elif isinstance(error, kazoo_errors.UnimplementedError) and answer.reads:
            self._reads_many, error = False, Unsupported("")
        elif error is not None:
            error = _translated(error)
        self.store.answered(answer, result, error)

    def _happened(self, watching: Watching, event: WatchedEvent) -> None:
        if event.type in _EVENTS:
            self.store.happened(watching, _EVENTS[event.type])


def _write_results(results: Sequence[Any]) -> tuple[Sequence[OpResult] | None, Exception | None]:
    """(results, None) or (None, error) from the results of a multi. In a refused one, operations before the refused one
    are reported as rolled back, and those after it as inconsistent."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
            error = _translated(result)
            if isinstance(error, StoreError):
                error.index = index
            return None, error
    return results, None


def _translated(error: Exception) -> Exception:
    for theirs, ours in _ERRORS.items():
        if isinstance(error, theirs):
            return ours("")
    refused = StoreRefused("")
    refused.args = ("", str(error) or type(error).__name__)
    return refused


class _Answer(PendingAnswer):
    """kazoo's asynchronous result, delivered on the event loop."""

    def __init__(self, handler: "_Handler") -> None:
        self._handler = handler
        self.writes = False  # several operations at once
        self.reads = 0  # nodes that are read at once

    def set(self, value: object = None) -> None:
        """Called by kazoo, on either thread."""
        self._handler.post(self._handler.answered, self, value, None)

    def set_exception(self, exception: Exception) -> None:
        """Called by kazoo, on either thread."""
        self._handler.post(self._handler.answered, self, None, exception)


class _Handler(SecuredHandler):
    """kazoo's handler: one thread, without its two threads for callbacks."""

    def __init__(
        self,
        post: Callable[..., None],
        answered: Callable[[_Answer, Any, Exception | None], None],
        happened: Callable[[Watching, WatchedEvent], None],
        ensemble: Ensemble,
    ) -> None:
        super().__init__(ensemble)
        self.post = post
        self.answered = answered
        self._happened = happened
        self._servers = 1 + ensemble.hosts.count(",")

    def start(self) -> None:
        """Starts no threads."""
        self._running = True

    def stop(self) -> None:
        """See `start`."""
        self._running = False

    def async_result(self) -> _Answer:
        """See `_Answer`."""
        return _Answer(self)

    def dispatch_callback(self, callback: Callback) -> None:
        """Called on kazoo's thread for each watch that fires."""
        self.post(self._happened, callback.func, *callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Gives each server its share of the session time-out."""
        kwargs["timeout"] /= self._servers
        return super().create_connection(*args, **kwargs)

    def create_socket_pair(self) -> tuple["_PipeEnd", "_PipeEnd"]:
        """(the read end, the write end)."""
        read, write = os.pipe()
        return _PipeEnd(read), _PipeEnd(write)

    def select(self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: Any = None) -> Any:
        """`select.select`, for TLS sockets too."""
        pending = [each for each in rlist if hasattr(each, "pending") and each.pending()]
        if not pending:
            return super().select(rlist, wlist, xlist, timeout)
        others = [each for each in rlist if each not in pending]
        readable, writable, failed = super().select(others, wlist, xlist, 0) if others or wlist else ([], [], [])
        return [*pending, *readable], writable, failed


class _PipeEnd:
    """One end of a pipe, with the socket methods that kazoo uses to wake its thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def send(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
