"""A broker with a TLS listener and a plain one, and raw connections to both."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.broker.app import running
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.network.tls.contexts import client_context
from tests.asker import Asker
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS


class TlsBroker(NamedTuple):
    """A running broker."""

    services: Services
    directory: Path
    port: int
    """Of the TLS listener."""
    plain_port: int

    def connect(self, *, name: str | None = None, **settings: str) -> ssl.SSLSocket:
        """A TLS connection; with a `name` it has a certificate. `settings` have `_` for `.`."""
        given = client_settings(self.directory, name=name) | {k.replace("_", "."): v for k, v in settings.items()}
        sock = socket.create_connection(("127.0.0.1", self.port), WITHIN_SECONDS)
        try:
            return client_context(given).wrap_socket(sock, server_hostname="localhost")
        except BaseException:
            sock.close()
            raise

    def ask(self, *, name: str | None = None) -> Asker:
        """A connection that asks in messages."""
        asker = Asker(f"127.0.0.1:{self.port}")
        asker.socket.close()
        asker.socket = self.connect(name=name)
        return asker


@asynccontextmanager
async def tls_broker(directory: Path, **settings: str) -> AsyncIterator[TlsBroker]:
    """Runs a broker. `settings` have `_` for `.`, or are Kafka's names, and stand beside those of `server_settings`."""
    own = {name if "." in name else name.replace("_", "."): text for name, text in settings.items()}
    properties = {
        "log.dirs": str(directory / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        **server_settings(directory),
        **own,
    }
    async with running(parse_broker(properties)) as (services, (plain, tls)):
        yield TlsBroker(services, directory, tls.port, plain.port)
