"""Builds the authentication of a broker that has SASL listeners. Imported for such a broker only."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from headrace.broker.environment import Environment
from headrace.broker.security.accounts import ScramAccounts
from headrace.broker.security.authentication import Authentication
from headrace.broker.security.instance_users import InstanceUsers
from headrace.broker.security.mechanisms import Kerberos, ListenerSettings, Mechanisms, Verify
from headrace.broker.security.worker import AuthenticationThreads
from headrace.broker.services import Services
from headrace.config.listener_settings import settings_of_listener
from headrace.errors import InvalidConfig
from headrace.metadata.scram_users import ScramUsers, decoy_secret
from headrace.metadata.znodes import CorruptNode
from headrace.network.connection import Dispatch
from headrace.network.server import Server
from headrace.security.sasl.gssapi import MECHANISM as GSSAPI
from headrace.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER
from headrace.security.sasl.plain import MECHANISM as PLAIN
from headrace.security.sasl.scram import HASHES


class Sasl:
    """Makes the mechanisms of listeners. What they share is made once."""

    def __init__(self, broker: Services, stack: AsyncExitStack, environment: Environment) -> None:
        self._broker, self._stack, self._environment = broker, stack, environment
        self._accounts: ScramAccounts | None = None
        self._blocking: AuthenticationThreads | None = None

    async def mechanisms(self, listener: str, *, is_for_instances: bool) -> Mechanisms:
        """The mechanisms by the settings of a listener. Raises `InvalidConfig`."""
        settings = ListenerSettings(listener, settings_of_listener(self._broker.config, listener))
        names = settings.names("sasl.enabled.mechanisms")
        has_stored_plain = is_for_instances and PLAIN in names
        if self._accounts is None and (has_stored_plain or HASHES.keys() & set(names)):
            self._accounts = await _accounts(self._broker, self._environment)
        if self._blocking is None:
            self._blocking = AuthenticationThreads("authenticate")
            self._stack.callback(self._blocking.close)
        return Mechanisms(
            settings,
            accounts=self._accounts,
            verify=await _verifier(settings, self._broker, self._stack) if OAUTHBEARER in names else None,
            kerberos=_kerberos(settings) if GSSAPI in names else None,
            blocking=self._blocking,
            random_bytes=self._environment.random_bytes,
            has_stored_plain=has_stored_plain,
        )


def build_authentication(
    sasl: Mapping[str, Mechanisms],
    broker: Services,
    server: Server,
    dispatch: Dispatch,
    stack: AsyncExitStack,
    instance_users: InstanceUsers,
) -> Authentication:
    """Puts gates before the connections of SASL listeners, whose mechanisms are given by their names."""
    config = broker.config
    authentication = Authentication(
        sasl,
        dispatch,
        loop=broker.loop,
        now_ms=broker.now_ms,
        spawn=broker.spawn,
        timeout_ms=config.authentication_timeout_ms,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        request_bytes_max=config.socket_request_max_bytes,
        gate_bytes_max=min(config.sasl_server_max_receive_size, config.socket_request_max_bytes),
        instance_users=instance_users,
    )
    stack.callback(authentication.close)
    server.on_open(authentication.opened)
    server.on_close(authentication.closed)
    return authentication


def _kerberos(settings: ListenerSettings) -> Kerberos:
    """The keys of a listener. The library of Kerberos is loaded for such a listener only."""
    from headrace.broker.security.kerberos import ListenerKerberos

    return ListenerKerberos(settings)


async def _verifier(settings: ListenerSettings, broker: Services, stack: AsyncExitStack) -> Verify:
    """Verifies the bearer tokens of a listener. PyJWT is imported for such a listener only."""
    from headrace.broker.security.token_verifier import TokenVerifier

    verifying = AuthenticationThreads("verify")
    stack.callback(verifying.close)
    fetching = ThreadPoolExecutor(1, "jwks")
    stack.callback(fetching.shutdown, wait=False, cancel_futures=True)
    verifier = TokenVerifier(settings, loop=broker.loop, now_ms=broker.now_ms, verifying=verifying, fetching=fetching)
    await verifier.start()
    return verifier.verify


async def _accounts(broker: Services, environment: Environment) -> ScramAccounts:
    users = ScramUsers(broker.entities)
    try:
        secret = await decoy_secret(broker.entities.store, environment.random_bytes)
    except CorruptNode as error:
        raise InvalidConfig(str(error)) from None
    return ScramAccounts(users, broker.delegation_tokens, secret)
