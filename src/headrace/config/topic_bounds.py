"""The bounds of an instance's topics, which hold whatever the topics set.

    reliable               `headrace.reliable` is true
    retention_ms_max       `retention.ms` is not longer
                           `cleanup.policy` has delete: a topic that is compacted only keeps records for ever
                           records are not stamped far in the future: they would stay until then
                           segments are rolled in time: a segment stays as long as its newest record
    retention_bytes_max    `retention.bytes` is not larger

A record is gone at the latest `retention_ms_max` after it was sent, and the time that its segment took to be rolled
(`segment.ms`, at most as long again), and the time that it was stamped ahead (at most as long again, and at most the
broker's default of `message.timestamp.after.max.ms`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.config.topic import TopicConfig
from headrace.limits import INT64_MAX

DELETE = "delete"
SEGMENT_MS_LEAST = 60_000
"""Segments are not rolled more often for a short retention: each is several open files."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """What the topics of an instance must not go beyond."""

    reliable: bool = False
    retention_ms_max: int | None = None
    retention_bytes_max: int | None = None

    def after_max_ms(self, defaults: TopicConfig) -> int | None:
        """How far ahead of the broker's clock a record may be stamped; None if any setting of a topic is allowed."""
        most = self.retention_ms_max
        return None if most is None else min(most, defaults.after_max_ms)

    def applied(self, config: TopicConfig, defaults: TopicConfig) -> TopicConfig:
        """The configs of a topic within the bounds. `defaults`: the broker's."""
        changed: dict[str, object] = {}
        if self.retention_bytes_max is not None and not 0 <= config.retention_bytes <= self.retention_bytes_max:
            changed["retention_bytes"] = self.retention_bytes_max
        most, after_max_ms = self.retention_ms_max, self.after_max_ms(defaults)
        if most is not None and after_max_ms is not None:
            if not 0 <= config.retention_ms <= most:
                changed["retention_ms"] = most
            if DELETE not in config.cleanup_policy:
                changed["cleanup_policy"] = (*config.cleanup_policy, DELETE)
            changed["segment_ms"] = min(config.segment_ms, max(most, SEGMENT_MS_LEAST))
            if config.after_max_ms > after_max_ms:
                # The deprecated limit in both directions would count in place of one that is the default by chance.
                changed["message_timestamp_after_max_ms"] = after_max_ms
                changed["message_timestamp_before_max_ms"] = config.before_max_ms
                changed["message_timestamp_difference_max_ms"] = INT64_MAX
        return replace(config, **changed) if changed else config  # type: ignore[arg-type]
