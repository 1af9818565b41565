"""How a broker proves itself to other brokers, and they to it: the security protocol of the inter-broker listener.

    PLAINTEXT         nothing
    SSL               the listener's key store is the client's certificate, its trust store trusts the peers
    SASL_PLAINTEXT    sasl.mechanism.inter.broker.protocol, with the username and password of this broker in
                      listener.name.NAME.MECHANISM.sasl.jaas.config
    SASL_SSL          both

With SCRAM, brokers find each other's credentials in the metadata store, which holds them before the first broker
starts: none needs another one to be authenticated. Files are read anew for each connection, so that a renewed
certificate is taken. Source: Kafka's `ChannelBuilders`, `JaasContext`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.config import BrokerConfig
from headrace.config.listener_settings import settings_of_listener
from headrace.errors import InvalidConfig
from headrace.network.listeners import (
    SASL_PROTOCOLS,
    TLS_PROTOCOLS,
    inter_broker_listener,
    parse_listeners,
    parse_protocols,
)
from headrace.network.peers.peers import PeerUnreachable
from headrace.network.transport import PlainTransport, Transport, Wants

if TYPE_CHECKING:
    import socket
    import ssl

    from headrace.network.sasl.login import Login
    from headrace.security.sasl.exchange import ClientExchange

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOGINS_AT_ONCE_MAX = 8
"""Threads that log in at other brokers. Others wait."""

MECHANISM = "sasl.mechanism.inter.broker.protocol"


class HandshakeFailed(OSError):
    """Why no TLS connection could be made, in one line."""


class PeerSecurity(NamedTuple):
    """What a connection to another broker needs; the default is PLAINTEXT."""

    tls: TlsClient | None = None
    login: PeerLogin | None = None

    async def transport(self, sock: socket.socket, host: str) -> Transport:
        """The stream over a connected socket, after the handshake. Closes the socket if it fails. Raises
        `HandshakeFailed`."""
        if self.tls is None:
            return PlainTransport(sock)
        return await self.tls.transport(sock, host)

    def close(self) -> None:
        """Ends the threads of logins."""
        if self.login is not None:
            self.login.close()


NO_SECURITY = PeerSecurity()


class TlsClient:
    """Makes TLS connections with the settings of the inter-broker listener."""

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        """Reads the files. Raises `InvalidConfig`. `settings` is asked anew for each connection."""
        self._settings = settings
        self._context = self._read()
        self._failure = ""

    def _read(self) -> ssl.SSLContext:
        from headrace.network.tls.contexts import client_context

        return client_context(self._settings())

    def _newest(self) -> ssl.SSLContext:
        """The context of the files as they are, or as they were when they were good. On a thread."""
        try:
            self._context, self._failure = self._read(), ""
        except InvalidConfig as error:
            if error.message != self._failure:
                self._failure = error.message
                log.error("connections to other brokers keep the certificates that they had: %s", error.message)
        return self._context

    async def transport(self, sock: socket.socket, host: str) -> Transport:
        """See `PeerSecurity.transport`."""
        from headrace.network.tls import TlsTransport
        from headrace.network.tls.failures import handshake_failure

        loop = asyncio.get_running_loop()
        try:
            context = await loop.run_in_executor(None, self._newest)
            transport = TlsTransport(context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False))
            while (wants := transport.handshake()) is not Wants.NOTHING:
                await _ready(loop, transport.fileno(), wants)
        except OSError as error:
            sock.close()
            raise HandshakeFailed(handshake_failure(error)) from None
        except BaseException:
            sock.close()
            raise
        return transport


class PeerLogin:
    """The login of the inter-broker listener. A new password counts from the next authentication on.

    It has threads of its own: an issuer of tokens or a key distribution centre that does not answer holds a thread for
    up to a minute, after its caller has given up, and must not hold those that read cold records.
    """

    def __init__(self, settings: Callable[[], Mapping[str, str]], listener: str) -> None:
        """Raises `InvalidConfig`."""
        self._settings, self._listener = settings, listener
        self._given = settings()
        self._login = _login(self._given, listener)
        self._refusals: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(_LOGINS_AT_ONCE_MAX, "login")

    def close(self) -> None:
        """Ends the threads, as soon as what they do is over."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a step of an authentication, on a thread. Raises `PeerUnreachable` after `close`, and what the
        step raises."""
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError:
            raise PeerUnreachable("this broker is shutting down") from None
        return await running

    def authenticated(self, peer: str) -> None:
        """Notes that an authentication succeeded."""
        self._refusals.pop(peer, None)

    def refused(self, peer: str, why: str) -> None:
        """Logs a failed authentication, once until one succeeds or the reason is another. The caller that wanted the
        connection may not log it."""
        if self._refusals.get(peer) != why:
            self._refusals[peer] = why
            log.error("%s", why)

    async def exchange(self, host: str) -> ClientExchange:
        """A new authentication. May wait for a token. Raises `AuthenticationFailed`."""
        return await self.run(partial(self._client, host))

    def _client(self, host: str) -> ClientExchange:
        given = self._settings()
        if given != self._given:
            self._given = given
            try:
                self._login = _login(given, self._listener)
            except InvalidConfig as error:
                log.error("connections to other brokers keep the login that they had: %s", error.message)
        return self._login.client(host)


async def _ready(loop: asyncio.AbstractEventLoop, descriptor: int, wants: Wants) -> None:
    done = asyncio.Event()
    if wants is Wants.READ:
        loop.add_reader(descriptor, done.set)
    else:
        loop.add_writer(descriptor, done.set)
    try:
        await done.wait()
    finally:
        if wants is Wants.READ:
            loop.remove_reader(descriptor)
        else:
            loop.remove_writer(descriptor)


def peer_security(current: Callable[[], BrokerConfig]) -> PeerSecurity:
    """The security of the inter-broker listener. `current`: the broker's settings as they are now. Raises
    `InvalidConfig`, which names the setting."""
    config = current()
    listeners = parse_listeners(config.listeners, parse_protocols(config.listener_security_protocol_map))
    listener = inter_broker_listener(listeners, config.inter_broker_listener_name)
    tls = login = None

    def settings() -> Mapping[str, str]:
        return settings_of_listener(current(), listener.name)

    if listener.protocol in TLS_PROTOCOLS:
        tls = TlsClient(settings)
    if listener.protocol in SASL_PROTOCOLS:
        login = PeerLogin(settings, listener.name)
    return PeerSecurity(tls, login)


def _login(settings: Mapping[str, str], listener: str) -> Login:
    from headrace.network.sasl.login import login_of

    mechanism = settings.get(MECHANISM, "")
    own = f"{mechanism.lower()}."
    sasl = {name: text for name, text in settings.items() if name.startswith("sasl.")}
    sasl |= {name.removeprefix(own): text for name, text in settings.items() if name.startswith(f"{own}sasl.")}
    sasl["sasl.mechanism"] = mechanism
    try:
        return login_of(sasl)
    except InvalidConfig as error:
        given = f"listener.name.{listener.lower()}.{own}sasl.jaas.config"
        message = error.message.replace("sasl.jaas.config", given).replace("sasl.mechanism is", f"{MECHANISM} is")
        raise InvalidConfig(f"connections to other brokers: {message}") from None
