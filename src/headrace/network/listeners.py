"""Listeners: parses `listeners` and `advertised.listeners`, the addresses to bind and the addresses for clients.

    listeners                        INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:9093         a socket each
    advertised.listeners             INSIDE://10.0.0.1:9092,OUTSIDE://kafka.example:443    for that listener's clients
                                     PLAINTEXT://:9092          every address, advertised as the name of this machine
    listener.security.protocol.map   INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT                    the protocol of each

Source: Kafka's `KafkaConfig`, `EndPoint`, KIP-103. Left out: protocols other than PLAINTEXT.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.errors import InvalidConfig
from headrace.metadata.model import Endpoint

PLAINTEXT = "PLAINTEXT"
PORT_MAX = 65535
_ANY_ADDRESS = ("0.0.0.0", "::")


class Listener(NamedTuple):
    """One entry of `listeners`: a name and an address."""

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
        raise InvalidConfig(f"listener {text!r} uses {protocol}, but only PLAINTEXT is supported")
    return Listener(name, host.strip("[]"), int(port))


def parse_listeners(texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parses every listener; names must be unique. Raises `InvalidConfig`."""
    found = tuple(parse_listener(text, protocols) for text in texts)
    if not found:
        raise InvalidConfig("listeners is empty: name at least one HOST:PORT")
    if len({each.name for each in found}) < len(found):
        raise InvalidConfig(
            f"listeners {','.join(texts)!r} uses a name twice: give each listener its own name, and each name an entry "
            f"in listener.security.protocol.map"
        )
    return found


def endpoints(
    bound: Sequence[Listener],
    advertised: Sequence[str],
    protocols: Mapping[str, str],
    own_name: Callable[[], str] = socket.getfqdn,
) -> tuple[Endpoint, ...]:
    """The advertised endpoint of each listener; the bound address when nothing is advertised.

    An advertised port of 0 means the bound port, and an empty host means this machine's name, as in Apache Kafka.
    Raises `InvalidConfig` for an address that no client can connect to, and for a name that is not in `listeners`.
    """
    by_name = {each.name: each for each in (parse_listeners(advertised, protocols) if advertised else bound)}
    for name in by_name.keys() - {each.name for each in bound}:
        raise InvalidConfig(
            f"advertised.listeners has {by_name[name]}, but listeners has no {name}: add it there, or remove it here"
        )
    found = []
    for listener in bound:
        each = by_name.get(listener.name)
        if each is None:
            raise InvalidConfig(f"advertised.listeners has no entry for listener {listener.name}: add one")
        if each.host in _ANY_ADDRESS:
            raise InvalidConfig(
                f"listener {listener} cannot be advertised as {each.host}, which is no address to connect to: "
                f"set advertised.listeners to an address that clients reach"
            )
        found.append(Endpoint(each.name, each.host or own_name(), each.port or listener.port))
    return tuple(found)
