"""Settings shared by all client objects, with Kafka's names and underscores for dots.

Names end in their unit: `_ms`, `_bytes`. Defaults are Kafka's unless a comment says why not.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.core.checked_settings import CheckedSettings

if TYPE_CHECKING:
    from ssl import SSLContext

RESPONSE_BYTES_MAX = 512 << 20
"""The longest answer that a client takes; a length above it means that the peer does not speak Kafka."""


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientSettings(CheckedSettings, kind="client"):
    """The connection, timeout and retry settings of a client. Raises InvalidConfig for a value out of range."""

    client_id: str = "headrace"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    tls: "SSLContext | None" = None
    sasl: Mapping[str, str] | None = None
    """Kafka's `sasl.*` options, secrets included; None connects without SASL. See `headrace.client.security`."""
    waits_for_brokers: bool = False
    """Whether calls wait up to `api_timeout_ms` for a first broker. Otherwise a wrong address is reported at once."""

    _secret = frozenset({"sasl"})


def parse_addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """The addresses in `host:port,host:port`, `[::1]:9092`, or a list of these. ValueError names the wrong one."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [_parse_address(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError("no broker address is given: expected HOST:PORT, or several separated by commas")
    return addresses


def _parse_address(text: str) -> Address:
    scheme, _, bare = text.rpartition("://")  # a listener's name, as PLAINTEXT
    if scheme.lower() in ("http", "https"):
        raise ValueError(f"broker address {text!r} is one of the web: give HOST:PORT of a broker without {scheme}://")
    host, colon, port_text = bare.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port_text.isascii() and port_text.isdigit()) or not 0 < int(port_text) < 65536:
        raise ValueError(f"broker address {text!r} is not HOST:PORT with a port from 1 to 65535")
    return Address(host, int(port_text))
