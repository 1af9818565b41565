"""Members of a share group, by requests that the tests write themselves, and the offsets of their group."""

from collections import Counter

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.records.format2.batch import decode_records, iter_headers
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster

PARTITIONS = 3
GROUP_TYPE, SHARE_TYPE = 0, 2
ACCEPT = 1
FETCH_VERSION, ACKNOWLEDGE_VERSION = 2, 2
Record = tuple[int, int]
"""Partition and offset."""


class Group:
    """One share group, by requests to its coordinator."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.cluster, self.topic, self.name = cluster, topic, f"{topic}-group"

    def coordinator(self, kind: int, key: str) -> m.FindCoordinatorResponse.Coordinator | None:
        """The coordinator, if a broker that is up knows one."""
        request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        for address in self.cluster.bootstrap.split(","):
            try:
                with Asker(address) as asker:
                    found: m.FindCoordinatorResponse.Coordinator = asker.ask(request, 6).coordinators[0]
            except OSError:
                continue
            if found.error_code == ErrorCode.NONE:
                return found
        return None

    def ask(self, request: Message, version: int) -> object:
        """The answer of the group's coordinator; None without one."""
        found = self.coordinator(GROUP_TYPE, self.name)
        if found is None:
            return None
        try:
            with Asker(f"{found.host}:{found.port}") as asker:
                return asker.ask(request, version)
        except OSError:
            return None

    def alter(self, start_offset: int) -> bool:
        """Sets the start offset of every partition; whether all are set."""
        kind = m.AlterShareGroupOffsetsRequest
        partitions = [
            kind.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start_offset)
            for number in range(PARTITIONS)
        ]
        topics = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=partitions)]
        answer = self.ask(kind(group_id=self.name, topics=topics), 0)
        return (
            isinstance(answer, m.AlterShareGroupOffsetsResponse)
            and [each.error_code for topic in answer.responses for each in topic.partitions]
            == [ErrorCode.NONE] * PARTITIONS
        )

    def offsets(self) -> dict[int, int]:
        """The start offsets by partition."""
        kind = m.DescribeShareGroupOffsetsRequest
        asked = kind.DescribeShareGroupOffsetsRequestGroup(group_id=self.name, topics=None)
        answer = self.ask(kind(groups=[asked]), 1)
        if not isinstance(answer, m.DescribeShareGroupOffsetsResponse):
            return {}
        return {
            each.partition_index: each.start_offset for topic in answer.groups[0].topics for each in topic.partitions
        }


class Member:
    """A member of a share group, which follows the leaders and accepts what it gets."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str, name: str) -> None:
        self._cluster, self._group, self._topic, self._name = cluster, group, topic, name
        self.values: Counter[str] = Counter()
        self.counts: Counter[Record] = Counter()
        """The highest delivery count of each record."""
        self.accepted: set[Record] = set()
        """Records whose acceptance was answered without an error."""
        self.again: list[Record] = []
        """Records that came after that."""

    def take(self, accepted_by_all: set[Record]) -> None:
        """Takes and accepts what each partition's leader has now."""
        for partition, address in self._leaders().items():
            try:
                with Asker(address) as asker:
                    self._take_from(asker, partition, accepted_by_all)
            except (OSError, ConnectionError):
                continue

    def _leaders(self) -> dict[int, str]:
        for address in self._cluster.bootstrap.split(","):
            try:
                with Asker(address) as asker:
                    wanted = m.MetadataRequest.MetadataRequestTopic(name=self._topic)
                    found = asker.ask(m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
            except OSError:
                continue
            brokers = {each.node_id: f"{each.host}:{each.port}" for each in found.brokers}
            self._id = found.topics[0].topic_id
            led = {each.partition_index: brokers.get(each.leader_id) for each in found.topics[0].partitions}
            return {partition: address for partition, address in led.items() if address is not None}
        return {}

    def _take_from(self, asker: Asker, partition: int, accepted_by_all: set[Record]) -> None:
        """One session: it fetches, and accepts."""
        wanted = m.ShareFetchRequest.FetchPartition(partition_index=partition)
        fetch = m.ShareFetchRequest(
            group_id=self._group,
            member_id=self._name,
            share_session_epoch=0,
            max_wait_ms=300,
            min_bytes=1,
            max_records=20,
            batch_size=20,
            topics=[m.ShareFetchRequest.FetchTopic(topic_id=self._id, partitions=[wanted])],
        )
        answer = asker.ask(fetch, FETCH_VERSION)
        for each in (each for topic in answer.responses for each in topic.partitions if each.acquired_records):
            offsets = [
                (offset, of.delivery_count)
                for of in each.acquired_records
                for offset in range(of.first_offset, of.last_offset + 1)
            ]
            values = _values(bytes(each.records))
            for offset, count in offsets:
                record = (partition, offset)
                if record in accepted_by_all:
                    self.again.append(record)
                self.counts[record] = max(self.counts[record], count)
                if offset in values:
                    self.values[values[offset]] += 1
            Acknowledged = m.ShareAcknowledgeRequest.AcknowledgementBatch
            batches = [
                Acknowledged(first_offset=of.first_offset, last_offset=of.last_offset, acknowledge_types=[ACCEPT])
                for of in each.acquired_records
            ]
            kind = m.ShareAcknowledgeRequest
            topic = kind.AcknowledgeTopic(
                topic_id=self._id,
                partitions=[kind.AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)],
            )
            request = kind(group_id=self._group, member_id=self._name, share_session_epoch=1, topics=[topic])
            done = asker.ask(request, ACKNOWLEDGE_VERSION)
            if not done.error_code and done.responses[0].partitions[0].error_code == ErrorCode.NONE:
                accepted = {(partition, offset) for offset, _ in offsets}
                self.accepted |= accepted
                accepted_by_all |= accepted


def _values(data: bytes) -> dict[int, str]:
    return {
        each.offset: (each.value or b"").decode()
        for position, header in iter_headers(data)
        for each in decode_records(data[position : position + header.size_bytes], header)
    }
