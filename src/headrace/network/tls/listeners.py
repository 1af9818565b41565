"""TLS of a broker's listeners, whose certificates are exchanged while it runs.

    a setting changes        kafka-configs --alter --add-config listener.name.x.ssl.keystore.location=...
    a file changes           looked at every few seconds, on a thread
                                 └─▶ read anew ── usable ──▶ new connections have it; open ones keep what they have
                                                └─ not ────▶ the old one stays, and one line in the log says why

As in Apache Kafka a new certificate has the subject of the old one and at least its names, unless
`ssl.allow.dn.changes` or `ssl.allow.san.changes` permit others. A certificate that ends within thirty days is a
warning, once a day. Source: Kafka's SslChannelBuilder, SslFactory.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from ssl import CERT_NONE, SSLContext, SSLSocket
from typing import NamedTuple

from headrace.config import BrokerConfig
from headrace.config.listener_settings import layers_of, settings_of_listener
from headrace.errors import InvalidConfig
from headrace.network.listeners import Listener
from headrace.network.tls.contexts import ServerTls, server_context
from headrace.security.access import ANONYMOUS
from headrace.security.certificate_facts import CertificateFacts
from headrace.security.ssl_principals import SslPrincipals, java_name

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often the files are looked at."""
_REMINDER_S = 86_400.0
_FILES = ("ssl.keystore.location", "ssl.truststore.location")

Signature = tuple[tuple[int, int, int] | None, ...]
"""What a file is recognised by: its inode, size and time of change; None for a missing one."""


class _Loaded(NamedTuple):
    settings: Mapping[str, str]
    signature: Signature
    tls: ServerTls
    principals: SslPrincipals


class TlsListener:
    """TLS of one listener."""

    def __init__(self, name: str, config: BrokerConfig, *, is_sasl: bool, settings_of: str | None = None) -> None:
        """`settings_of`: the listener whose settings it has, if they are not its own. Reads files: on a thread. Raises
        `InvalidConfig`."""
        self.name = name
        self._is_sasl = is_sasl
        self._settings_of = name if settings_of is None else settings_of
        self._loaded = _load(name, self.settings(config))
        self._tried = (self._loaded.settings, self._loaded.signature)

    @property
    def context(self) -> SSLContext:
        """The context that new connections get."""
        return self._loaded.tls.context

    def wrap(self, sock: socket.socket, _host: str, /) -> SSLSocket:
        """See `ListenerTls`."""
        return wrapped(self.context, sock)

    @property
    def certificate(self) -> CertificateFacts:
        """The certificate that new connections get."""
        return self._loaded.tls.certificate

    def settings(self, config: BrokerConfig) -> dict[str, str]:
        """The settings of this listener's TLS. They hold secrets."""
        return _settings(config, self._settings_of, is_sasl=self._is_sasl)

    def principal(self, sock: SSLSocket) -> str:
        """The principal of a client whose handshake is complete; with SASL it is yet to be told. Raises
        `NoRuleMatches`."""
        loaded = self._loaded
        if self._is_sasl or loaded.tls.context.verify_mode == CERT_NONE:
            return ANONYMOUS
        certificate = sock.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        from cryptography import x509

        subject = java_name(x509.load_der_x509_certificate(certificate).subject)
        return f"User:{loaded.principals.name_of(subject)}"

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises `InvalidConfig` if the listener cannot change to these settings. Reads files: on a thread."""
        if settings != self._loaded.settings:
            _check_change(self.name, self._loaded, _load(self.name, settings))

    def refresh(self, settings: Mapping[str, str]) -> bool:
        """Takes the settings and files of now, if they are usable and new; whether it did. Reads files: on a
        thread."""
        signature = _signature(settings)
        if (settings, signature) == self._tried:
            return False
        self._tried = (settings, signature)
        if (settings, signature) == (self._loaded.settings, self._loaded.signature):
            return False
        try:
            found = _load(self.name, settings)
            _check_change(self.name, self._loaded, found)
        except InvalidConfig as error:
            log.error(
                "listener %s keeps the certificate of %s, since the new one cannot be used: %s",
                self.name,
                self.certificate.subject,
                error.message,
            )
            return False
        self._loaded = found
        log.info(
            "listener %s has a new certificate or trust: %s, valid until %s",
            self.name,
            self.certificate.subject,
            f"{self.certificate.not_after:%Y-%m-%d}",
        )
        return True

    def warn(self) -> None:
        """Warns of a certificate that ends soon."""
        now = datetime.now(UTC)
        fault = self.certificate.fault(now)
        if fault is not None:
            log.error("listener %s: %s", self.name, fault)
        elif self.certificate.ends_soon(now):
            log.warning(
                "listener %s: the certificate of %s (%s) ends at %s",
                self.name,
                self.certificate.subject,
                self._loaded.tls.key_source,
                f"{self.certificate.not_after:%Y-%m-%d %H:%M} UTC",
            )


class TlsListeners:
    """TLS of all listeners that have it."""

    def __init__(self, config: BrokerConfig, listeners: Sequence[Listener]) -> None:
        """Reads files: on a thread. Raises `InvalidConfig` with the name of the listener."""
        self._config = config
        self._by_name = {
            each.name: TlsListener(each.name, config, is_sasl=each.is_sasl) for each in listeners if each.is_tls
        }
        self._work = asyncio.Lock()

    def __iter__(self) -> Iterator[TlsListener]:
        return iter(self._by_name.values())

    def get(self, name: str) -> TlsListener | None:
        """TLS of a listener; None for a plain one."""
        return self._by_name.get(name)

    async def add(self, name: str, settings_of: str, *, is_sasl: bool) -> TlsListener:
        """Adds TLS for listeners that are opened at run time, with the settings of another. Raises `InvalidConfig`."""
        async with self._work:
            if name not in self._by_name:
                self._by_name[name] = await asyncio.to_thread(
                    lambda: TlsListener(name, self._config, is_sasl=is_sasl, settings_of=settings_of)
                )
            return self._by_name[name]

    def remove(self, names: Iterable[str]) -> None:
        """Forgets listeners that were added."""
        for name in names:
            self._by_name.pop(name, None)

    async def check(self, config: BrokerConfig) -> None:
        """Raises `InvalidConfig` if a listener cannot change to these settings."""
        for listener in [each for each in self if each.settings(config) != each.settings(self._config)]:
            await asyncio.to_thread(listener.check, listener.settings(config))

    def configure(self, config: BrokerConfig) -> None:
        """Takes new settings at the next look, which `look` is."""
        self._config = config

    async def look(self) -> None:
        """Takes what has changed: settings and files."""
        config = self._config
        async with self._work:
            for listener in list(self):
                await asyncio.to_thread(listener.refresh, listener.settings(config))

    async def watch(self) -> None:
        """Looks every few seconds, and warns of certificates that end, until it is cancelled."""
        warned_at = float("-inf")
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() - warned_at >= _REMINDER_S:
                warned_at = loop.time()
                for listener in self:
                    listener.warn()
            await asyncio.sleep(LOOK_S)
            await self.look()


def wrapped(context: SSLContext, sock: socket.socket) -> SSLSocket:
    """The server's side of a connection, before its handshake. Raises `OSError`."""
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False)


