"""The SASL mechanisms of one listener, made from its settings.

    sasl.enabled.mechanisms                          the mechanisms
    MECHANISM.SETTING, else SETTING                  a setting of one of them, the mechanism in small letters

    PLAIN           users in plain.sasl.jaas.config: user_alice="..."; for instances also those in the metadata store
    SCRAM-SHA-*     users in the metadata store, and delegation tokens
    OAUTHBEARER     tokens, verified by `TokenVerifier`
    GSSAPI          principals of Kerberos, for whom the broker has keys: gssapi.sasl.jaas.config

Source: Kafka's `SaslChannelBuilder`, `JaasContext`. Left out: callback handlers and login modules in Java.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from headrace.broker.security.worker import AuthenticationThreads, HasLeft
from headrace.config import parse_value
from headrace.config.properties import BROKER_SETTINGS
from headrace.errors import InvalidConfig
from headrace.security.jaas import LoginModule, login_module
from headrace.security.sasl import scram
from headrace.security.sasl.exchange import Authenticated, Blocking, Challenge, ServerExchange, Unverified
from headrace.security.sasl.gssapi import MECHANISM as GSSAPI
from headrace.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from headrace.security.sasl.oauthbearer import OAuthBearerServer, VerifiedToken
from headrace.security.sasl.plain import MECHANISM as PLAIN
from headrace.security.sasl.plain import PlainServer
from headrace.security.sasl.scram import ScramCredential
from headrace.security.sasl.scram_server import Account, ScramServer

_STORED = ("SCRAM-SHA-256", "SCRAM-SHA-512")
KNOWN = (PLAIN, *scram.HASHES, OAUTHBEARER, GSSAPI)
"""The mechanisms that a broker can have."""


class Accounts(Protocol):
    """The users of SCRAM."""

    def account(self, mechanism: str, name: str, is_token: bool, /) -> Account | None:
        """The account behind a name, or behind the id of a delegation token."""

    def decoy(self, mechanism: str, name: str, /) -> ScramCredential:
        """A credential for a name that nobody has."""


class _Barring:
    """Users, of whom some may not log in here, whatever their password.

    They get the messages of their credential, as at the listeners where they may log in, and a right proof is answered
    like a wrong one. So nothing tells whether there is such a user, nor whether a password is right.
    """

    __slots__ = ("_accounts", "_is_barred")

    def __init__(self, accounts: Accounts, is_barred: IsBarred) -> None:
        self._accounts, self._is_barred = accounts, is_barred

    def account(self, mechanism: str, name: str, is_token: bool, /) -> Account | None:
        """See `Accounts`."""
        found = self._accounts.account(mechanism, name, is_token)
        return None if found is None or self._is_barred(found.name) else found

    def decoy(self, mechanism: str, name: str, /) -> ScramCredential:
        """See `Accounts`."""
        if self._is_barred(name):
            found = self._accounts.account(mechanism, name, False)
            if found is not None:
                assert isinstance(found.credential, ScramCredential)
                if found.credential.iterations >= scram.ITERATIONS_MIN:
                    return found.credential
        return self._accounts.decoy(mechanism, name)


class _Prefixed:
    """The users of an instance. It has no delegation tokens."""

    __slots__ = ("_accounts", "_prefix")

    def __init__(self, accounts: Accounts, prefix: str) -> None:
        self._accounts, self._prefix = accounts, prefix

    def account(self, mechanism: str, name: str, is_token: bool, /) -> Account | None:
        """See `Accounts`."""
        found = self._accounts.account(mechanism, self._prefix + name, False)
        return None if found is None or is_token else found._replace(name=name)

    def decoy(self, mechanism: str, name: str, /) -> ScramCredential:
        """See `Accounts`."""
        return self._accounts.decoy(mechanism, self._prefix + name)


IsBarred = Callable[[str], bool]
"""Whether a user may not log in here. May be called on any thread."""

Verify = Callable[[str, HasLeft], Awaitable[VerifiedToken | str]]
"""Verifies a bearer token; returns whose it is, or why it is refused. Raises `ClientLeft`."""


class Kerberos(Protocol):
    """The keys of a listener with GSSAPI, and how principals are named."""

    def begin(self) -> ServerExchange:
        """The server's side of a new exchange."""


class ListenerSettings:
    """The settings of one listener, with those of its mechanisms."""

    def __init__(self, listener: str, settings: Mapping[str, str]) -> None:
        self.listener, self._settings = listener, settings

    def text(self, mechanism: str, name: str) -> str | None:
        """A setting of a mechanism as text; None if it is not set."""
        own = self._settings.get(f"{mechanism.lower()}.{name}")
        return self._settings.get(name) if own is None else own

    def number(self, mechanism: str, name: str) -> int:
        """A declared numeric setting. Raises `InvalidConfig`."""
        text, setting = self.text(mechanism, name), BROKER_SETTINGS[name][1]
        value = setting.default if text is None else parse_value(setting, text, self.named(mechanism, name))
        assert isinstance(value, int)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A setting that is a list, for all mechanisms."""
        text = self._settings.get(name)
        if text is None:
            default = BROKER_SETTINGS[name][1].default
            assert isinstance(default, tuple)
            return default
        return tuple(part.strip() for part in text.split(",") if part.strip())

    def named(self, mechanism: str, name: str) -> str:
        """The full name of a mechanism's setting, for an error."""
        return f"listener.name.{self.listener.lower()}.{mechanism.lower()}.{name}"


