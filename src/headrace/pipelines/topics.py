"""The topics of the pipelines: made, filled with the site's events, and read back."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headrace.client.consumer.consumer import Consumer
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from headrace.pipelines.site import TOPICS, SiteEvent
from headrace.types import TopicPartition

PARTITIONS: Final = 2
HISTORY: Final = {"retention.ms": "-1"}
COMPACTED: Final = {"cleanup.policy": "compact"}
RESULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "operations.windows": HISTORY,
    "security.verdicts": HISTORY,
    "security.blocked": COMPACTED,
    "relevance.windows": HISTORY,
    "relevance.ranking": COMPACTED,
    "news_feed.feeds": COMPACTED,
}
"""The topics that the pipelines write, and their settings. Of a compacted topic the last record of a key counts."""


def create_topics(bootstrap: str) -> None:
    """Make the topics of the site and of the pipelines that are not there yet.

    The simulated site's events are of another year, so retention by their times is off.
    """
    wanted = {**dict.fromkeys(TOPICS, HISTORY), **RESULTS}
    with Admin(bootstrap) as admin:
        known = {topic.name for topic in admin.list_topics()}
        missing = [
            NewTopic(name, PARTITIONS, configs=dict(configs)) for name, configs in wanted.items() if name not in known
        ]
        if missing:
            admin.create_topics(missing)


def produce(bootstrap: str, events: Iterable[SiteEvent], *, as_they_come: bool = False) -> int:
    """Send the events in this order; how many. `as_they_come`: each at its time of arrival, by this machine's clock."""
    count = 0
    with Producer(bootstrap, linger_ms=5, compression_type="lz4") as producer:
        for event in events:
            if as_they_come and (ahead_s := event.arrival_ms / 1000 - time.time()) > 0:
                time.sleep(ahead_s)
            producer.send(event.topic, event.encoded(), key=event.key.encode(), timestamp_ms=event.arrival_ms)
            count += 1
    return count


def records_of(bootstrap: str, topic: str) -> Iterator[ConsumerRecord]:
    """All records that the topic has now, in order within each partition."""
    with Consumer(bootstrap, isolation_level="read_committed") as consumer, Admin(bootstrap) as admin:
        (about,) = [one for one in admin.list_topics() if one.name == topic]
        consumer.assign([TopicPartition(topic, number) for number in range(len(about.partitions))])
        consumer.seek_to_beginning()
        while sum(consumer.lag().values()):
            yield from consumer.poll(timeout_ms=500)


def count_of(bootstrap: str, topics: Iterable[str]) -> int:
    """How many records the topics have, deleted and compacted ones included."""
    with Admin(bootstrap) as admin:
        places = [place for topic in topics for place in admin.partitions_of(topic)]
        return sum(int(end) for _, end in admin.watermarks(places).values())


def values_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The values of all records that the topic has now."""
    return [json.loads(record.value) for record in records_of(bootstrap, topic)]


def latest_of(bootstrap: str, topic: str) -> dict[str, Any]:
    """The last value of each key: what a compacted topic says."""
    return {record.key.decode(): json.loads(record.value) for record in records_of(bootstrap, topic)}
