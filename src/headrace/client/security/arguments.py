"""The arguments of a client: an address, settings as values, and settings by name, sorted into what each is for.

    Producer("127.0.0.1:9092", linger_ms=20)
    Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 20})
    Producer("127.0.0.1:9092", ProducerSettings(linger_ms=20), ClientSettings(client_id="till"))

`core.options` has the names. Options of security go to `client_options`, as Kafka names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from headrace.client.core.checked_settings import CheckedSettings
from headrace.client.core.options import names_of, unknown
from headrace.client.core.settings import ClientSettings, parse_addresses
from headrace.errors import InvalidConfig

S = TypeVar("S", bound=CheckedSettings | None)
Bootstrap = str | Sequence[str] | Mapping[str, Any] | None

_ADDRESSES = "bootstrap.servers"
_SECURITY = ("security.", "ssl.", "sasl.")


def settings_of(
    kind: str, bootstrap: Bootstrap, base: S, client: ClientSettings | None, options: Mapping[str, Any]
) -> tuple[str | Sequence[str], S, ClientSettings]:
    """The address, and `base` and `client` with the options that are for them. Raises InvalidConfig."""
    given = dict(options)
    if isinstance(bootstrap, Mapping):
        given, bootstrap = {**bootstrap, **given}, None
    address = _address(bootstrap, given)
    own: dict[str, Any] = {}
    connecting: dict[str, Any] = {}
    security: dict[str, str] = {}
    for name, value in given.items():
        dotted = name.replace("_", ".")
        if kind != "client" and name in names_of(kind):
            own[name] = value
        elif name in names_of("client"):
            connecting[name] = value
        elif dotted.startswith(_SECURITY):
            security[dotted] = str(value)
        else:
            raise unknown(name, ("client", kind), ("security.protocol", "sasl.mechanism", "sasl.jaas.config"))
    settings = client or ClientSettings()
    if connecting:
        settings = settings.replace(**connecting)
    if security:
        from headrace.client.security.client_options import (
            client_settings,  # reads files and secrets: not for everybody
        )

        settings = client_settings(security, settings)
    return address, base.replace(**own) if base is not None and own else base, settings


def _address(bootstrap: Any, given: dict[str, Any]) -> str | Sequence[str]:
    """The addresses, and nothing of them left in `given`. Raises InvalidConfig for none, two, or another type."""
    named = [given.pop(name) for name in (_ADDRESSES, "bootstrap_servers") if name in given]
    found = [each for each in (bootstrap, *named) if each is not None]
    if len(found) != 1:
        if bootstrap is not None:
            raise InvalidConfig(
                f"the addresses of brokers are given twice: {bootstrap!r} stands where they are expected, and they are "
                "given by name (topics are given to subscribe)"
            )
        wrong = "are given twice" if found else "are not given"
        raise InvalidConfig(f"the addresses of brokers {wrong}: expected HOST:PORT, or several separated by commas")
    try:
        parse_addresses(found[0])
    except (ValueError, TypeError, AttributeError) as cause:
        wrong = str(cause) if isinstance(cause, ValueError) else f"bootstrap={found[0]!r}: expected HOST:PORT as text"
        raise InvalidConfig(wrong) from None
    address: str | Sequence[str] = found[0]
    return address
