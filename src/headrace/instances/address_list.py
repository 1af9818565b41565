"""Which addresses may connect to an instance: networks of IPv4 and IPv6 that are allowed, and those that are denied.

    allow 10.0.0.0/8, 2001:db8::/32     only these; without any, every address
    deny  10.1.0.0/16                   not these, whatever `allow` says

A list keeps, for each length of a prefix, the set of the prefixes with that length. A decision is one look-up for each
length that occurs, at most 33 for IPv4 and 129 for IPv6, however many networks there are.

A socket of IPv6 shows a client of IPv4 as `::ffff:10.1.2.3`. Such an address, and a network of such addresses, counts
as IPv4. So `::/0` is every address of IPv6, and no client of IPv4.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

_MAPPED = 0xFFFF << 32
_MAPPED_BITS = 96
_IPV4_BITS, _IPV6_BITS = 32, 128

Tables = tuple[tuple[int, frozenset[int]], ...]
"""For each length of a prefix: the bits to drop from an address, and the prefixes."""


class Network(NamedTuple):
    """A network of one family."""

    is_ipv6: bool
    host_bits: int
    """The bits that its addresses differ in."""
    prefix: int
    """The other bits, as a number."""


class Networks:
    """A set of networks."""

    __slots__ = ("_ipv4", "_ipv6")

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises `ValueError` for a text that is neither an address nor a network."""
        found = [parse_network(text) for text in texts]
        self._ipv4 = _tables(each for each in found if not each.is_ipv6)
        self._ipv6 = _tables(each for each in found if each.is_ipv6)

    def __bool__(self) -> bool:
        return bool(self._ipv4 or self._ipv6)

    def __contains__(self, address: str) -> bool:
        """Whether an address lies in one of the networks. A text that is no address lies in none."""
        if not (self._ipv4 or self._ipv6):
            return False
        try:
            is_ipv6, value = parse_address(address)
        except ValueError:
            return False
        return self.has(value, is_ipv6=is_ipv6)

    def has(self, value: int, *, is_ipv6: bool) -> bool:
        """Whether a parsed address lies in one of the networks."""
        tables = self._ipv6 if is_ipv6 else self._ipv4
        return any(value >> host_bits in prefixes for host_bits, prefixes in tables)


class AddressList:
    """The addresses that may connect to one instance."""

    __slots__ = ("_allow", "_deny")

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        """Raises `ValueError` for a text that is no network."""
        self._allow, self._deny = Networks(allow), Networks(deny)

    def allows(self, address: str) -> bool:
        """Whether a client with this address may connect. Without any network everybody may; otherwise a text that is
        no address may not."""
        if not (self._allow or self._deny):
            return True
        try:
            is_ipv6, value = parse_address(address)
        except ValueError:
            return False
        if self._deny.has(value, is_ipv6=is_ipv6):
            return False
        return not self._allow or self._allow.has(value, is_ipv6=is_ipv6)


def parse_address(text: str) -> tuple[bool, int]:
    """Whether an address is of IPv6, and its bits. Raises `ValueError`."""
    if ":" not in text:
        return False, int(IPv4Address(text))
    value = int(IPv6Address(text.partition("%")[0]))  # without the scope of a link-local address
    if value >> 32 == 0xFFFF:
        return False, value - _MAPPED
    return True, value


def is_address(text: str) -> bool:
    """Whether a host is written as an address."""
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


def parse_network(text: str) -> Network:
    """Reads `10.1.0.0/16`, `2001:db8::/32`, or one address. Raises `ValueError` for anything else, and for a network
    with bits behind its prefix, which may be a slip."""
    address, slash, length = text.partition("/")
    bits = _IPV6_BITS if ":" in address else _IPV4_BITS
    value = int(IPv6Address(address) if ":" in address else IPv4Address(address))
    kept = int(length) if length.isdecimal() and length.isascii() and len(length) <= 3 else -1
    if not slash:
        kept = bits
    if not 0 <= kept <= bits:
        raise ValueError(f"{text!r} has no prefix length between 0 and {bits}")
    host_bits = bits - kept
    if value & ((1 << host_bits) - 1):
        raise ValueError(f"{text!r} has host bits set")
    if bits == _IPV6_BITS and kept >= _MAPPED_BITS and value >> 32 == 0xFFFF:
        return Network(False, host_bits, (value - _MAPPED) >> host_bits)
    return Network(bits == _IPV6_BITS, host_bits, value >> host_bits)


@lru_cache(maxsize=8)
def check_networks(texts: tuple[str, ...]) -> None:
    """Raises `ValueError` unless each text is a network. A list that was checked lately is not checked again: the
    definition of an instance is read and altered several times in a change, and may have 10,000 networks."""
    for each in texts:
        try:
            parse_network(each)
        except ValueError as error:
            raise ValueError(f"{each!r:.100} is not a network such as 10.1.0.0/16 or 2001:db8::/32: {error}") from None


def _tables(networks: Iterable[Network]) -> Tables:
    found: dict[int, set[int]] = {}
    for each in networks:
        found.setdefault(each.host_bits, set()).add(each.prefix)
    return tuple((host_bits, frozenset(found[host_bits])) for host_bits in sorted(found, reverse=True))
