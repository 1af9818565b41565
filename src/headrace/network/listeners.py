"""Listeners: parses `listeners` and `advertised.listeners`, the addresses to bind and the addresses for clients.

    listeners                        INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:9093         a socket each
    advertised.listeners             INSIDE://10.0.0.1:9092,OUTSIDE://kafka.example:443    for that listener's clients
                                     PLAINTEXT://:9092          every address, advertised as the name of this machine
    listener.security.protocol.map   INSIDE:PLAINTEXT,OUTSIDE:SSL                          the protocol of each

A listener of protocol KAFKA07 serves clients of Kafka 0.7, which know no metadata: it is not advertised.
Source: Kafka's `KafkaConfig`, `EndPoint`, KIP-103.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.config.ssl_settings import KAFKA07
from headrace.errors import InvalidConfig
from headrace.metadata.model import Endpoint

PLAINTEXT = "PLAINTEXT"
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
_SPOKEN = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", KAFKA07)
PORT_MAX = 65535
ANY_ADDRESS = ("0.0.0.0", "::")
"""Hosts to listen on that are no address to connect to."""


class Listener(NamedTuple):
    """One entry of `listeners`: a name, an address and a security protocol."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @property
    def is_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol in TLS_PROTOCOLS

    @property
    def is_sasl(self) -> bool:
        """Whether its clients authenticate with SASL."""
        return self.protocol in SASL_PROTOCOLS

    @property
    def is_07(self) -> bool:
        """Whether its clients are those of Kafka 0.7."""
        return self.protocol == KAFKA07

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
        protocol = protocol.strip().upper()
        if protocol not in _SPOKEN:
            raise InvalidConfig(
                f"listener.security.protocol.map: {entry!r} names no protocol; they are {', '.join(_SPOKEN)}"
            )
        found[name.strip().upper()] = protocol
    return found


def parse_listener(text: str, protocols: Mapping[str, str]) -> Listener:
    """`NAME://HOST:PORT`, or `HOST:PORT` for a plaintext one; an IPv6 host is in brackets. Raises `InvalidConfig`."""
    name, separator, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX or (separator and not name):
        raise InvalidConfig(f"listener {text!r} is not HOST:PORT or NAME://HOST:PORT, with a port up to {PORT_MAX}")
    name = name.upper() or PLAINTEXT
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidConfig(f"listener {text!r}: {name} is not in listener.security.protocol.map; add {name}:PROTOCOL")
    if protocol not in _SPOKEN:
        raise InvalidConfig(f"listener {text!r} uses {protocol}, but only {' and '.join(_SPOKEN)} can be served")
    return Listener(name, host.strip("[]"), int(port), protocol)


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
    if all(each.is_07 for each in found):
        raise InvalidConfig(
            f"listeners {','.join(texts)!r} has only listeners of {KAFKA07}: add one for clients and brokers of today"
        )
    return found


def endpoints(
    bound: Sequence[Listener],
    advertised: Sequence[str],
    protocols: Mapping[str, str],
    own_name: Callable[[], str] = socket.getfqdn,
) -> tuple[Endpoint, ...]:
    """The advertised endpoint of each listener but those of KAFKA07; the bound address when nothing is advertised.

    An advertised port of 0 means the bound port, and an empty host means this machine's name, as in Apache Kafka.
    Raises `InvalidConfig` for an address that no client can connect to, and for a name that is not in `listeners`.
    """
    old = [each for each in bound if each.is_07]
    bound = [each for each in bound if not each.is_07]
    by_name = {each.name: each for each in (parse_listeners(advertised, protocols) if advertised else bound)}
    for listener in old:
        if listener.name in by_name:
            raise InvalidConfig(
                f"advertised.listeners has {by_name[listener.name]}, but clients of {KAFKA07} are told no address: "
                "remove it there"
            )
    for name in by_name.keys() - {each.name for each in bound}:
        raise InvalidConfig(
            f"advertised.listeners has {by_name[name]}, but listeners has no {name}: add it there, or remove it here"
        )
    found = []
    for listener in bound:
        each = by_name.get(listener.name)
        if each is None:
            raise InvalidConfig(f"advertised.listeners has no entry for listener {listener.name}: add one")
        if each.host in ANY_ADDRESS:
            raise InvalidConfig(
                f"listener {listener} cannot be advertised as {each.host}, which is no address to connect to: "
                f"set advertised.listeners to an address that clients reach"
            )
        found.append(Endpoint(each.name, each.host or own_name(), each.port or listener.port, listener.protocol))
    return tuple(found)


def inter_broker_listener(listeners: Sequence[Listener], name: str) -> Listener:
    """The listener that other brokers connect to: that of `inter.broker.listener.name`, or else that named PLAINTEXT,
    or else the first. Raises `InvalidConfig` if there is none of that name."""
    wanted = name.upper() or PLAINTEXT
    listeners = [each for each in listeners if not each.is_07]
    found = next((each for each in listeners if each.name == wanted), None)
    if found is None and name:
        raise InvalidConfig(
            f"brokers are to use listener {wanted} (inter.broker.listener.name or security.inter.broker.protocol), but "
            f"listeners has only {', '.join(each.name for each in listeners)}"
        )
    return found or listeners[0]
