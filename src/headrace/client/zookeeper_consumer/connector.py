"""The high-level consumer over ZooKeeper: one member of a group, whose partitions come out of streams.

    with ConsumerConnector(zookeeper="127.0.0.1:2181", group="billing") as connector:
        streams = connector.create_message_streams({"orders": 2})["orders"]      # or ..._by_filter(Whitelist("o.*"), 2)
        for record in streams[0]: ...                                            # one thread for each stream

One thread registers the consumer, rebalances when a watch fires, and commits. In a rebalance

    revoke      a partition that goes elsewhere is delivered no more, its offset is committed, then its entry is removed
    claim       the entry of a partition that comes is added, then its offset is read; until the previous owner has
                removed its own, the claim is tried again, when that one goes or after `rebalance_backoff_ms`

    connection lost for a third of the session's time-out    nothing is delivered: others may own the partitions soon
    session lost                                             as above; then the consumer registers and claims anew
    process slept                                            a stream asks whether the session lives, batch by batch

A commit checks that the session still lives. Source: Kafka 0.8.2's `ZookeeperConsumerConnector`, which releases all
partitions in each rebalance, gives up after four attempts, and reads offsets before it owns.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Mapping
from types import TracebackType

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import ClientClosed
from headrace.client.core.settings import Address, ClientSettings
from headrace.client.core.timing import Deadline, now_ms
from headrace.client.operations.admin import Admin
from headrace.client.zookeeper_consumer.group_offsets import OffsetStorage
from headrace.client.zookeeper_consumer.group_registry import (
    GroupRegistry,
    live_brokers,
    registration_of,
    security_protocol,
)
from headrace.client.zookeeper_consumer.rebalance import Owners, rebalance
from headrace.client.zookeeper_consumer.settings import RESETS, ConnectorSettings
from headrace.client.zookeeper_consumer.stream import Stream
from headrace.client.zookeeper_consumer.subscription import (
    STATIC,
    StreamSubscription,
    ThreadId,
    TopicFilter,
    check_group,
    make_consumer_id,
)
from headrace.client.zookeeper_consumer.zookeeper_session import NoNode, ZooKeeperSession
from headrace.errors import InvalidConfig, KafkaError
from headrace.types import Offset, TopicPartition

_log = logging.getLogger(__name__)


class ConsumerConnector:
    """One consumer of a group. `shutdown`, or `with`, hands its partitions to the others at once."""

    def __init__(
        self,
        zookeeper: str,
        group: str,
        settings: ConnectorSettings | None = None,
        client: ClientSettings | None = None,
    ) -> None:
        """Connects to ZooKeeper. Raises ZooKeeperUnavailable, InvalidConfig."""
        check_group(group)
        self.settings: ConnectorSettings = settings or ConnectorSettings()
        self.settings.check()
        self.group = group
        self.consumer_id: str = make_consumer_id(group, socket.gethostname(), now_ms(), uuid.uuid4().hex)
        self._client_settings = client or ClientSettings(client_id=group)
        self._subscription: StreamSubscription | None = None
        self._streams: dict[tuple[str, int], Stream] = {}  # with a filter, the topic is ""
        self._owned: Owners = {}
        self._uncertain: set[TopicPartition] = set()  # whose entries may be this consumer's
        self._delivered: set[TopicPartition] = set()
        self._losses = 0  # sessions that had ended when this consumer registered
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._rebalanced = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._next_commit = Deadline.after_ms(self.settings.auto_commit_interval_ms)
        self._cut_off: Deadline | None = None
        self._again: Deadline | None = None
        self._session = ZooKeeperSession(
            zookeeper,
            self._woken.set,
            guard=registration_of(group, self.consumer_id),
            session_timeout_ms=self.settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=self.settings.zookeeper_connection_timeout_ms,
        )
        self._registry = GroupRegistry(self._session, group, self.consumer_id)
        self._session.open()
        self._addresses: list[Address] = []
        self._cluster: Cluster | None = None
        self._offsets: OffsetStorage | None = None

    def __enter__(self) -> ConsumerConnector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._shut_down(is_finished=kind is None)

    # -- streams

    def create_message_streams(self, topic_counts: Mapping[str, int]) -> dict[str, list[Stream]]:
        """So many streams for each topic. Once per connector, as streams are handed out in a rebalance."""
        subscription = StreamSubscription.to_topics(topic_counts)
        streams = {topic: [self._stream(topic, n) for n in range(count)] for topic, count in topic_counts.items()}
        self._begin(subscription, {(topic, n): each for topic, some in streams.items() for n, each in enumerate(some)})
        return streams

    def create_message_streams_by_filter(self, topic_filter: TopicFilter, count: int = 1) -> list[Stream]:
        """So many streams, each over all topics that the filter allows, those to come as well."""
        subscription = StreamSubscription.to_filter(topic_filter, count)
        streams = [self._stream(repr(topic_filter), n) for n in range(count)]
        self._begin(subscription, {("", n): each for n, each in enumerate(streams)})
        return streams

    def _stream(self, of: str, number: int) -> Stream:
        name = f"{self.consumer_id}-{number} of {of}"
        return Stream(name, self._make_cluster, self.settings, lambda: self._session.is_certain)

    def _make_cluster(self) -> Cluster:
        return Cluster([str(address) for address in self._addresses], self._client_settings)

    def _begin(self, subscription: StreamSubscription, streams: dict[tuple[str, int], Stream]) -> None:
        with self._lock:
            if self._closed.is_set():
                raise ClientClosed("the connector is shut down")
            if self._subscription is not None:
                raise InvalidConfig("a connector creates its streams once: give all topics in one call")
            self._subscription, self._streams = subscription, streams
        self._woken.set()
        self._thread = threading.Thread(target=self._run, name=f"headrace-connector-{self.consumer_id}", daemon=True)
        self._thread.start()
        self._rebalanced.wait()

    def _stream_of(self, partition: TopicPartition, thread: ThreadId) -> Stream:
        assert self._subscription is not None
        topic = partition.topic if self._subscription.pattern == STATIC else ""
        return self._streams[topic, thread.number]

    # -- offsets

    def commit_offsets(self) -> None:
        """Commit what all streams have consumed, with the record that the calling thread has in hand.
        Raises KafkaError; NoNode if the session with ZooKeeper ended, since others may have the partitions."""
        self._finish_own()
        with self._lock:
            if self._closed.is_set():
                raise ClientClosed("the connector is shut down")
            if self._session.losses != self._losses:
                raise NoNode("the session with ZooKeeper ended: what was not committed is delivered again")
            self._commit()

    def _finish_own(self) -> None:
        for stream in self._streams.values():
            if stream.is_read_here:
                stream.finish()

    def _commit(self) -> None:
        offsets = {p: offset for stream in self._streams.values() for p, offset in stream.positions().items()}
        if self._offsets is not None and self._session.losses == self._losses:
            self._offsets.write(offsets)
        self._next_commit = Deadline.after_ms(self.settings.auto_commit_interval_ms)

    # -- the end

    def shutdown(self) -> None:
        """End the streams, commit (if auto-commit is on), and leave the group."""
        self._shut_down(is_finished=True)

    def _shut_down(self, *, is_finished: bool) -> None:
        if is_finished:
            self._finish_own()
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._woken.set()
            try:
                if self._session.is_connected and self._session.losses == self._losses:
                    self._revoke(set(self._delivered))
            except KafkaError as cause:
                _log.warning("group %s: the last offsets were not committed: %s", self.group, cause)
            for stream in self._streams.values():
                stream.close()
        if self._thread is not None:
            self._thread.join()
        self._session.close()
        if self._offsets is not None:
            self._offsets.close()
        if self._cluster is not None:
            self._cluster.close()

    # -- the connector's thread

    def _run(self) -> None:
        try:
            self._follow()
        finally:
            self._rebalanced.set()

    def _follow(self) -> None:
        while not self._closed.is_set():
            is_woken = self._woken.wait(self._idle_s())
            self._woken.clear()
            with self._lock:
                if self._closed.is_set():
                    return
                try:
                    self._step(is_woken)
                except KafkaError as cause:
                    _log.warning("group %s: %s; trying again", self.group, cause)
                    self._again = Deadline.after_ms(self.settings.rebalance_backoff_ms)
                except Exception:
                    _log.exception("group %s: the rebalance failed; trying again", self.group)
                    self._again = Deadline.after_ms(self.settings.rebalance_backoff_ms)
            self._rebalanced.set()

    def _idle_s(self) -> float:
        due = [self._next_commit] if self.settings.auto_commit_enable else []
        due += [each for each in (self._again, self._cut_off) if each is not None]
        return min((each.remaining_s for each in due), default=60.0)

    def _step(self, is_woken: bool) -> None:
        if self._session.losses != self._losses and self._delivered:
            self._lose_all("the session with ZooKeeper ended")
        if not self._session.is_connected:
            self._wait_for_connection()
            return
        self._cut_off = None
        if is_woken or (self._again is not None and self._again.expired):
            self._again = None
            self._rebalance()
        if self.settings.auto_commit_enable and self._next_commit.expired:
            self._next_commit = Deadline.after_ms(self.settings.auto_commit_interval_ms)
            self._commit()

    def _wait_for_connection(self) -> None:
        """A new connection wakes this thread."""
        self._again = None
        self._next_commit = Deadline.after_ms(self.settings.auto_commit_interval_ms)
        if not self._delivered:
            self._cut_off = None
        elif self._cut_off is None:
            self._cut_off = Deadline.after_ms(self.settings.zookeeper_session_timeout_ms / 3)
        elif self._cut_off.expired:
            self._lose_all("ZooKeeper is not reached")
            self._cut_off = None

    def _lose_all(self, why: str) -> None:
        """Deliver nothing more; others may own the partitions. What was not committed is delivered again."""
        _log.warning("group %s: %s; %d partitions are given up", self.group, why, len(self._delivered))
        for stream in self._streams.values():
            stream.revoke(self._delivered, Deadline.after_ms(0))
        self._delivered.clear()

    # -- the rebalance

    def _rebalance(self) -> None:
        assert self._subscription is not None
        if self._losses != self._session.losses:
            self._losses = self._session.losses
            self._owned.clear()
            self._uncertain.clear()
        self._use_brokers()
        seen = self._registry.read(exclude_internal=self.settings.exclude_internal_topics)
        if seen is None:
            self._registry.register(self._subscription, now_ms())
            seen = self._registry.read(exclude_internal=self.settings.exclude_internal_topics)
        if seen is None or self._cluster is None:
            self._again = Deadline.after_ms(self.settings.rebalance_backoff_ms)
            return
        plan = rebalance(self.consumer_id, seen, self._owned, self.settings.partition_assignment_strategy)
        self._revoke(plan.release.keys() | self._uncertain - plan.claim.keys())
        self._uncertain |= plan.claim.keys()
        claimed = self._registry.claim(plan.claim)
        self._owned |= claimed
        self._uncertain.clear()
        self._deliver()
        if waiting := len(plan.claim) - len(claimed):
            _log.info("group %s: %d partitions still have another owner", self.group, waiting)
            self._again = Deadline.after_ms(self.settings.rebalance_backoff_ms)

    def _use_brokers(self) -> None:
        addresses = live_brokers(self._session, security_protocol(self._client_settings))
        if not addresses or addresses == self._addresses:
            return
        self._addresses = addresses
        if self._cluster is None or self._offsets is None:
            self._cluster = self._make_cluster()
            self._offsets = OffsetStorage(self.group, self._registry, self._cluster, self.settings)
        self._cluster.bootstrap = addresses
        for stream in self._streams.values():
            stream.use_brokers(addresses)

    def _revoke(self, partitions: set[TopicPartition]) -> None:
        """Step 8, after the partitions are delivered no more and their offsets are committed."""
        if not partitions:
            return
        offsets: dict[TopicPartition, Offset] = {}
        deadline = Deadline.after_ms(self.settings.handover_timeout_ms)
        for stream in self._streams.values():
            stream.stop(partitions)
        for stream in self._streams.values():
            offsets |= stream.revoke(partitions, deadline)
        self._delivered -= partitions
        self._uncertain |= partitions
        for partition in partitions:
            self._owned.pop(partition, None)
        if self.settings.auto_commit_enable and self._offsets is not None:
            self._offsets.write(offsets)
        self._registry.release(partitions)
        self._uncertain -= partitions

    def _deliver(self) -> None:
        """Hand the owned partitions that are not delivered yet to their streams."""
        assert self._cluster is not None and self._offsets is not None
        new = [partition for partition in self._owned if partition not in self._delivered]
        if not new:
            return
        offsets = self._offsets.read(new)
        missing = [partition for partition in new if partition not in offsets]
        if missing:
            self._cluster.refresh({partition.topic for partition in missing})
            where = RESETS[self.settings.auto_offset_reset]
            found = Admin(self._cluster).list_offsets(dict.fromkeys(missing, where))
            offsets |= {partition: place.offset for partition, place in found.items()}
        by_stream: dict[Stream, dict[TopicPartition, Offset]] = {}
        for partition in new:
            stream = self._stream_of(partition, self._owned[partition])
            by_stream.setdefault(stream, {})[partition] = offsets[partition]
        for stream, granted in by_stream.items():
            stream.grant(granted)
        self._delivered |= set(new)
