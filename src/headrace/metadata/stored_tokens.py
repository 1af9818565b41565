"""Delegation tokens in the metadata store, where Apache Kafka 3.9 keeps them.

    /delegation_token/tokens/ID                         owner, requester, renewers and times; never the HMAC
    /delegation_token/token_changes/token_change_#      the id of a token that has changed; sequential

Each broker reads all tokens at its start and follows the notices. One that may have missed some reads all tokens again.
Source: Kafka's `DelegationTokenManagerZk`, `ZkData`.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT64_MAX
from headrace.metadata.change_feed import has_gap, numbered, on_new_session
from headrace.metadata.entity_configs import desanitize, sanitize
from headrace.metadata.znodes import CorruptNode, as_text, load_object
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
    WatchEvent,
    ensure_path,
)
from headrace.security.delegation_tokens import DelegationToken

log = logging.getLogger(__name__)

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
_CHANGE_PREFIX = f"{CHANGES}/token_change_"
_CHANGES_KEPT_MAX = 1000
_READ_AT_ONCE_MAX = 1000
_TRIES_MAX = 20

Listener = Callable[[str, DelegationToken | None], None]
"""Called with the id of each token that is new, has changed or, with None, is gone."""
Decide = Callable[[DelegationToken], DelegationToken | None]
"""A token after a change; None to remove it."""


class _Known(NamedTuple):
    token: DelegationToken
    version: int


class StoredTokens:
    """The tokens, as this broker knows them."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._listeners: list[Listener] = []
        self._last_seen = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._known)

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` for each change from now on."""
        self._listeners.append(listener)

    def get(self, token_id: str) -> DelegationToken | None:
        """A token by its id."""
        found = self._known.get(token_id)
        return None if found is None else found.token

    def all(self) -> list[DelegationToken]:
        """Every token."""
        return [each.token for each in self._known.values()]

    async def start(self) -> None:
        """Reads all tokens, and begins to follow changes."""
        for path in (CHANGES, TOKENS):
            await ensure_path(self._store, path)
        on_new_session(self._store, self._on_new_session)
        names = await self._changes()
        self._last_seen = names[-1] if names else ""
        await self._load_all()

    async def close(self) -> None:
        """Stops following changes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, token: DelegationToken) -> None:
        """Stores a new token. Raises `KafkaError`."""
        await self._write([Create(f"{TOKENS}/{token.id}", encode_token(token))], token.id)
        self._take(token.id, _Known(token, 0))

    async def change(self, token_id: str, decide: Decide) -> DelegationToken | None:
        """Changes or removes a token; returns it after the change. Raises `KafkaError`, and what `decide` raises."""
        path = f"{TOKENS}/{token_id}"
        for _ in range(_TRIES_MAX):
            [node] = await self._store.get_many([path])
            if node is None:
                self._take(token_id, None)
                raise KafkaError("the token does not exist", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            try:
                after = decide(decode_token(node.data))
            except CorruptNode as error:
                raise KafkaError(f"{path}: {error}") from None
            op: Op = Delete(path, node.version) if after is None else Set(path, encode_token(after), node.version)
            try:
                await self._write([op], token_id)
            except (BadVersion, NoNode):
                continue
            self._take(token_id, None if after is None else _Known(after, node.version + 1))
            return after
        raise KafkaError("the token changes all the time: try again", ErrorCode.REQUEST_TIMED_OUT)

    async def remove_expired(self, now_ms: int) -> None:
        """Removes the tokens that are over."""
        for each in self.all():
            if each.is_expired(now_ms):
                try:
                    await self.change(each.id, lambda token: None if token.is_expired(now_ms) else token)
                except KafkaError:
                    continue
                log.info("a delegation token has expired", extra={"token": each.id, "owner": each.owner})

    async def _write(self, ops: list[Op], token_id: str) -> None:
        try:
            await self._store.multi([*ops, Create(_CHANGE_PREFIX, token_id.encode(), sequential=True)])
        except NodeExists:
            raise KafkaError("a token with this id exists", ErrorCode.UNKNOWN_SERVER_ERROR) from None
        except TooLarge:
            raise KafkaError("the token has too many renewers", ErrorCode.INVALID_REQUEST) from None
        except SessionLost:
            what = "the session with the metadata store ended: describe the tokens"
            raise KafkaError(what, ErrorCode.REQUEST_TIMED_OUT) from None

    def _take(self, token_id: str, found: _Known | None) -> None:
        before = self._known.get(token_id)
        if found is None:
            self._known.pop(token_id, None)
        elif before is None or before.version <= found.version:
            self._known[token_id] = found
        if before is None and found is None:
            return
        for listener in self._listeners:
            listener(token_id, None if found is None else found.token)

    async def _load_all(self) -> None:
        known = list(self._known)
        await self._load(dict.fromkeys([*known, *await self._store.children(TOKENS)]))

    async def _load(self, ids: Iterable[str]) -> None:
        wanted = list(ids)
        for first in range(0, len(wanted), _READ_AT_ONCE_MAX):
            part = wanted[first : first + _READ_AT_ONCE_MAX]
            nodes = await self._store.get_many([f"{TOKENS}/{each}" for each in part])
            for token_id, node in zip(part, nodes, strict=True):
                self._take(token_id, _decoded(token_id, node))

    async def _changes(self) -> list[str]:
        """The names of the notices, in their order. Sets the watch again."""
        return numbered(await self._store.children(CHANGES, self._on_watch), _CHANGE_PREFIX.rpartition("/")[2])

    async def _load_named(self, notices: Sequence[bytes]) -> None:
        """Reads the tokens of notices; all of them if a notice names none."""
        try:
            await self._load(dict.fromkeys(each.decode() for each in notices))
        except (UnicodeDecodeError, BadPath) as error:
            log.error("a notice in %s cannot be read, all tokens are read again: %s", CHANGES, error)
            await self._load_all()

    def _on_new_session(self) -> None:
        self._spawn(is_reload=True)

    def _on_watch(self, _event: WatchEvent) -> None:
        self._spawn(is_reload=False)

    def _spawn(self, *, is_reload: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._follow(is_reload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, is_reload: bool) -> None:
        try:
            names = await self._changes()
            fresh = [name for name in names if name > self._last_seen]
            notices = await self._store.get_many([f"{CHANGES}/{name}" for name in fresh])
            if is_reload or has_gap(self._last_seen, fresh) or None in notices:
                await self._load_all()
            else:
                await self._load_named([each.data for each in notices if each is not None])
            if fresh:
                self._last_seen = max(self._last_seen, fresh[-1])
            for name in names[:-_CHANGES_KEPT_MAX]:
                try:
                    await self._store.multi([Delete(f"{CHANGES}/{name}")])
                except NoNode:
                    continue
        except SessionLost:
            return
        except (KafkaError, StoreError, ValueError) as error:
            log.error("a change of delegation tokens could not be read: %s", error)


def encode_token(token: DelegationToken) -> bytes:
    """Version 3."""
    value = {
        "version": 3,
        "owner": sanitize(token.owner),
        "tokenRequester": sanitize(token.requester),
        "renewers": [sanitize(each) for each in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_token(data: bytes) -> DelegationToken:
    """Versions 1 to 3; the requester is the owner before 3. Raises `CorruptNode`."""
    try:
        value = load_object(data)
        owner = _principal(value["owner"])
        renewers = value["renewers"]
        assert isinstance(renewers, list)
        issued, most, expiry = (_time_ms(value[name]) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"))
        requester = _principal(value["tokenRequester"]) if int(str(value["version"])) >= 3 else owner
        return DelegationToken(
            as_text(value["tokenId"]), owner, requester, tuple(map(_principal, renewers)), issued, most, expiry
        )
    except (ValueError, KeyError, TypeError, AssertionError):
        raise CorruptNode("the data is not a delegation token") from None


def _time_ms(value: object) -> int:
    found = int(str(value))
    if not 0 <= found <= INT64_MAX:
        raise ValueError(value)
    return found


def _principal(value: object) -> str:
    text = desanitize(as_text(value))
    if ":" not in text:
        raise ValueError(text)
    return text


def _decoded(token_id: str, node: Node | None) -> _Known | None:
    if node is None or not node.data:
        return None
    try:
        found = decode_token(node.data)
        if found.id != token_id:
            raise CorruptNode("it is a token with another id")
        return _Known(found, node.version)
    except CorruptNode as error:
        log.warning("the delegation token in %s is malformed and is ignored: %s", f"{TOKENS}/{token_id}", error)
        return None
