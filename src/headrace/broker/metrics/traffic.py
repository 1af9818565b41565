# cython: language_level=3, annotation_typing=False, binding=False
"""Traffic counters by topic, which grow in place. Source: Kafka's `BrokerTopicStats`.

Compiled, because every append counts three numbers; it also runs uncompiled.
"""

from collections.abc import Iterator, Set


class Traffic:
    """One topic's counters since the broker started."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetch_conversions", "fetches", "messages_in",
        "produce_conversions", "produces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.produces = self.failed_produces = self.produce_conversions = 0
        self.bytes_out = self.fetches = self.failed_fetches = self.fetch_conversions = 0

    def appended(self, messages: int, size: int) -> None:
        """Counts a batch of so many messages and bytes that was appended."""
        self.produces += 1
        self.messages_in += messages
        self.bytes_in += size

    def refused(self, batches: int, messages: int, size: int) -> None:
        """Counts batches as refused that were counted as appended: the disk did not take them."""
        self.produces -= batches
        self.failed_produces += batches
        self.messages_in -= messages
        self.bytes_in -= size

    def add(self, other: "Traffic") -> None:
        """Adds another topic's counters."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TrafficByTopic:
    """Every topic's counters. A partition refers to its topic's, so that counting needs no look-up."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Traffic] = {}
        self._other_topics = Traffic()

    def __iter__(self) -> Iterator[tuple[str, Traffic]]:
        return iter(self._by_topic.items())

    def of(self, topic: str) -> Traffic:
        """Returns the counters of a topic that has partitions here."""
        return self._by_topic.setdefault(topic, Traffic())

    def known(self, topic: str) -> Traffic:
        """Returns the counters of a topic that a client named. Topics without a partition here share their counters, so
        that invented names take no memory."""
        return self._by_topic.get(topic, self._other_topics)

    def keep_only(self, topics: Set[str]) -> None:
        """Drops the counters of deleted topics; the totals keep them."""
        for topic in [topic for topic in self._by_topic if topic not in topics]:
            self._other_topics.add(self._by_topic.pop(topic))

    def total(self) -> Traffic:
        """Returns the sum over all topics, including deleted ones."""
        total = Traffic()
        for each in (*self._by_topic.values(), self._other_topics):
            total.add(each)
        return total


class ConversionTimes:
    """The time that one API's requests spent converting message formats, in ns, and the number of such requests."""

    __slots__ = ("count", "elapsed_ns")

    def __init__(self) -> None:
        self.count = self.elapsed_ns = 0

    def add(self, elapsed_ns: int) -> None:
        """Adds one request."""
        self.count += 1
        self.elapsed_ns += elapsed_ns
