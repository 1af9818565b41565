"""`listeners` and `advertised.listeners`: where a broker listens, and what it tells clients to connect to.

    listeners                        INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:9093         a socket each
    advertised.listeners             INSIDE://10.0.0.1:9092,OUTSIDE://kafka.example:443    told to who came in there
    listener.security.protocol.map   INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT                    what is spoken there

Source: Kafka's `KafkaConfig`, `EndPoint`, KIP-103. Left out: protocols other than PLAINTEXT.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.coordination.model import Endpoint
from headrace.errors import InvalidConfig

PLAINTEXT = "PLAINTEXT"
PORT_MAX = 65535
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class Listener(NamedTuple):
    """One of `listeners`: a name, and where it listens."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocols(entries: Sequence[str]) -> dict[str, str]:
    """Listener name -> protocol, from `NAME:PROTOCOL` entries. Raises `InvalidConfig`."""
    found = {}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not (name and colon and protocol):
            raise InvalidConfig(f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def parse_listener(text: str, protocols: Mapping[str, str]) -> Listener:
    """`NAME://HOST:PORT`, or `HOST:PORT` for a plaintext one; an IPv6 host is in brackets. Raises `InvalidConfig`."""
    name, separator, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX or (separator and not name):
        raise InvalidConfig(f"listener {text!r} is not HOST:PORT or NAME://HOST:PORT")
    name = name.upper() or PLAINTEXT
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidConfig(f"listener {text!r}: {name} is not in listener.security.protocol.map; add {name}:PLAINTEXT")
    if protocol != PLAINTEXT:
        raise InvalidConfig(f"listener {text!r}: only PLAINTEXT is served, and this one is {protocol}")
    return Listener(name, host.strip("[]"), int(port))


def parse_listeners(texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Every listener; a name stands once. Raises `InvalidConfig`."""
    found = tuple(parse_listener(text, protocols) for text in texts)
    if not found:
        raise InvalidConfig("listeners is empty: name at least one HOST:PORT")
    if len({each.name for each in found}) < len(found):
        raise InvalidConfig(
            f"listeners {','.join(texts)!r} has a name twice: give each its own, and all of them an entry in "
            f"listener.security.protocol.map"
        )
    return found


def endpoints(
    bound: Sequence[Listener], advertised: Sequence[str], protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """What clients are told, per listener; the listeners themselves when nothing is advertised.

    An advertised port of 0 is the bound one. Raises `InvalidConfig` for an address that no client could connect to,
    and for one of a listener that is not there.
    """
    told = {each.name: each for each in (parse_listeners(advertised, protocols) if advertised else bound)}
    for name in told.keys() - {each.name for each in bound}:
        raise InvalidConfig(f"advertised.listeners has {told[name]}, but there is no listener {name}")
    found = []
    for listener in bound:
        each = told.get(listener.name)
        if each is None:
            raise InvalidConfig(f"advertised.listeners has no entry for listener {listener.name}")
        if each.host in _ANY_ADDRESS:
            raise InvalidConfig(
                f"listener {listener} cannot be told to clients as {each.host or 'an empty host'}: "
                f"set advertised.listeners to an address that they reach"
            )
        found.append(Endpoint(each.name, each.host, each.port or listener.port))
    return tuple(found)
