"""A handshake between two contexts in this process."""

import socket
import ssl
from threading import Thread
from typing import NamedTuple


class Shaken(NamedTuple):
    """How both sides ended: the TLS version, or the error."""

    server: str | OSError
    client: str | OSError


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> Shaken:
    """Lets both sides shake hands over a pair of sockets."""
    ours, theirs = socket.socketpair()
    found: dict[str, str | OSError] = {}

    def run(name: str, sock: socket.socket, context: ssl.SSLContext, **more: object) -> None:
        sock.settimeout(20)
        try:
            with context.wrap_socket(sock, **more) as wrapped:  # type: ignore[arg-type]
                if name == "client":  # TLS 1.3: the server's verdict on a certificate comes with the first read
                    wrapped.recv(1)
                    wrapped.sendall(b"x")
                else:
                    wrapped.sendall(b"y")
                    wrapped.recv(1)
                found[name] = wrapped.version() or ""
        except OSError as error:
            found[name] = error
        finally:
            sock.close()

    thread = Thread(target=run, args=("server", ours, server), kwargs={"server_side": True})
    thread.start()
    run("client", theirs, client, server_hostname=host)
    thread.join()
    return Shaken(found["server"], found["client"])
