"""Subscriptions to clients' metrics: which clients push which metrics, and how often.

    metrics       prefixes of metric names; * for all; empty for none
    interval.ms   how often the client pushes, 100 ms to one hour
    match         NAME=PATTERN,…: attributes of the client, each with a regular expression for the whole value

All patterns of a subscription must match. A client follows every subscription that matches: it pushes the union of
their metrics, at the shortest interval. Patterns are RE2's, which takes linear time for any pattern; Apache Kafka uses
Java's. Pure. Source: Kafka's `ClientMetricsConfigs`, `ClientMetricsManager`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.config.setting import Setting, parse_value
from headrace.errors import InvalidConfig, InvalidRequest

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 300_000
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3_600_000

INSTANCE_ID, CLIENT_ID = "client_instance_id", "client_id"
SOFTWARE_NAME, SOFTWARE_VERSION = "client_software_name", "client_software_version"
SOURCE_ADDRESS, SOURCE_PORT = "client_source_address", "client_source_port"
ATTRIBUTES = (INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS, SOURCE_PORT)
"""The attributes of clients that patterns may name."""

SETTINGS = {
    each.name: each
    for each in (
        Setting(INTERVAL_MS, "int", INTERVAL_MS_DEFAULT, "Metrics push interval in milliseconds", "ms"),
        Setting(MATCH, "list", (), "Client match criteria"),
        Setting(METRICS, "list", (), "Telemetry metric name prefix list"),
    )
}
"""The configs of a subscription, in the order in which Apache Kafka describes them."""


class TelemetrySubscription(NamedTuple):
    """One subscription."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Mapping[str, Any]
    """Compiled regular expressions by attribute."""

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether a client with these attributes follows the subscription."""
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) for name, pattern in self.patterns.items()
        )


class WantedMetrics(NamedTuple):
    """What a client is asked to push."""

    metrics: tuple[str, ...]
    interval_ms: int


def parse_subscription(configs: Mapping[str, str]) -> TelemetrySubscription:
    """A subscription from its configs. Raises `InvalidRequest` for an unknown config or an interval out of bounds,
    `InvalidConfig` for another bad value."""
    unknown = [name for name in configs if name not in SETTINGS]
    if unknown:
        raise InvalidRequest(f"Unknown client metrics configuration: {unknown[0]}")
    values = {name: parse_value(SETTINGS[name], text, name) for name, text in configs.items()}
    interval_ms = values.get(INTERVAL_MS, INTERVAL_MS_DEFAULT)
    assert isinstance(interval_ms, int)
    if not _INTERVAL_MS_MIN <= interval_ms <= _INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {_INTERVAL_MS_MIN} and "
            f"{_INTERVAL_MS_MAX} (1 hour)"
        )
    return TelemetrySubscription(frozenset(values.get(METRICS, ())), interval_ms, _patterns(values.get(MATCH, ())))  # type: ignore[arg-type]


def wanted_from(subscriptions: Iterable[TelemetrySubscription], attributes: Mapping[str, str]) -> WantedMetrics:
    """What a client with these attributes is asked to push."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if each.matches(attributes):
            metrics |= each.metrics
            interval_ms = min(interval_ms, each.interval_ms)
    return WantedMetrics((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


def _patterns(entries: Iterable[str]) -> dict[str, Any]:
    import re2  # a library of its own, which few brokers need

    options = re2.Options()
    options.log_errors = False
    found = {}
    for entry in entries:
        name, _, pattern = entry.partition("=")
        name, pattern = name.strip(), pattern.strip()
        if name not in ATTRIBUTES or not pattern or "=" in pattern:
            raise InvalidConfig(f"Illegal client matching pattern: {entry}")
        try:
            found[name] = re2.compile(pattern, options)
        except re2.error as error:
            raise InvalidConfig(f"Illegal client matching pattern: {entry}: {error}") from None
    return found
