"""A member of a share group that speaks to a node in raw requests: its session, its fetches, its acknowledgements."""

from collections.abc import Sequence
from typing import Any

from headrace.coordinators.share_state.persister import InitialState, TopicIdPartition
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import decode_records, iter_headers
from tests.broker.replica_nodes import Connection, Node, topic_id

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP = "g"


async def begin_group(
    node: Node, topic: str = "t", *, group: str = GROUP, start_offset: int = 0, epoch: int = 0
) -> None:
    """Initializes the share partition, as the group coordinator does when a member subscribes."""
    at = TopicIdPartition(topic_id(topic), 0)
    done = await node.share_state.persister.initialize(group, {at: InitialState(epoch, start_offset)})
    assert done[at].error is ErrorCode.NONE, done


class Member:
    """One member, with its share session on one node."""

    def __init__(self, node: Node, name: str = "a", topic: str = "t", *, group: str = GROUP) -> None:
        self.name, self.group, self.id = name, group, topic_id(topic)
        self.epoch = 0
        self._connection: Connection = node.connection()

    async def request(
        self,
        *acknowledged: tuple[int, int, Sequence[int]],
        partition: int = 0,
        version: int = 2,
        **fields: Any,
    ) -> m.ShareFetchResponse:
        """A ShareFetch; the session's epoch grows if it succeeds."""
        batches = [
            m.ShareFetchRequest.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(types))
            for a, b, types in acknowledged
        ]
        wanted = m.ShareFetchRequest.FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        request = m.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[m.ShareFetchRequest.FetchTopic(topic_id=self.id, partitions=[wanted])],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self._connection.ask(request, m.ShareFetchResponse, version)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def fetch(self, *acknowledged: tuple[int, int, Sequence[int]], **fields: Any) -> list[tuple[int, int, int]]:
        """What the member acquires: first and last offsets, and delivery counts."""
        answer = await self.request(*acknowledged, **fields)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return acquired(answer)

    async def opened(self, **fields: Any) -> list[tuple[int, int, int]]:
        """Opens the session, and waits until the share partition is loaded."""
        return await self.fetch(**{"max_wait_ms": 5000, **fields})

    async def acknowledge(
        self, *acknowledged: tuple[int, int, Sequence[int]], version: int = 2, **fields: Any
    ) -> tuple[str, str | None]:
        """A ShareAcknowledge of the partition; its error and message, of the whole if that has one."""
        batches = [
            m.ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=list(types))
            for a, b, types in acknowledged
        ]
        wanted = m.ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = m.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch,
            topics=[m.ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.id, partitions=[wanted])],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self._connection.ask(request, m.ShareAcknowledgeResponse, version)
        if answer.error_code:
            return ErrorCode(answer.error_code).name, None
        self.epoch += 1
        found = answer.responses[0].partitions[0]
        return ErrorCode(found.error_code).name, found.error_message


def acquired(answer: m.ShareFetchResponse) -> list[tuple[int, int, int]]:
    """The acquired records of all partitions."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def values(answer: m.ShareFetchResponse) -> list[str]:
    """The values of all records in the answer, acquired or not."""
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            data = bytes(partition.records or b"")
            for position, header in iter_headers(data):
                batch = data[position : position + header.size_bytes]
                found += [(each.value or b"").decode() for each in decode_records(batch, header)]
    return found


def error_of(answer: m.ShareFetchResponse) -> str:
    """The fetch error of the only partition."""
    return ErrorCode(answer.responses[0].partitions[0].error_code).name


def acknowledge_error_of(answer: m.ShareFetchResponse) -> tuple[str, str | None]:
    """The acknowledge error and message of the only partition."""
    found = answer.responses[0].partitions[0]
    return ErrorCode(found.acknowledge_error_code).name, found.acknowledge_error_message
