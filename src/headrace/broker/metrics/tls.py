"""Metrics of TLS listeners: handshakes, and when certificates end."""

from collections.abc import Iterable

from headrace.broker.metrics.family import Family, counter, gauge
from headrace.network.tls.handshakes import Handshakes
from headrace.network.tls.listeners import TlsListeners


def families(listeners: TlsListeners, handshakes: Handshakes) -> Iterable[Family]:
    """The metrics of a broker with TLS listeners."""
    yield gauge(
        "headrace_tls_certificate_expiry_seconds",
        "When the certificate of a TLS listener ends, in seconds since 1970.",
        [({"listener": each.name}, each.certificate.not_after.timestamp()) for each in listeners],
    )
    yield counter("headrace_tls_handshakes", "Completed TLS handshakes.", [({}, handshakes.completed)])
    yield counter(
        "headrace_tls_kernel_connections",
        "TLS connections whose data the kernel encrypts, since the start.",
        [({}, handshakes.kernel.connections)],
    )
    yield counter(
        "headrace_tls_handshake_failures", "TLS handshakes that failed or took too long.", [({}, handshakes.failures)]
    )
    yield gauge(
        "headrace_tls_handshakes_in_progress",
        "Connections whose TLS handshake is not complete.",
        [({}, len(handshakes))],
    )
