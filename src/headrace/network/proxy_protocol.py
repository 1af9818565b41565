"""The PROXY protocol, version 2: a load balancer tells from which address a client has connected to it.

    signature 12 bytes | version 4 bits = 2, command 4 bits | family, protocol 1 byte | length uint16 | the rest

    LOCAL 0     the load balancer itself, as for a health check: the connection is from where it is from
    PROXY 1     family 0x11: source IPv4, destination IPv4, source port, destination port      12 bytes
                family 0x21: the same with IPv6                                                36 bytes
                family 0x00: unknown; the connection is from where it is from
                then extensions (TLVs), which are skipped

The header comes first, before any byte of TLS, and nothing is sent before it is complete. Other families are of sockets
that Kafka's clients do not have, and version 1 is a line of text: both are refused.
Source: HAProxy's `proxy-protocol.txt`.
"""

from socket import AF_INET, AF_INET6, inet_ntop
from typing import NamedTuple

from headrace.errors import InvalidRequest
from headrace.limits import PROXY_HEADER_BYTES_MAX

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FIXED_BYTES = 16
_LOCAL, _PROXY = 0x20, 0x21
_UNKNOWN, _TCP4, _TCP6 = 0x00, 0x11, 0x21
_ADDRESS_BYTES = {_TCP4: 12, _TCP6: 36}


class ProxyHeader(NamedTuple):
    """What a load balancer told."""

    source: tuple[str, int] | None
    """The client's address and port; None for those that the connection itself has."""
    size: int
    """The bytes of the header."""


def bytes_needed(received: bytes | bytearray) -> int:
    """How many bytes of a header are missing, as far as `received` tells; 0 if it is complete. Raises `InvalidRequest`
    as soon as it cannot be the beginning of a header."""
    if not SIGNATURE.startswith(received[: len(SIGNATURE)]):
        raise InvalidRequest("a trusted proxy sent no header of the PROXY protocol, version 2")
    if len(received) > 12 and received[12] not in (_LOCAL, _PROXY):
        raise InvalidRequest(f"a header of the PROXY protocol has version and command {received[12]:#04x}")
    if len(received) < FIXED_BYTES:
        return FIXED_BYTES - len(received)
    size = FIXED_BYTES + int.from_bytes(received[14:16])
    if size > PROXY_HEADER_BYTES_MAX:
        raise InvalidRequest(f"a header of the PROXY protocol has {size} bytes, more than {PROXY_HEADER_BYTES_MAX}")
    return max(0, size - len(received))


def read_proxy_header(received: bytes | bytearray) -> ProxyHeader | None:
    """Reads the header at the beginning of `received`; None while it is not complete. Raises `InvalidRequest`."""
    if bytes_needed(received):
        return None
    size = FIXED_BYTES + int.from_bytes(received[14:16])
    family = received[13]
    if received[12] == _LOCAL or family == _UNKNOWN:
        return ProxyHeader(None, size)
    least = _ADDRESS_BYTES.get(family)
    if least is None:
        raise InvalidRequest(f"a header of the PROXY protocol has family {family:#04x}, which is not TCP")
    if size < FIXED_BYTES + least:
        raise InvalidRequest(f"a header of the PROXY protocol has {size} bytes, too few for its addresses")
    if family == _TCP4:
        host, port = inet_ntop(AF_INET, bytes(received[16:20])), received[24:26]
    else:
        host, port = inet_ntop(AF_INET6, bytes(received[16:32])), received[48:50]
    return ProxyHeader((host, int.from_bytes(port)), size)
