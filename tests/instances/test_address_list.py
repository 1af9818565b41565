"""Address lists: against a linear scan of the standard library's networks."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.instances.address_list import AddressList, Networks, parse_network

IPv4 = st.integers(0, (1 << 32) - 1).map(IPv4Address)
IPv6 = st.integers(0, (1 << 128) - 1).map(IPv6Address)
NEAR = st.integers(0, 7).map(lambda n: IPv4Address(0x0A000000 + (n << 14)))
"""Few addresses, so that networks and addresses meet."""


def _network(address: IPv4Address | IPv6Address, bits: int) -> IPv4Network | IPv6Network:
    return ip_network((address, min(bits, address.max_prefixlen)), strict=False)


NETWORKS = st.lists(st.builds(_network, NEAR | IPv4 | IPv6, st.integers(0, 128) | st.integers(15, 20)), max_size=6)


def _is_in(address: IPv4Address | IPv6Address, networks: list[IPv4Network | IPv6Network]) -> bool:
    """The dumb one. Mapped networks are left to a test of their own."""
    return any(each.version == address.version and address in each for each in networks)


@given(NETWORKS, NETWORKS, NEAR | IPv4 | IPv6)
def test_decides_as_a_scan_of_all_networks(
    allow: list[IPv4Network | IPv6Network], deny: list[IPv4Network | IPv6Network], address: IPv4Address | IPv6Address
) -> None:
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    found = AddressList(map(str, allow), map(str, deny))
    expected = not _is_in(address, deny) and (not allow or _is_in(address, allow))
    assert found.allows(str(address)) == expected


@given(NEAR | IPv4, st.integers(0, 32), NEAR | IPv4)
def test_a_mapped_address_and_a_mapped_network_count_as_ipv4(
    base: IPv4Address, bits: int, address: IPv4Address
) -> None:
    plain = _network(base, bits)
    mapped = f"::ffff:{plain.network_address}/{96 + bits}"
    assert parse_network(mapped) == parse_network(str(plain))
    for network in (mapped, str(plain)):
        for text in (str(address), f"::ffff:{address}"):
            assert (text in Networks([network])) == (address in plain)


@pytest.mark.parametrize(
    ("network", "address", "is_in"),
    [
        ("::/0", "::1", True),
        ("::/0", "10.1.2.3", False),
        ("::/0", "::ffff:10.1.2.3", False),
        ("0.0.0.0/0", "::ffff:10.1.2.3", True),
        ("0.0.0.0/0", "::1", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
    ],
)
def test_families_are_apart(network: str, address: str, is_in: bool) -> None:
    assert (address in Networks([network])) is is_in


def test_no_list_allows_everybody_and_a_list_nobody_without_an_address() -> None:
    assert AddressList().allows("10.0.0.1")
    assert AddressList().allows("")
    for text in ("", "kafka.example", "10.0.0", "10.0.0.1 ", "1" * 5000, ":::", "10.0.0.1\0"):
        assert not AddressList(["0.0.0.0/0", "::/0"]).allows(text)
        assert not AddressList(deny=["10.0.0.0/8"]).allows(text)


@given(st.text(max_size=20) | st.from_regex(r"[0-9a-f:.]{1,20}/[0-9]{0,4}", fullmatch=True))
def test_takes_the_networks_that_the_standard_library_takes(text: str) -> None:
    def parsed() -> bool:
        try:
            parse_network(text)
        except ValueError:
            return False
        return True

    def is_plain_network() -> bool:
        _, slash, length = text.partition("/")
        try:
            ip_network(text)
        except ValueError:
            return False
        return not slash or (length.isdecimal() and len(length) <= 3)  # not 10.0.0.0/255.0.0.0

    assert parsed() == is_plain_network()


def test_ten_thousand_networks_are_not_scanned() -> None:
    found = Networks([*(f"10.{n >> 6 & 255}.{(n & 63) << 2}.0/22" for n in range(9_000)), "192.168.0.0/16", "::1"])
    assert len(found._ipv4) == 2
    assert len(found._ipv6) == 1
    assert "10.3.7.1" in found
    assert "11.3.7.1" not in found


def test_the_names_of_networks_that_are_refused() -> None:
    for text in ("10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "a/8", "10.0.0.0/8/8", "/8", ""):
        with pytest.raises(ValueError, match=r".*"):
            parse_network(text)
    assert str(ip_address("10.0.0.0")) in Networks(["10.0.0.0/32"])
