"""News feed: the newest posts of those whom a member follows, ready to be read, in one record for each member.

    site.follows ─┐   by author: followers,     (reader, author, posts)    by reader: posts of      news_feed.feeds
    site.posts ───┴▶  the newest posts      ───────────────────────────▶   each author      ─────▶  compacted
                      fan-out by follower

A record has the member as its key. Its value is the whole feed, the newest post first, 20 at most:

    [{"time_ms": 1767600000123, "id": "1-881", "author": "m0007", "text": "post 3f"}, …]

The fan-out sends a follower all newest posts of an author, not single ones. So a post, a new follower and one who
leaves are one and the same message, and it does not matter in which order messages of different authors come.

Guarantees
    When all events are read, each feed has exactly the newest posts of those whom the member follows then, after kills
    of the driver, tasks and the broker, too. The order of arrival does not matter: the newest follow or unfollow by its
    own time decides, and posts count however late they come. Doubled events change nothing.
    A reader of the compacted topic sees a feed's states in order; it may see one twice after a kill.
    Spark keeps the followers of each author, with those who left, and 20 posts for each author and for each pair of a
    reader and an author. A post of an author with n followers is written n times.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.pipelines.events import PER_BATCH, not_ahead, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FEEDS: Final = "news_feed.feeds"
TOPICS: Final = ("site.follows", "site.posts")
FIELDS: Final = "author STRING, member STRING, is_following BOOLEAN, text STRING"
POSTS_MAX: Final = 20
Post = list[Any]
"""[time_ms, id, author, text], which sorts by time."""


def pipeline(spark: "SparkSession", bootstrap: str, *, per_batch: int = PER_BATCH) -> "DataStreamWriter":
    """The stream, ready to start once it has a checkpoint and a trigger."""
    events = not_ahead(read_events(spark, bootstrap, TOPICS, FIELDS, per_batch=per_batch))
    feeds = feeds_of(fan_out(events))
    sink = feeds.writeStream.format("headrace").outputMode("append").queryName("news_feed")
    return sink.option("kafka.bootstrap.servers", bootstrap).option("topic", FEEDS)


def fan_out(events: "DataFrame") -> "DataFrame":
    """What each follower shall have of an author: reader, author, posts (JSON)."""
    told = events.withColumn("time_ms", F.unix_millis("time")).where("author IS NOT NULL")
    return told.groupBy("author").transformWithState(
        _Followers(), "reader STRING, author STRING, posts STRING", "Append", "None"
    )


def feeds_of(messages: "DataFrame") -> "DataFrame":
    """The feeds that have changed: key (the reader), value (JSON)."""
    return messages.groupBy("reader").transformWithState(_Feeds(), "key STRING, value STRING", "Append", "None")


class _Followers(StatefulProcessor):
    """Of each author: who follows, by the newest event of each member, and the newest posts."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._followers = handle.getMapState(
            "followers", "member STRING", "time_ms LONG, id STRING, is_following BOOLEAN"
        )
        self._posts = handle.getValueState("posts", "posts STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (author,) = key
        stored = self._posts.get()
        before: list[Post] = json.loads(stored[0]) if stored is not None else []
        posts, touched = before, set()
        for row in rows:
            if row.topic == "site.posts":
                posts = newest([*posts, [row.time_ms, row.id, author, row.text]])
            elif row.member is not None and self._follows(row):
                touched.add(row.member)
        if posts != before:
            self._posts.update((json.dumps(posts),))
        for (member,), (_, _, is_following) in list(self._followers.iterator()):
            if member in touched or (is_following and posts != before):
                yield Row(reader=member, author=author, posts=json.dumps(posts if is_following else []))

    def _follows(self, row: Row) -> bool:
        """Take a follow or unfollow, unless a newer one of this member is known."""
        place = (row.member,)
        last = self._followers.getValue(place) if self._followers.containsKey(place) else None
        if last is not None and (last[0], last[1]) >= (row.time_ms, row.id):
            return False
        self._followers.updateValue(place, (row.time_ms, row.id, bool(row.is_following)))
        return True

    def close(self) -> None:
        """Nothing is open."""


class _Feeds(StatefulProcessor):
    """Of each reader: the posts of each author."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._posts = handle.getMapState("posts", "author STRING", "posts STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._posts.updateValue((row.author,), (row.posts,))
        feed = newest([post for _, (posts,) in self._posts.iterator() for post in json.loads(posts)])
        value = [dict(zip(("time_ms", "id", "author", "text"), post, strict=True)) for post in feed]
        yield Row(key=key[0], value=json.dumps(value))

    def close(self) -> None:
        """Nothing is open."""


def newest(posts: list[Post]) -> list[Post]:
    """The newest posts, each `id` once, the newest first."""
    return sorted({post[1]: post for post in posts}.values(), reverse=True)[:POSTS_MAX]
