"""Quotas on the creation of connections: for the broker, for each listener, and for each address. Pure.

    broker, listener   max.connection.creation.rate; new connections wait in the listening socket meanwhile
    address            connection_creation_rate of /config/ips/A or /config/ips/<default>; a connection over it is
                       closed after the wait

A wait is at most `quota.window.size.seconds`, as in Kafka, and a connection that is turned away for its address does
not count for listener and broker. The inter-broker listener, if it is one of several, does not count for the broker.
Source: Kafka's `ConnectionQuotas`.
"""

from collections.abc import Callable

from headrace.quotas.client_quotas import BUCKETS_BEFORE_SWEEP, Throttled
from headrace.quotas.entities import DEFAULT, Default
from headrace.quotas.token_bucket import TokenBucket


class ConnectionQuotas:
    """The rates of new connections."""

    def __init__(self, burst_s: Callable[[], float], wait_max_s: Callable[[], float]) -> None:
        self._burst_s, self._wait_max_s = burst_s, wait_max_s
        self._listeners: dict[str, TokenBucket] = {}
        self._rates: dict[str | Default, float] = {}
        self._addresses: dict[str, TokenBucket] = {}
        self._sweep_at = BUCKETS_BEFORE_SWEEP
        self.throttled_listeners, self.throttled_addresses = Throttled(), Throttled()

    def set_listener_rate(self, name: str, rate: float | None, now: float) -> None:
        """Sets the rate of a listener, or of the broker with the name `""`; None for no limit."""
        if rate is None:
            self._listeners.pop(name, None)
            return
        bucket = self._listeners.get(name)
        if bucket is None:
            self._listeners[name] = TokenBucket(rate, rate * self._burst_s(), now)
        elif bucket.rate != rate:
            bucket.change(rate, rate * self._burst_s(), now)

    def set_address_rate(self, address: str | Default, rate: float | None) -> None:
        """Sets the rate of an address or of the default; None removes it."""
        if rate is None:
            self._rates.pop(address, None)
        else:
            self._rates[address] = rate

    def accepted(self, listener: str, now: float, *, counts_for_broker: bool) -> float:
        """Counts a new connection; returns the seconds until the listener may accept the next one."""
        wait = 0.0
        for name in (listener, "") if counts_for_broker else (listener,):
            bucket = self._listeners.get(name)
            if bucket is not None:
                wait = max(wait, bucket.spend(1, now))
        wait = min(wait, self._wait_max_s())
        if wait:
            self.throttled_listeners.add(round(wait * 1000))
        return wait

    def address_wait(self, listener: str, address: str, now: float, *, counts_for_broker: bool) -> float:
        """Counts a new connection of an address; returns 0, or the seconds after which it is to be closed. Such a
        connection counts for nothing."""
        rate = self._rates.get(address, self._rates.get(DEFAULT))
        if rate is None:
            self._addresses.pop(address, None)
            return 0.0
        bucket, burst = self._addresses.get(address), rate * self._burst_s()
        if bucket is None:
            self._sweep(now)
            bucket = self._addresses[address] = TokenBucket(rate, burst, now)
        elif (bucket.rate, bucket.burst) != (rate, burst):
            bucket.change(rate, burst, now)
        wait = min(bucket.spend(1, now), self._wait_max_s())
        if wait:
            bucket.refund(1)
            for name in (listener, "") if counts_for_broker else (listener,):
                if name in self._listeners:
                    self._listeners[name].refund(1)
            self.throttled_addresses.add(round(wait * 1000))
        return wait

    def _sweep(self, now: float) -> None:
        if len(self._addresses) >= self._sweep_at:
            self._addresses = {name: each for name, each in self._addresses.items() if not each.is_full(now)}
            self._sweep_at = max(BUCKETS_BEFORE_SWEEP, 2 * len(self._addresses))
