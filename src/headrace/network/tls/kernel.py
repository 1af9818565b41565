"""Kernel TLS: OpenSSL makes the handshake, and then the kernel encrypts what is written to the socket (Linux).

    the context has OP_ENABLE_KTLS  ─▶ handshake ─▶ OpenSSL gives the kernel the key, if it can ─▶ `encrypts`

It can where OpenSSL 3 was built with it, the kernel has the module `tls` (`modprobe tls`: only root loads it by using
it), and the kernel has the cipher suite. Nothing tells that beforehand, so each connection is asked. What the kernel
does not encrypt, OpenSSL does, as without it.
"""

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLSocket

log = logging.getLogger(__name__)

SETTING = "headrace.ssl.kernel.enable"
_ENABLE = getattr(ssl, "OP_ENABLE_KTLS", 1 << 3 if ssl.OPENSSL_VERSION_INFO >= (3,) else 0)  # a name since Python 3.12
_SOL_TLS, _TLS_TX, _VERSION_AND_SUITE_BYTES = 282, 1, 4
_ULPS = Path("/proc/sys/net/ipv4/tcp_available_ulp")


def prepare(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Lets OpenSSL give the kernel the keys of a server's connections, unless the settings say not to."""
    if settings.get(SETTING, "true") == "true":
        context.options |= _ENABLE


def encrypts(sock: SSLSocket) -> bool:
    """Whether the kernel encrypts what is written to a socket whose handshake is complete."""
    if not sock.context.options & _ENABLE:
        return False
    try:
        # The version and the suite alone: four bytes are too few for the key.
        return bool(sock.getsockopt(_SOL_TLS, _TLS_TX, _VERSION_AND_SUITE_BYTES))
    except OSError:  # ENOPROTOOPT without the module, EBUSY without a key; another system has no such option
        return False


def reason_without(sock: SSLSocket) -> str:
    """Why the kernel does not encrypt what is written to a socket, as far as can be told."""
    if not _ENABLE:
        return f"{ssl.OPENSSL_VERSION} has no kernel TLS"
    if not sock.context.options & _ENABLE:
        return f"{SETTING} is false"
    try:
        if "tls" not in _ULPS.read_text().split():
            return "the kernel's module tls is not loaded (modprobe tls), or the kernel has none"
    except OSError:
        return "this system has no kernel TLS that is known"
    suite = sock.cipher()
    return f"{ssl.OPENSSL_VERSION} was built without it, or the kernel has no {suite[0] if suite else 'suite'}"


class KernelTls:
    """Tells connections that the kernel encrypts from others, counts them, and logs once which it is."""

    def __init__(self) -> None:
        self.connections = 0
        """Connections that the kernel encrypts, since the start."""
        self._logged: set[bool] = set()

    def takes(self, sock: SSLSocket) -> bool:
        """Whether the kernel encrypts what is written to a socket whose handshake is complete."""
        found = encrypts(sock)
        self.connections += found
        if found not in self._logged:
            self._logged.add(found)
            if found:
                log.info("the kernel encrypts what TLS connections send")
            else:
                log.info("this process encrypts what TLS connections send, not the kernel: %s", reason_without(sock))
        return found
