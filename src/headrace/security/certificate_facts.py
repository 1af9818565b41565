"""Facts about certificates: subject, names, when they end. What logs, metrics and messages say of them."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

EXPIRY_WARNING = timedelta(days=30)


class CertificateFacts(NamedTuple):
    """What is said about a certificate."""

    subject: str
    """RFC 4514."""
    alternative_names: tuple[str, ...]
    not_before: datetime
    not_after: datetime

    def fault(self, now: datetime) -> str | None:
        """Why the certificate is not valid now; None if it is."""
        if now > self.not_after:
            return f"the certificate of {self.subject} expired at {self.not_after:%Y-%m-%d %H:%M} UTC"
        if now < self.not_before:
            return f"the certificate of {self.subject} is valid only from {self.not_before:%Y-%m-%d %H:%M} UTC on"
        return None

    def ends_soon(self, now: datetime) -> bool:
        """Whether it is time to renew the certificate."""
        return self.not_after - now < EXPIRY_WARNING


def facts_of(certificate: "Certificate") -> CertificateFacts:
    """The facts of one certificate. Raises `ValueError` for one whose names or times cannot be read."""
    return CertificateFacts(
        certificate.subject.rfc4514_string() or "(no subject)",
        _alternative_names(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def _alternative_names(certificate: "Certificate") -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(str(error)) from None
    return tuple(str(each.value) for each in found)
