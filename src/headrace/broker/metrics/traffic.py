"""What went in and out, by topic: counters that grow in place. Source: Kafka's `BrokerTopicStats`."""

from collections.abc import Iterator, Set


class Traffic:
    """One topic's counters, since the broker began."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetch_conversions", "fetches", "messages_in",
        "produce_conversions", "produces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.produces = self.failed_produces = self.produce_conversions = 0
        self.bytes_out = self.fetches = self.failed_fetches = self.fetch_conversions = 0

    def add(self, other: "Traffic") -> None:
        """Counts what another has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TrafficByTopic:
    """Every topic's counters. A partition keeps its topic's at hand, so that nothing is looked up to count."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Traffic] = {}
        self._elsewhere = Traffic()

    def __iter__(self) -> Iterator[tuple[str, Traffic]]:
        return iter(self._by_topic.items())

    def of(self, topic: str) -> Traffic:
        """The counters of a topic that has partitions here."""
        return self._by_topic.setdefault(topic, Traffic())

    def known(self, topic: str) -> Traffic:
        """Those of a topic that a client names: if it has no partition here, the ones of no topic in particular."""
        return self._by_topic.get(topic, self._elsewhere)

    def keep_only(self, topics: Set[str]) -> None:
        """Forgets topics that are gone; the totals still have them."""
        for topic in [topic for topic in self._by_topic if topic not in topics]:
            self._elsewhere.add(self._by_topic.pop(topic))

    def total(self) -> Traffic:
        """All topics together, with those that are gone."""
        total = Traffic()
        for each in (*self._by_topic.values(), self._elsewhere):
            total.add(each)
        return total


class ConversionTimes:
    """How long one API's requests spent in converting message formats, in ns, and how many did."""

    __slots__ = ("count", "elapsed_ns")

    def __init__(self) -> None:
        self.count = self.elapsed_ns = 0

    def add(self, elapsed_ns: int) -> None:
        """One more."""
        self.count += 1
        self.elapsed_ns += elapsed_ns
