"""TLS: contexts made from Kafka's `ssl.*` settings, and the transport over a TLS socket.

    settings (name -> text) ─▶ stores ─▶ contexts ─▶ SSLContext ─▶ handshakes ─▶ a transport
                               PEM, PKCS12, JKS     the key goes to OpenSSL through a file without a name

May know settings, sockets and `security`; no request. Begin with `contexts`. A broker or a client without TLS imports
nothing of this.
"""

from headrace.network.tls.transport import TlsTransport

__all__ = ["TlsTransport"]
