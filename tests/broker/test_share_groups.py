"""Share groups on brokers: heartbeats until partitions are assigned, and the administration of offsets."""

from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from tests.broker.replica_nodes import Node, Nodes, topic_id
from tests.eventually import eventually_async

GROUP, MEMBER = "queue", "member-1"
SETTINGS = {"share.coordinator.state.topic.min.isr": "1", "group.share.assignment.interval.ms": "0"}
Topics = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic


class Client:
    """A member of a share group, and its administrator."""

    def __init__(self, node: Node, member_id: str = MEMBER) -> None:
        self.node, self.member_id, self.epoch = node, member_id, 0
        self.assigned: dict[bytes, list[int]] = {}

    async def beat(self, *topics: str, epoch: int | None = None) -> m.ShareGroupHeartbeatResponse:
        """One heartbeat."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=list(topics) or None,
        )
        answer = await self.node.ask(request, m.ShareGroupHeartbeatResponse)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    async def join(self, *topics: str) -> None:
        """Heartbeats until partitions are assigned."""

        async def beats() -> bool:
            await self.beat(*topics)
            return bool(self.assigned)

        await eventually_async(beats)

    async def offsets(self, topic: str | None = None) -> dict[str, tuple[int, int, int]]:
        """(start offset, leader epoch, lag) of partition 0 of one topic, or of all with state."""
        topics = None if topic is None else [Topics(topic_name=topic, partitions=[0])]
        asked = m.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
        request = m.DescribeShareGroupOffsetsRequest(groups=[asked])
        (group,) = (await self.node.ask(request, m.DescribeShareGroupOffsetsResponse)).groups
        assert group.error_code == ErrorCode.NONE
        return {
            each.topic_name: (partition.start_offset, partition.leader_epoch, partition.lag)
            for each in group.topics
            for partition in each.partitions
        }

    async def alter(self, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
        """Sets a start offset. The error of the request, and of the partition."""
        asked = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
            partition_index=partition, start_offset=offset
        )
        listed = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic, partitions=[asked]
        )
        request = m.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[listed])
        answer = await self.node.ask(request, m.AlterShareGroupOffsetsResponse)
        found = [each.error_code for topic_answer in answer.responses for each in topic_answer.partitions]
        return answer.error_code, found[0] if found else 0

    async def delete_offsets(self, topic: str) -> tuple[int, int]:
        """Removes the state of a topic. The error of the request, and of the topic."""
        listed = m.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
        request = m.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[listed])
        answer = await self.node.ask(request, m.DeleteShareGroupOffsetsResponse)
        return answer.error_code, answer.responses[0].error_code if answer.responses else 0

    async def delete_group(self) -> int:
        """Deletes the group."""
        answer = await self.node.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), m.DeleteGroupsResponse)
        return answer.results[0].error_code

    async def describe(self) -> m.ShareGroupDescribeResponse.DescribedGroup:
        """Describes the group."""
        request = m.ShareGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
        return (await self.node.ask(request, m.ShareGroupDescribeResponse)).groups[0]


async def led(nodes: Nodes, groups: int = 1, states: int = 1) -> None:
    """Two topics, and internal topics whose leaders are given."""
    for topic in ("t", "u"):
        await nodes.lead(topic, leader=1, replicas=(1,))
    await nodes.lead(OFFSETS_TOPIC, leader=groups, replicas=nodes.numbers)
    await nodes.lead(SHARE_STATE_TOPIC, leader=states, replicas=nodes.numbers)


@pytest.mark.parametrize("states", [1, 2], ids=["own share coordinator", "other share coordinator"])
async def test_a_member_gets_partitions(tmp_path: Path, states: int) -> None:
    async with Nodes(tmp_path, 2, **SETTINGS) as nodes:
        await led(nodes, states=states)
        client = Client(nodes[1])
        await client.join("t")
        assert client.assigned == {topic_id("t"): [0]}
        assert nodes[states].share_state.coordinator.share_partitions == 1
        described = await client.describe()
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        assert described.authorized_operations > 0
        assert await client.offsets() == {"t": (-1, 0, -1)}
        listed = await nodes[1].ask(m.ListGroupsRequest(types_filter=["share"]), m.ListGroupsResponse)
        assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
            (GROUP, "share", "Stable")
        ]


async def test_the_next_group_coordinator_goes_on(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3, **SETTINGS) as nodes:
        await led(nodes, groups=2, states=3)
        client = Client(nodes[2])
        await client.join("t")
        nodes.crash(2)
        await nodes.lead(OFFSETS_TOPIC, leader=1, isr=(1, 3))
        client.node = nodes[1]

        async def is_known() -> bool:
            return (await client.beat()).error_code == ErrorCode.NONE

        await eventually_async(is_known)
        assert {each.member_id for each in (await client.describe()).members} == {MEMBER}
        assert await client.offsets() == {"t": (-1, 0, -1)}


async def test_offsets_are_administered(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, **SETTINGS) as nodes:
        await led(nodes, states=2)
        nodes[1].append("t", *"abcdefg")
        client = Client(nodes[1])
        assert await client.alter("t", 3) == (ErrorCode.NONE, ErrorCode.NONE)
        assert await client.offsets() == {"t": (3, 0, 4)}
        assert await client.alter("t", 3, partition=1) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await client.alter("x", 3) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await client.offsets("u") == {"u": (-1, 0, -1)}
        assert await client.offsets("x") == {"x": (-1, 0, -1)}
        await client.join("t")
        assert await client.alter("t", 4) == (ErrorCode.NON_EMPTY_GROUP, 0)
        assert await client.delete_offsets("t") == (ErrorCode.NON_EMPTY_GROUP, 0)
        assert await client.delete_group() == ErrorCode.NON_EMPTY_GROUP
        await client.beat(epoch=-1)
        assert await client.delete_offsets("u") == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await client.delete_offsets("t") == (ErrorCode.NONE, ErrorCode.NONE)
        assert await client.offsets() == {}
        assert nodes[2].share_state.coordinator.share_partitions == 0


async def test_a_group_is_deleted_with_its_state(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, **SETTINGS) as nodes:
        await led(nodes, states=2)
        client = Client(nodes[1])
        assert await client.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND
        await client.alter("t", 3)
        await client.alter("u", 0)
        coordinator = nodes[2].share_state.coordinator
        assert coordinator.share_partitions == 2
        assert await client.delete_group() == ErrorCode.NONE
        assert coordinator.share_partitions == 0
        assert (await client.describe()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await client.offsets() == {}


async def test_the_end_of_a_partition_is_asked_of_its_leader(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, **SETTINGS) as nodes:
        await led(nodes, groups=2, states=2)
        nodes[1].append("t", *"abcdefg")
        client = Client(nodes[2])
        assert await client.alter("t", 2) == (ErrorCode.NONE, ErrorCode.NONE)
        assert await client.offsets() == {"t": (2, 0, 5)}


async def test_without_the_feature_there_are_no_share_groups(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, **SETTINGS) as nodes:
        await led(nodes)
        nodes.features.finalized = {}
        client = Client(nodes[1])
        assert (await client.beat("t")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.describe()).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.alter("t", 0))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.delete_offsets("t"))[0] == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("member_id", ["", "m" * 37])
async def test_member_ids_have_a_length(tmp_path: Path, member_id: str) -> None:
    async with Nodes(tmp_path, 1, **SETTINGS) as nodes:
        await led(nodes)
        assert (await Client(nodes[1], member_id).beat("t")).error_code == ErrorCode.INVALID_REQUEST
