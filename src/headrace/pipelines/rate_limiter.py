"""The rate limiter's list: who is blocked, as the topic `security.blocked` says.

    limiter = RateLimiter("127.0.0.1:9092")
    limiter.refresh()                              as often as you like, say before each request or each second
    limiter.is_blocked("198.51.100.9", now_ms)

The topic is compacted, so a limiter that starts reads one entry for each rule and subject, and then what is new.
"""

import json
from types import TracebackType

from headrace.client.consumer.consumer import Consumer
from headrace.pipelines.security import BLOCKED
from headrace.pipelines.topics import PARTITIONS
from headrace.types import TopicPartition


class RateLimiter:
    """Follows the list. One thread uses it."""

    def __init__(self, bootstrap: str) -> None:
        self._until_ms: dict[str, dict[str, int]] = {}
        self._consumer = Consumer(bootstrap, isolation_level="read_committed")
        self._consumer.assign([TopicPartition(BLOCKED, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_beginning()

    def __enter__(self) -> "RateLimiter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def refresh(self, timeout_ms: float = 0) -> None:
        """Take what is new; wait for it so long, if there is nothing."""
        for record in self._consumer.poll(timeout_ms=timeout_ms):
            entry = json.loads(record.value)
            self._until_ms.setdefault(entry["subject"], {})[entry["rule"]] = entry["until_ms"]

    def is_blocked(self, subject: str, now_ms: int) -> bool:
        """Whether a request of this address or member is to be refused at this time."""
        return any(now_ms < until_ms for until_ms in self._until_ms.get(subject, {}).values())

    def blocked(self, now_ms: int) -> list[str]:
        """All who are blocked at this time."""
        return sorted(subject for subject in self._until_ms if self.is_blocked(subject, now_ms))