class Mechanisms:
    """The mechanisms of one listener."""

    def __init__(
        self,
        settings: ListenerSettings,
        *,
        accounts: Accounts | None,
        verify: Verify | None,
        kerberos: Kerberos | None,
        blocking: AuthenticationThreads,
        random_bytes: Callable[[int], bytes],
        has_stored_plain: bool = False,
    ) -> None:
        """`accounts`: of a listener with SCRAM. `verify`: of one with OAUTHBEARER. `kerberos`: of one with GSSAPI.
        `blocking`: runs the steps that may block. `has_stored_plain`: whether users of PLAIN may be among `accounts`.
        Raises `InvalidConfig`."""
        self.names = settings.names("sasl.enabled.mechanisms")
        """In the order of the setting."""
        self._check(settings.listener)
        self._accounts, self._verify, self._random_bytes = accounts, verify, random_bytes
        self._kerberos, self._blocking = kerberos, blocking
        self._max_reauth_ms = {each: settings.number(each, "connections.max.reauth.ms") for each in self.names}
        self._has_stored_plain = has_stored_plain
        is_empty = has_stored_plain and settings.text(PLAIN, "sasl.jaas.config") is None
        self._passwords = _passwords(settings) if PLAIN in self.names and not is_empty else {}

    def begin(self, mechanism: str, prefix: str = "", is_barred: IsBarred = lambda _: False) -> ServerExchange:
        """The server's side of a new exchange by one of `names`. `prefix`: of an instance, whose users are stored with
        it and say their names without it. `is_barred`: the users who may not log in with a password, which cannot be
        told from a wrong one."""
        if mechanism == PLAIN:
            is_stored = partial(self._is_stored, prefix, is_barred) if self._has_stored_plain else None
            return PlainServer(
                lambda name: None if is_barred(name) else self._passwords.get(prefix + name),
                is_stored,
            )
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer()
        if mechanism == GSSAPI:
            assert self._kerberos is not None
            return self._kerberos.begin()
        assert self._accounts is not None
        nonce = scram.new_nonce(self._random_bytes(scram.NONCE_BYTES))
        accounts = _Prefixed(self._accounts, prefix) if prefix else _Barring(self._accounts, is_barred)
        return ScramServer(mechanism, partial(accounts.account, mechanism), partial(accounts.decoy, mechanism), nonce)

    def _is_stored(self, prefix: str, is_barred: IsBarred, name: str, password: str) -> bool:
        """Whether a user has a stored credential that a password fits. It takes the same time for any name."""
        assert self._accounts is not None
        mechanism, account = _STORED[0], None
        for each in _STORED:
            found = self._accounts.account(each, prefix + name, False)
            if found is not None and account is None and not _is_weak(found):  # as with SCRAM itself
                mechanism, account = each, found
        stored = self._accounts.decoy(mechanism, prefix + name) if account is None else account.credential
        assert isinstance(stored, ScramCredential)
        salted = scram.credential(mechanism, password, stored.salt, stored.iterations)
        is_right = hmac.compare_digest(salted.stored_key, stored.stored_key)
        return is_right and account is not None and not is_barred(name)

    def max_reauth_ms(self, mechanism: str) -> int:
        """After how long a client of the mechanism must authenticate again; 0 or less: never."""
        return self._max_reauth_ms[mechanism]

    async def finish(
        self, exchange: ServerExchange, step: Unverified | Blocking, has_left: HasLeft
    ) -> Challenge | Authenticated:
        """The outcome of a step that takes a while. Raises `ExchangeRefused`, `Malformed`, `ClientLeft`."""
        if isinstance(step, Blocking):
            return await self._blocking.run(step.work, has_left)
        assert self._verify is not None
        assert isinstance(exchange, OAuthBearerServer)
        outcome = await self._verify(step.token, has_left)
        return exchange.verified(outcome) if isinstance(outcome, VerifiedToken) else exchange.refused(outcome)

    def _check(self, listener: str) -> None:
        others = [each for each in self.names if each not in KNOWN]
        if others or not self.names:
            what = ", ".join(others) if others else "nothing"
            raise InvalidConfig(
                f"sasl.enabled.mechanisms of listener {listener} is {what}: headrace has {', '.join(KNOWN)}"
            )


def _is_weak(account: Account) -> bool:
    stored = account.credential
    return isinstance(stored, ScramCredential) and stored.iterations < scram.ITERATIONS_MIN


def _passwords(settings: ListenerSettings) -> dict[str, str]:
    """The users of PLAIN. Raises `InvalidConfig`."""
    return login_of(settings, PLAIN, "PLAIN but no users").users


def login_of(settings: ListenerSettings, mechanism: str, missing: str) -> LoginModule:
    """The login module of a mechanism. `missing`: what the listener has without one. Raises `InvalidConfig`, which
    names the setting."""
    name = settings.named(mechanism, "sasl.jaas.config")
    text = settings.text(mechanism, "sasl.jaas.config")
    if not text:
        raise InvalidConfig(f"listener {settings.listener} has {missing}: set {name}")
    try:
        return login_module(text, mechanism)
    except InvalidConfig as error:
        raise named_jaas(error, name) from None


def named_jaas(error: InvalidConfig, name: str) -> InvalidConfig:
    """An error of a login module with the full name of its setting."""
    return InvalidConfig(f"{name}: {error.message.removeprefix('sasl.jaas.config: ')}")
