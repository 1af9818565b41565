"""What a connection that broke says about the security settings of both sides, with what to change.

    TLS to a plain listener       the handshake ends, or its answer is no TLS          see `network.tls.failures`
    plain text to a TLS listener  the first bytes are a TLS alert, or nothing comes
    no SASL to a SASL listener    ApiVersions is answered, and the next request closes the connection
    a certificate that is refused an alert, or the end of the stream, after the handshake

The last three also happen when a broker stops, so they are told with an "if", and are tried again like any lost
connection.
"""

from typing import Final

from headrace.client.core.failures import BrokerUnreachable, SecurityMismatch

_TLS_ALERT: Final = b"\x15\x03"


def is_tls_alert(begin: memoryview) -> bool:
    """Whether the first bytes of a plain stream are an alert of TLS."""
    return bytes(begin[:2]) == _TLS_ALERT


def spoke_plain_text(peer: object) -> SecurityMismatch:
    """The peer answered a plain request with TLS."""
    return SecurityMismatch(
        f"{peer} speaks TLS, and this client plain text: set security.protocol=SSL, or SASL_SSL if the listener "
        "authenticates by SASL"
    )


def tls_failed(peer: object, error: OSError) -> BrokerUnreachable:
    """The error of a TLS handshake, or the first one after it."""
    import ssl

    from headrace.network.tls.failures import handshake_failure

    if isinstance(error, TimeoutError):
        return BrokerUnreachable(f"{peer} did not finish the TLS handshake in time")
    is_certain = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return SecurityMismatch(f"TLS with {peer}: {handshake_failure(error)}", is_certain=is_certain)


def is_tls_error(error: OSError) -> bool:
    """Whether an error is one of OpenSSL. Imports nothing for a plain connection."""
    return type(error).__module__ == "ssl"


def is_end(error: OSError) -> bool:
    """Whether an error says that the peer closed the connection, and nothing else."""
    return isinstance(error, ConnectionError) or type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError")


def closed_unanswered(peer: object, *, is_negotiated: bool, has_tls: bool, has_sasl: bool) -> BrokerUnreachable:
    """The broker closed a new connection instead of an answer; it may also have stopped."""
    text = f"connection to {peer} lost: the broker closed the connection"
    sasl = "SASL_SSL" if has_tls else "SASL_PLAINTEXT or SASL_SSL"
    if is_negotiated and not has_sasl:
        return SecurityMismatch(
            f"{text} without answering the first request; if its listener authenticates by SASL, set "
            f"security.protocol={sasl}, and sasl.mechanism",
            is_certain=False,
        )
    if not is_negotiated and not has_tls:
        return SecurityMismatch(
            f"{text} before it answered; if its listener speaks TLS, set security.protocol=SSL or SASL_SSL",
            is_certain=False,
        )
    if not is_negotiated:  # in TLS 1.3 a client's certificate is judged after the handshake
        return SecurityMismatch(
            f"{text} before it answered; if its listener demands a certificate, set ssl.keystore.location to one whose "
            "authority is in the broker's ssl.truststore.location",
            is_certain=False,
        )
    return BrokerUnreachable(text)