def _settings(config: BrokerConfig, listener: str, *, is_sasl: bool) -> dict[str, str]:
    """The settings of TLS. A listener with SASL demands certificates only if its own `ssl.client.auth` says so, not
    that of the broker, as in Apache Kafka (KIP-684)."""
    settings = settings_of_listener(config, listener)
    found = {name: text for name, text in settings.items() if name.startswith(("ssl.", "headrace.ssl."))}
    layers = layers_of(config, listener)
    own = {name for each, name, _ in config.listener_overrides if each in layers}
    if is_sasl and "ssl.client.auth" not in own:
        found["ssl.client.auth"] = "none"
    return found


def _load(listener: str, settings: Mapping[str, str]) -> _Loaded:
    signature = _signature(settings)  # before the files are read: a later change has another one
    try:
        principals = SslPrincipals(settings.get("ssl.principal.mapping.rules", ""))
        return _Loaded(settings, signature, server_context(settings), principals)
    except InvalidConfig as error:
        raise InvalidConfig(f"listener {listener}: {error.message}") from None


def _signature(settings: Mapping[str, str]) -> Signature:
    found: list[tuple[int, int, int] | None] = []
    for name in _FILES:
        try:
            status = os.stat(settings.get(name, ""))  # noqa: PTH116 - several times a second
        except (OSError, ValueError):
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _check_change(listener: str, before: _Loaded, after: _Loaded) -> None:
    """Raises `InvalidConfig` if the certificate is for another broker."""
    old, new, settings = before.tls.certificate, after.tls.certificate, after.settings
    what = f"listener {listener}: {after.tls.key_source}"
    if old.subject != new.subject and settings.get("ssl.allow.dn.changes") != "true":
        raise InvalidConfig(
            f"{what}: the subject is {new.subject} instead of {old.subject}; ssl.allow.dn.changes permits that"
        )
    lost = set(old.alternative_names) - set(new.alternative_names)
    if lost and settings.get("ssl.allow.san.changes") != "true":
        raise InvalidConfig(
            f"{what}: the names {', '.join(sorted(lost))} are missing; ssl.allow.san.changes permits that"
        )
