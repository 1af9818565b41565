"""A kazoo client that speaks to a secured ensemble: TLS by a context of ours, and SASL.

    connect ─ TLS ─ session ─ SASL ─ digest ─ requests        at every reconnection, on kazoo's thread
                              └ refused: the session ends (LOST), and nothing is requested without the identity

Deviations from kazoo:

    TLS      any ssl context, made anew for each connection, so that renewed files are taken; kazoo reads PEM files only
    SASL     kazoo leaves it to pure-sasl, whose nonces can be guessed, and which never ends where a server has no SASL
"""

import logging
import os
import socket
import ssl
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL

from headrace.errors import AuthenticationFailed, InvalidConfig
from headrace.metastore.zookeeper.digest_md5 import DigestMd5, DigestRefused
from headrace.metastore.zookeeper.ensemble import Ensemble, SaslLogin
from headrace.security.sasl.exchange import ClientExchange, ExchangeRefused

log = logging.getLogger(__name__)

_GSSAPI = "GSSAPI"
_MESSAGES_MAX = 8
"""The most messages of one authentication. DIGEST-MD5 takes two, Kerberos three or four."""


class SecuredHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, with TLS by the ensemble's own context."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self._make_context = ensemble.tls
        self.failure = ""
        """Why the last attempt to connect failed at TLS or SASL; '' if it did not."""

    def failed(self, failure: str) -> None:
        """Notes a failure, and logs it unless it is the last one again: there are several attempts a second."""
        if failure != self.failure:
            self.failure = failure
            log.error("%s", failure)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A connected socket, after the TLS handshake if there is one. `kwargs` are kazoo's."""
        if self._make_context is None:
            return super().create_connection(*args, **kwargs)
        try:
            context = self._make_context()
        except InvalidConfig as error:  # a file has changed
            self.failed(error.message)
            raise OSError(error.message) from None
        plain = socket.create_connection(kwargs["address"], kwargs["timeout"])
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(plain, server_hostname=kwargs["hostname"])
        except ssl.SSLError as error:
            plain.close()
            self.failed(f"the TLS handshake with ZooKeeper at {_at(kwargs)} failed: {why(error)}")
            raise
        except BaseException:
            plain.close()
            raise


def make_client(ensemble: Ensemble, handler: SecuredHandler | None = None, **more: Any) -> KazooClient:
    """A client that authenticates as the ensemble's options say. `more`: further arguments of kazoo's client."""
    handler = handler or SecuredHandler(ensemble)
    client = KazooClient(
        hosts=ensemble.hosts,
        handler=handler,
        auth_data=[("digest", ensemble.digest)] if ensemble.digest else None,
        use_ssl=ensemble.tls is not None,
        **more,
    )
    if ensemble.sasl is not None:
        login, connection = ensemble.sasl, client._connection
        connection.sasl_options = {}  # has kazoo authenticate at each connection

        def authenticate(host: str, timeout: float) -> None:
            try:
                _authenticate(connection, _sasl_client(login, host), timeout)
                handler.failure = ""
            except (kazoo_errors.AuthFailedError, DigestRefused, ExchangeRefused, AuthenticationFailed) as error:
                handler.failed(f"ZooKeeper at {host} did not authenticate {login}: {_text(error)}")
                raise kazoo_errors.AuthFailedError(_text(error)) from None

        connection._authenticate_with_sasl = authenticate
    return client


def why(error: ssl.SSLError) -> str:
    """What OpenSSL says, without its file and line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()


def _at(kwargs: dict[str, Any]) -> str:
    return f"{kwargs['hostname']}:{kwargs['address'][1]}"


def _sasl_client(login: SaslLogin, host: str) -> ClientExchange:
    if login.kerberos is not None:
        return login.kerberos(host)
    return DigestMd5(login.username, login.password, os.urandom)


def _authenticate(connection: Any, client: ClientExchange, timeout: float) -> None:
    """The conversation, on kazoo's thread, right after the session was made. Raises `AuthFailedError`,
    `DigestRefused`, `ExchangeRefused`, `AuthenticationFailed`, and kazoo's `ConnectionDropped`, after which kazoo
    connects again."""
    message = client.respond(None)
    for xid in range(1, _MESSAGES_MAX):
        connection._submit(SASL(message), timeout, xid)
        header, buffer, offset = connection._read_header(timeout)
        if header.err:
            raise kazoo_errors.AuthFailedError(_reason(header.err))
        if header.xid != xid:
            raise kazoo_errors.AuthFailedError(f"the server answered request {header.xid} instead of {xid}")
        token, _ = SASL.deserialize(buffer, offset)
        if not client.is_complete:
            if token is None and (xid == 1 or client.mechanism != _GSSAPI):  # Kerberos ends with no token
                raise kazoo_errors.AuthFailedError("the server has no SASL: its JAAS file has no section Server")
            message = client.respond(token or b"")
        if client.is_complete and (not message or token is None):
            return
    raise kazoo_errors.AuthFailedError("the conversation does not end")


def _text(error: Exception) -> str:
    return error.message if isinstance(error, AuthenticationFailed) else str(error)


def _reason(code: int) -> str:
    error = kazoo_errors.EXCEPTIONS[code]
    return "unknown user or wrong password" if error is kazoo_errors.AuthFailedError else error.__name__
