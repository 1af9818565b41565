"""Consumer groups of KIP-848 over the wire: members, their offsets, the lists of groups, and a broker that restarts."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.limits import SUBSCRIBED_TOPICS_MAX
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.test_group_apis import a_topic, commit, fetch, fetched
from tests.conftest import StartHeadrace
from tests.eventually import eventually

pytestmark = pytest.mark.slow  # processes of its own

GROUP = "new-group"
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "log.flush.interval.messages": "1",
}


def beat(member_id: str, epoch: int, group: str = GROUP, **more: Any) -> m.ConsumerGroupHeartbeatRequest:
    return m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **more)


def joining(member_id: str, topic: str, group: str = GROUP) -> m.ConsumerGroupHeartbeatRequest:
    return beat(member_id, 0, group, rebalance_timeout_ms=30_000, subscribed_topic_names=[topic], topic_partitions=[])


def test_members_live_commit_and_survive_the_broker(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    topic = a_topic(server.bootstrap)
    with Asker(server.bootstrap) as asker:
        asker.ask(m.FindCoordinatorRequest(key=GROUP), 0)
        joined = asker.ask(joining("one", topic), 1)
        assert (joined.error_code, joined.member_epoch) == (0, 2)
        (assigned,) = joined.assignment.topic_partitions
        assert assigned.partitions == [0]
        stale = asker.ask(commit(GROUP, topic, 9, "one"), 9)
        assert stale.topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
        assert asker.ask(commit(GROUP, topic, 2, "one"), 9).topics[0].partitions[0].error_code == 0
        named = fetch(GROUP, topic, 9)
        named.groups[0].member_id, named.groups[0].member_epoch = "one", 1
        assert asker.ask(named, 9).groups[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
        listed = asker.ask(m.ListGroupsRequest(types_filter=["Consumer"], states_filter=["stable"]), 5)
        assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
            (GROUP, "consumer", "Stable")
        ]
        assert asker.ask(m.ListGroupsRequest(types_filter=["classic"]), 5).groups == []
        (described,) = asker.ask(m.DescribeGroupsRequest(groups=[GROUP]), 6).groups
        assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        (denied,) = asker.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), 2).results
        assert denied.error_code == ErrorCode.NON_EMPTY_GROUP
    server.kill()
    again = headrace_server(server.data, settings=SETTINGS)
    with Asker(again.bootstrap) as asker:
        asker.ask(m.FindCoordinatorRequest(key=GROUP), 0)
        answer = asker.ask(beat("one", 2, topic_partitions=None), 1)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
        assert fetched(asker.ask(fetch(GROUP, topic, 9), 9))[0][:2] == (0, 1)
        (described,) = asker.ask(m.ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        assert [each.member_id for each in described.members] == ["one"]
        assert asker.ask(beat("one", -1), 1).error_code == 0
        (deleted,) = asker.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), 2).results
        assert deleted.error_code == 0
        missing = asker.ask(m.ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups[0]
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_has_time_outs_of_its_own(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    topic = a_topic(server.bootstrap)
    with Asker(server.bootstrap) as asker:
        change = m.IncrementalAlterConfigsRequest.AlterableConfig(
            name="consumer.heartbeat.interval.ms", config_operation=0, value="7000"
        )
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=32, resource_name=GROUP, configs=[change]
        )
        (altered,) = asker.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert altered.error_code == 0, altered
        asker.ask(m.FindCoordinatorRequest(key=GROUP), 0)
        eventually(
            lambda: asker.ask(joining("one", topic), 1).heartbeat_interval_ms == 7000, "the group's own interval"
        )
        other = asker.ask(
            beat("x", 0, "other", rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]), 1
        )
        assert other.heartbeat_interval_ms == 5000


def test_the_largest_subscription_and_report_do_not_stop_the_broker(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    topic = a_topic(server.bootstrap)
    with Asker(server.bootstrap) as asker:
        asker.ask(m.FindCoordinatorRequest(key=GROUP), 0)
        huge = joining("one", topic)
        huge.subscribed_topic_names = [f"a-topic-with-a-name-that-is-long-{number}" for number in range(49_000)]
        assert asker.ask(huge, 1).error_code == ErrorCode.INVALID_REQUEST
        huge.subscribed_topic_names = [topic, *huge.subscribed_topic_names[1:SUBSCRIBED_TOPICS_MAX]]
        assert asker.ask(huge, 1).error_code == 0
        assert asker.ask(joining("one", topic), 1).assignment.topic_partitions[0].partitions == [0]
        report = [m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=bytes(16), partitions=list(range(49_000)))]
        assert asker.ask(beat("one", 3, topic_partitions=report), 1).error_code == 0
