"""What a failed handshake means, in one line that says what to change."""

import ssl

PLAINTEXT_PEER = (
    "the other side does not speak TLS: its listener is PLAINTEXT or SASL_PLAINTEXT; connect to its TLS port, or set "
    "security.protocol without SSL"
)
_REASONS = {
    "WRONG_VERSION_NUMBER": PLAINTEXT_PEER,
    "HTTP_REQUEST": PLAINTEXT_PEER,
    "UNSUPPORTED_PROTOCOL": "both sides have no TLS version in common (ssl.enabled.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "both sides have no TLS version in common (ssl.enabled.protocols)",
    "NO_PROTOCOLS_AVAILABLE": "both sides have no TLS version in common (ssl.enabled.protocols)",
    "NO_SHARED_CIPHER": "both sides have no cipher suite in common (ssl.cipher.suites)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side accepts none of the cipher suites (ssl.cipher.suites), or "
    "demands a certificate (ssl.keystore.location)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate; set ssl.keystore.location there",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server demands a certificate; set ssl.keystore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust this side's certificate; add its authority to the other "
    "side's ssl.truststore.location",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side refuses this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side refuses this side's certificate; add its authority to the other "
    "side's ssl.truststore.location, and check the host name",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this side's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "this side's certificate has been revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side does not accept the kind or the use of this side's "
    "certificate",
}
_LOST = (
    "the other side closed the connection during the TLS handshake; if its listener is PLAINTEXT or SASL_PLAINTEXT, "
    "connect to its TLS port, or set security.protocol without SSL"
)


def handshake_failure(error: OSError) -> str:
    """Why a handshake failed, for a client's error and for a broker's log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | BrokenPipeError):
        return _LOST
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "unknown"
        return _REASONS.get(reason, f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")
    return f"the TLS handshake failed: {error.strerror or error}"


def _verification(error: ssl.SSLCertVerificationError) -> str:
    why = (getattr(error, "verify_message", "") or "it cannot be verified").rstrip(".")
    if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return (
            f"the certificate is not for this address: {why}; connect by a name in the certificate "
            f"(advertised.listeners), or issue one with this name"
        )
    if error.verify_code in (18, 19, 20, 21):  # self-signed, or no issuer in the trust store
        return f"the certificate is not trusted: {why}; add its authority to ssl.truststore.location"
    return f"the certificate is refused: {why}"
