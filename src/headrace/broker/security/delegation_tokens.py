"""Delegation tokens of a running broker: made, renewed, expired, and accepted as passwords by SCRAM.

Every broker serves these requests and follows the others' changes; all need the same `delegation.token.secret.key`.
The controller removes tokens that are over; until it does, they are refused. The SCRAM credentials of a token are
derived on a thread as soon as the token is known, and for a login that comes before that, once more on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from headrace.errors import ErrorCode, KafkaError
from headrace.limits import DELEGATION_TOKEN_CHARS_MAX, DELEGATION_TOKENS_MAX
from headrace.metadata.stored_tokens import StoredTokens
from headrace.security.delegation_tokens import DelegationToken, password_of, token_hmac
from headrace.security.sasl import scram
from headrace.security.sasl.scram import ScramCredential
from headrace.security.sasl.scram_server import Account

log = logging.getLogger(__name__)

_ID_BYTES = 16
_USER = "User"


class DelegationTokens:
    """The tokens, with what this broker derives from its secret key."""

    def __init__(
        self,
        stored: StoredTokens,
        secret_key: bytes,
        *,
        max_lifetime_ms: int,
        expiry_time_ms: int,
        per_owner_max: int,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._stored, self._secret_key, self._loop = stored, secret_key, loop
        self._max_lifetime_ms, self._expiry_time_ms = max_lifetime_ms, expiry_time_ms
        self._per_owner_max = per_owner_max
        self._now_ms, self._random_bytes = now_ms, random_bytes
        self._ids: dict[bytes, str] = {}  # by HMAC
        self._owners: dict[str, str] = {}  # by id
        self._counts: Counter[str] = Counter()  # of an owner's tokens, those among them that are being stored
        self._credentials: dict[tuple[str, str], ScramCredential] = {}  # by mechanism and token
        self._underived: dict[str, None] = {}
        self._deriving: asyncio.Task[None] | None = None
        stored.on_change(self._changed)

    async def start(self) -> None:
        """Reads the tokens."""
        await self._stored.start()

    async def close(self) -> None:
        """Ends the background work."""
        if self._deriving is not None:
            self._deriving.cancel()
            await asyncio.gather(self._deriving, return_exceptions=True)
        await self._stored.close()

    async def remove_expired(self) -> None:
        """Removes the tokens that are over, from the store."""
        await self._stored.remove_expired(self._now_ms())

    # -- as passwords

    def account(self, mechanism: str, token_id: str) -> Account | None:
        """The owner of a token, for a login; None if there is no such token, or it is over."""
        token = self._stored.get(token_id)
        if token is None or token.is_expired(self._now_ms()):
            return None
        credential = self._credentials.get((mechanism, token_id))
        kind, _, owner = token.owner.partition(":")
        if kind != _USER:  # made by Apache Kafka: the user of the same name is another one
            return None
        if credential is None:  # it is about to be derived; after a start it may take minutes until its turn comes
            salt = self._random_bytes(scram.SALT_BYTES)
            return Account(partial(self._derive, mechanism, token_id, salt), owner, token.expiry_ms)
        return Account(credential, owner, token.expiry_ms)

    def _derive(self, mechanism: str, token_id: str, random: bytes) -> ScramCredential:
        password = password_of(self.hmac_of(token_id))
        return scram.credential(mechanism, password, scram.new_salt(random), scram.ITERATIONS_MIN)

    def _changed(self, token_id: str, token: DelegationToken | None) -> None:
        digest = self.hmac_of(token_id)
        if token is not None:
            if digest not in self._ids:
                self._ids[digest] = token_id
                self._owners[token_id] = token.owner
                self._counts[token.owner] += 1
                self._underived[token_id] = None
                if self._deriving is None:
                    self._deriving = self._loop.create_task(self._derive_all())
            return
        self._ids.pop(digest, None)
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            self._uncount(owner)
        self._underived.pop(token_id, None)
        for mechanism in scram.HASHES:
            self._credentials.pop((mechanism, token_id), None)

    def _uncount(self, owner: str) -> None:
        self._counts[owner] -= 1
        if self._counts[owner] <= 0:
            del self._counts[owner]

    async def _derive_all(self) -> None:
        """Derives the credentials of new tokens, one after the other."""
        try:
            while self._underived:
                token_id = next(iter(self._underived))
                del self._underived[token_id]
                for mechanism in scram.HASHES:
                    salt = self._random_bytes(scram.SALT_BYTES)
                    work = partial(self._derive, mechanism, token_id, salt)
                    made = await self._loop.run_in_executor(None, work)
                    if self._stored.get(token_id) is not None:
                        self._credentials.setdefault((mechanism, token_id), made)
        finally:
            self._deriving = None

    # -- requests; each raises `KafkaError`

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token."""
        return token_hmac(self._secret_key, token_id)

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_lifetime_ms: int
    ) -> DelegationToken:
        """Makes a token. A lifetime of 0 or less is the longest that is allowed. Raises POLICY_VIOLATION if owner or
        cluster have as many tokens as they may have, INVALID_REQUEST if the names are too long."""
        names = (owner, requester, *renewers)
        if sum(map(len, names)) > DELEGATION_TOKEN_CHARS_MAX:
            what = f"the names of a token's owner and renewers have more than {DELEGATION_TOKEN_CHARS_MAX} characters"
            raise KafkaError(what, ErrorCode.INVALID_REQUEST)
        if len(self._stored) >= DELEGATION_TOKENS_MAX:
            raise KafkaError(f"there are {DELEGATION_TOKENS_MAX} delegation tokens", ErrorCode.POLICY_VIOLATION)
        if self._counts[owner] >= self._per_owner_max:
            what = f"{owner} has {self._counts[owner]} delegation tokens: headrace.delegation.tokens.per.owner.max"
            raise KafkaError(what, ErrorCode.POLICY_VIOLATION)
        now = self._now_ms()
        most = self._max_lifetime_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, self._max_lifetime_ms)
        made = DelegationToken(
            urlsafe_b64encode(self._random_bytes(_ID_BYTES)).decode().rstrip("="),
            owner,
            requester,
            tuple(names[2:]),
            now,
            now + most,
            now + min(most, self._expiry_time_ms),
        )
        self._counts[owner] += 1  # while it is stored: requests of other connections must not pass the limit meanwhile
        try:
            await self._stored.create(made)
        finally:
            self._uncount(owner)
        log.info("a delegation token was created", extra={"token": made.id, "owner": owner, "requester": requester})
        return made

    async def renew(self, principal: str, digest: bytes, period_ms: int) -> int:
        """Moves the end of a token; returns it. A negative period is the usual one."""
        period = self._expiry_time_ms if period_ms < 0 else period_ms
        changed = await self._change(principal, digest, period)
        assert changed is not None
        return changed.expiry_ms

    async def expire(self, principal: str, digest: bytes, period_ms: int) -> int:
        """Moves the end of a token, or removes it if the period is negative; returns the end."""
        now = self._now_ms()
        changed = await self._change(principal, digest, None if period_ms < 0 else period_ms)
        return now if changed is None else changed.expiry_ms

    def all(self) -> list[DelegationToken]:
        """Every token."""
        return list(self._stored.all())

    async def remove(self, token_id: str) -> None:
        """Removes a token whose owner is gone. Raises `KafkaError`."""
        if self._stored.get(token_id) is not None:
            await self._stored.change(token_id, lambda _: None)

    async def _change(self, principal: str, digest: bytes, period_ms: int | None) -> DelegationToken | None:
        token_id = self._ids.get(digest)
        if token_id is None:
            raise KafkaError("there is no token with this HMAC", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        now = self._now_ms()

        def decide(token: DelegationToken) -> DelegationToken | None:
            if not token.may_renew(principal):
                raise KafkaError("it is another's token", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            if period_ms is None:
                return None
            if token.is_expired(now):
                raise KafkaError("the token has expired", ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return token._replace(expiry_ms=min(token.max_ms, now + period_ms))

        return await self._stored.change(token_id, decide)
