"""Headers of the PROXY protocol, version 2."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.limits import PROXY_HEADER_BYTES_MAX
from headrace.network.proxy_protocol import SIGNATURE, ProxyHeader, bytes_needed, read_proxy_header

PORTS = st.integers(0, 65535)
IPv4 = st.integers(0, (1 << 32) - 1).map(IPv4Address)
IPv6 = st.integers(0, (1 << 128) - 1).map(IPv6Address)
EXTENSIONS = st.binary(max_size=300)


def header(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


def proxied(source: str, port: int, extensions: bytes = b"") -> bytes:
    """The header of a client, as HAProxy sends it."""
    packed = IPv6Address(source).packed if ":" in source else IPv4Address(source).packed
    family = 0x21 if ":" in source else 0x11
    return header(0x21, family, packed + packed + port.to_bytes(2, "big") + (9092).to_bytes(2, "big") + extensions)


def test_the_bytes_of_a_header_written_out() -> None:
    given = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000201 c6336402 c738 2384")
    assert read_proxy_header(given) == ProxyHeader(("192.0.2.1", 51000), 28)
    assert given == proxied("192.0.2.1", 51000)[:20] + bytes.fromhex("c6336402 c738 2384")


@given(IPv4 | IPv6, PORTS, EXTENSIONS, st.binary(max_size=50))
def test_the_source_is_read_and_extensions_are_skipped(
    source: IPv4Address | IPv6Address, port: int, extensions: bytes, behind: bytes
) -> None:
    given = proxied(str(source), port, extensions)
    found = read_proxy_header(given + behind)
    assert found is not None
    assert found.source is not None
    host = IPv6Address(found.source[0]) if ":" in found.source[0] else IPv4Address(found.source[0])
    assert (host, found.source[1], found.size) == (source, port, len(given))


@given(st.sampled_from([0, 0x11, 0x21, 0x31]), EXTENSIONS)
def test_a_local_header_keeps_the_connection_s_own_address(family: int, rest: bytes) -> None:
    given = header(0x20, family, rest)
    assert read_proxy_header(given) == ProxyHeader(None, len(given))
    given = header(0x21, 0, rest)
    assert read_proxy_header(given) == ProxyHeader(None, len(given))


@given(IPv4 | IPv6, EXTENSIONS, st.data())
def test_every_prefix_says_how_much_is_missing(
    source: IPv4Address | IPv6Address, extensions: bytes, data: st.DataObject
) -> None:
    given = proxied(str(source), 1, extensions)
    cut = given[: data.draw(st.integers(0, len(given) - 1))]
    assert read_proxy_header(cut) is None
    missing = bytes_needed(cut)
    assert len(cut) + missing == (16 if len(cut) < 16 else len(given))


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: SIGNATURE + rest))
def test_any_bytes_are_a_header_or_the_beginning_of_one_or_refused(given: bytes) -> None:
    try:
        missing = bytes_needed(given)
        found = read_proxy_header(given)
    except InvalidRequest:
        return
    assert missing <= PROXY_HEADER_BYTES_MAX
    assert (found is None) == (missing > 0)
    assert found is None or found.size <= len(given)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"PROXY TCP4 192.0.2.1", "no header"),
        (b"\x16\x03\x01", "no header"),
        (b"\x00\x00\x00\x10", "no header"),
        (SIGNATURE + b"\x11", "version and command 0x11"),
        (SIGNATURE + b"\x22", "version and command 0x22"),
        (SIGNATURE + b"\x21\x11\xff\xff", "65551 bytes"),
        (header(0x21, 0x12, bytes(12)), "family 0x12"),
        (header(0x21, 0x31, bytes(216)), "family 0x31"),
        (header(0x21, 0x11, bytes(11)), "too few"),
        (header(0x21, 0x21, bytes(35)), "too few"),
    ],
)
def test_what_is_refused(given: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        read_proxy_header(given)
