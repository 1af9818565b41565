"""Names of cipher suites: Java's, which Kafka's `ssl.cipher.suites` has, to OpenSSL's.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256    ECDHE-RSA-AES128-GCM-SHA256
    TLS_AES_256_GCM_SHA384                   the same: suites of TLS 1.3 have one name

By default only suites with forward secrecy and authenticated encryption are used. `ssl.cipher.suites` may name others
that OpenSSL still has; none of NULL, anonymous, export, RC4, DES and 3DES.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import InvalidConfig

DEFAULT = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""OpenSSL's name of the suites of TLS 1.2 that are used by default."""

TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV")  # no suites; Java lists the first among them

_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": "",
}  # fmt: skip
_ENCRYPTIONS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}


class Suites(NamedTuple):
    """The suites to use: OpenSSL's list for TLS 1.2, and those of TLS 1.3; None and empty say that there are none."""

    tls_1_2: str | None
    tls_1_3: tuple[str, ...]


def suites(names: Sequence[str]) -> Suites:
    """Of Java's or OpenSSL's names. Raises `InvalidConfig` for a name that is neither."""
    if not names:
        return Suites(DEFAULT, tuple(sorted(TLS_1_3)))
    newer = tuple(each for each in names if each in TLS_1_3)
    older = [_openssl_name(each) for each in names if each not in TLS_1_3 and each not in _SIGNALS]
    if not newer and not older:
        raise InvalidConfig(f"ssl.cipher.suites={','.join(names)} names no cipher suite")
    return Suites(":".join(older) or None, newer)


def _openssl_name(name: str) -> str:
    exchange, with_, encryption = name.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    if with_ and exchange in _KEY_EXCHANGES and encryption in _ENCRYPTIONS:
        return _KEY_EXCHANGES[exchange] + _ENCRYPTIONS[encryption]
    known = {first + second for first in _KEY_EXCHANGES.values() for second in _ENCRYPTIONS.values()}
    if name in known:
        return name
    raise InvalidConfig(f"ssl.cipher.suites: {name!r} is unknown, or too weak to be used")
