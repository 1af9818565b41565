"""Limits of connections: how many there may be, and how fast new ones may come.

    max.connections                     of the broker; of a listener as listener.name.NAME.max.connections. New
                                        connections wait in the listening socket until another one closes
    max.connections.per.ip              of an address, with .overrides; a connection beyond it is closed at once
    max.connection.creation.rate        of the broker, or of a listener with its prefix; new connections wait
    connection_creation_rate            of an address (`quotas.connection_quotas`); a connection beyond it is closed
                                        after a while, so that its client does not come back at once

The inter-broker listener, if it is one of several, has only its own limits: brokers reach each other whatever clients
do. Source: Kafka's `ConnectionQuotas`, `SocketServer`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from headrace.config import BrokerConfig
from headrace.limits import INT32_MAX
from headrace.quotas.connection_quotas import ConnectionQuotas
from headrace.quotas.entities import DEFAULT

CONFIG = "connection_creation_rate"


class NotAnAddress(ValueError):
    """A text is no IP address; it may be the name of a host."""


class ConnectionLimits:
    """Counts connections, and knows which may be accepted."""

    def __init__(self, config: BrokerConfig, listeners: Collection[str], now: Callable[[], float]) -> None:
        """`now`: the event loop's time."""
        self._now = now
        self._protected = config.inter_broker_listener_name.upper() if len(listeners) > 1 else ""
        burst_s = (config.quota_window_num - 1) * config.quota_window_size_seconds
        self.quotas = ConnectionQuotas(lambda: burst_s, lambda: config.quota_window_size_seconds)
        self._listeners = tuple(listeners)
        self._by_listener: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Applies the settings of connections. Open connections stay."""
        self._total_max, self._per_host_max = config.max_connections, config.max_connections_per_ip
        self._overrides = read_overrides(config.max_connections_per_ip_overrides)
        limits = {(name, key): value for name, key, value in config.listener_limits}
        self._listener_max = {name: limits.get((name, "max.connections"), INT32_MAX) for name in self._listeners}
        rates = {name: limits.get((name, "max.connection.creation.rate"), INT32_MAX) for name in self._listeners}
        for name, rate in {**rates, "": config.max_connection_creation_rate}.items():
            self.quotas.set_listener_rate(name, rate if rate < INT32_MAX else None, self._now())

    def set_address_rate(self, address: str | None, configs: Mapping[str, str]) -> None:
        """Applies the quota of an address in the metadata store; None is the default. Raises `ValueError` for a rate
        that is no number above 0, `NotAnAddress` for the name of a host."""
        key = DEFAULT if address is None else _address(address)
        self.quotas.set_address_rate(key, None)
        if CONFIG in configs:
            rate = int(configs[CONFIG])
            if not 1 <= rate <= INT32_MAX:
                raise ValueError(f"it is not 1 to {INT32_MAX}")
            self.quotas.set_address_rate(key, rate)

    @property
    def total(self) -> int:
        """The number of open connections."""
        return self._by_listener.total()

    def is_protected(self, listener: str) -> bool:
        """Whether the broker's own limits do not count for a listener."""
        return listener == self._protected

    @property
    def is_exceeded(self) -> bool:
        """Whether there are more connections than `max.connections`: those of a protected listener came."""
        return self.total > self._total_max

    def has_room(self, listener: str) -> bool:
        """Whether a listener may accept a further connection."""
        if self._by_listener[listener] >= self._listener_max.get(listener, INT32_MAX):
            return False
        return self.is_protected(listener) or self.total < self._total_max

    def is_over_host_limit(self, host: str) -> bool:
        """Whether a further connection of an address is closed at once."""
        return self._by_host[host] >= self._overrides.get(host, self._per_host_max)

    def listener_wait(self, listener: str) -> float:
        """Counts a new connection; returns the seconds for which the listener accepts no other."""
        return self.quotas.accepted(listener, self._now(), counts_for_broker=not self.is_protected(listener))

    def host_wait(self, listener: str, host: str) -> float:
        """Returns 0, or the seconds after which a new connection is to be closed for its address's rate."""
        return self.quotas.address_wait(listener, host, self._now(), counts_for_broker=not self.is_protected(listener))

    def count(self, listener: str) -> int:
        """The number of open connections of a listener."""
        return self._by_listener[listener]

    def moved(self, listener: str, other: str) -> None:
        """Counts an open connection for another listener from now on."""
        self._by_listener[other] += 1
        self._decrease(listener)

    def opened(self, listener: str, host: str) -> None:
        """Counts an open connection."""
        self._by_listener[listener] += 1
        self._by_host[host] += 1

    def closed(self, listener: str, host: str) -> None:
        """Counts the end of a connection."""
        self._decrease(listener)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _decrease(self, listener: str) -> None:
        self._by_listener[listener] -= 1
        if not self._by_listener[listener]:
            del self._by_listener[listener]  # it may be of an instance that goes


def read_overrides(entries: Collection[str]) -> dict[str, int]:
    """The limits of addresses in `max.connections.per.ip.overrides`. Raises `ValueError`."""
    found = {}
    for entry in entries:
        host, _, count = entry.rpartition(":")
        found[_address(host)] = int(count)
    return found


def _address(text: str) -> str:
    """An address in the form in which sockets name it. Raises `NotAnAddress`."""
    import ipaddress  # only brokers with limits of addresses pay for the import

    try:
        return ipaddress.ip_address(text.strip("[]")).compressed
    except ValueError as error:
        raise NotAnAddress(str(error)) from None
