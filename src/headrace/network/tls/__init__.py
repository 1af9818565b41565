"""TLS: contexts made from Kafka's `ssl.*` settings, and the transport over a TLS socket.

    settings (name -> text) ─▶ stores ─▶ contexts ─▶ SSLContext ─▶ handshakes ─▶ a transport
                               PEM, PKCS12, JKS     the key goes to OpenSSL through a file without a name

Begin with `contexts.py`. Nothing here is imported by a broker or a client without TLS.
"""

from headrace.network.tls.transport import TlsTransport

__all__ = ["TlsTransport"]
