"""Metrics of authentication, under the names that Apache Kafka gives them for each listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.metrics.family import Family, counter, number

if TYPE_CHECKING:
    from headrace.broker.security.authentication import Authentication

_PREFIX = "kafka_server_socket_server_metrics_"


def families(authentication: Authentication | None) -> Iterable[Family]:
    """The metrics of a broker with SASL listeners; none of another."""
    if authentication is None:
        return
    for counted, word, text in (
        (authentication.successes, "successful", "Clients that have authenticated"),
        (authentication.failures, "failed", "Clients that have failed to authenticate"),
    ):
        yield _by_mechanism(counted, f"{word}_authentication", f"{text}, at the beginning of a connection.", False)
        yield _by_mechanism(counted, f"{word}_reauthentication", f"{text}, again on an open connection.", True)
    for ended, name, text in (
        (authentication.expirations, "expired_connections_killed_count",
         "Connections that were closed because their session was over."),
        (authentication.timeouts, "authentication_timeouts",
         "Connections that were closed because they did not authenticate in time."),
    ):  # fmt: skip
        yield counter(_PREFIX + name, text, [({"listener": each}, count) for each, count in sorted(ended.items())])
    yield number(
        f"{_PREFIX}authenticating_connections", "Connections that have yet to authenticate.", authentication.waiting
    )


def _by_mechanism(counted: Counter[tuple[str, str, bool]], name: str, text: str, is_again: bool) -> Family:
    """Without a mechanism where the client has chosen none."""
    samples = [
        ({"listener": listener, "mechanism": mechanism}, count)
        for (listener, mechanism, again), count in sorted(counted.items())
        if again is is_again
    ]
    return counter(_PREFIX + name, text, samples)
