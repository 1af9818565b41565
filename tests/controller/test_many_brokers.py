"""The controller's decisions for a cluster of several brokers: who is told what when brokers come, go and fail."""

import pytest

from headrace.controller import broker_channels
from headrace.controller.controller import Controller
from headrace.controller.decisions.topics import RequestedTopic, TopicDefaults, TopicOutcome
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import znodes
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.controller.paper_brokers import Cluster, create


async def test_a_new_topic_is_told_to_its_replicas_and_to_everybodys_metadata(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2), 1: (2, 3)})
    assert cluster.led(1) == ["t-0 1@0 [1, 2] [1, 2]"]
    assert cluster.led(2) == ["t-0 1@0 [1, 2] [1, 2]", "t-1 2@0 [2, 3] [2, 3]"]
    assert cluster.led(3) == ["t-1 2@0 [2, 3] [2, 3]"]
    for broker in (1, 2, 3):
        told = cluster.metadata(broker)
        assert [state.partition_index for state in told.topic_states[0].partition_states] == [0, 1]
        assert [(each.id, each.rack, each.endpoints[0].host) for each in told.live_brokers] == [
            (number, f"rack{number}", f"host{number}") for number in (1, 2, 3)
        ]
    first = cluster.told[2][0]
    assert isinstance(first, m.LeaderAndIsrRequest)
    assert all(state.is_new for topic in first.topic_states for state in topic.partition_states)
    assert {each.broker_id for each in first.live_leaders} == {1, 2}


async def test_racks_are_used_when_every_broker_has_one(cluster: Cluster) -> None:
    await cluster.controller.create_topics([RequestedTopic("t", 3, 3)])
    assert cluster.led(1) == [
        "t-0 1@0 [1, 2, 3] [1, 2, 3]",
        "t-1 2@0 [2, 3, 1] [2, 3, 1]",
        "t-2 3@0 [3, 1, 2] [3, 1, 2]",
    ]


async def test_when_a_leader_goes_the_next_in_sync_replica_leads_in_a_new_epoch(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1), 1: (1, 2, 3)})
    cluster.forget()
    await cluster.go(2)
    assert cluster.led(1) == ["t-0 3@1 [3, 1] [2, 3, 1]", "t-1 1@1 [1, 3] [1, 2, 3]"]
    assert cluster.led(3) == ["t-0 3@1 [3, 1] [2, 3, 1]", "t-1 1@1 [1, 3] [1, 2, 3]"]
    assert 2 not in cluster.told
    told = cluster.metadata(3)
    assert [each.id for each in told.live_brokers] == [1, 3]
    assert told.topic_states[0].partition_states[0].offline_replicas == [2]
    state = await cluster.store.get("/brokers/topics/t/partitions/0/state")
    assert znodes.decode_leadership(state.data, state.version, 0)[:3] == (3, 1, (3, 1)) and state.version == 1


async def test_a_partition_whose_last_in_sync_replica_goes_has_no_leader_until_it_is_back(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2,)})
    cluster.forget()
    await cluster.go(2)
    assert cluster.metadata(1).topic_states[0].partition_states[0].leader == -1
    cluster.forget()
    await cluster.come(2)
    assert cluster.led(2) == ["t-0 2@2 [2] [2]"]
    assert cluster.metadata(1).topic_states[0].partition_states[0].leader == 2


async def test_a_broker_that_comes_is_told_everything_and_the_others_that_it_came(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2), 1: (1, 3)})
    await cluster.go(3)
    cluster.forget()
    await cluster.come(3)
    assert cluster.led(3) == ["t-1 1@1 [1] [1, 3]"]
    assert len(cluster.metadata(3).topic_states[0].partition_states) == 2
    assert [each.id for each in cluster.metadata(1).live_brokers] == [1, 2, 3]
    assert cluster.led(1) == []


async def test_nobody_is_told_to_follow_a_broker_that_it_was_not_told_of(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (3, 1), 1: (3, 2)})
    await cluster.go(2)
    await cluster.go(3)
    cluster.forget()
    await cluster.come(3)  # leads again, elsewhere as far as 1 knows
    await cluster.come(2)
    for broker in (1, 2):
        alive: dict[int, int] = {}
        for request in cluster.told[broker]:
            if isinstance(request, m.UpdateMetadataRequest):
                alive = {each.id: each.endpoints[0].port for each in request.live_brokers}
                continue
            assert isinstance(request, m.LeaderAndIsrRequest)
            leaders = {state.leader for topic in request.topic_states for state in topic.partition_states}
            assert leaders <= alive.keys() | {-1}, request
    first, *_ = cluster.told[2]
    assert isinstance(first, m.UpdateMetadataRequest) and not first.topic_states


async def test_a_leader_that_restarted_unnoticed_leads_in_a_new_epoch(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    cluster.forget()
    await cluster.store.delete(znodes.broker(2))
    await cluster.come(2)
    assert cluster.led(2)[-1] in ("t-0 2@1 [2, 3] [2, 3]", "t-0 3@1 [3] [2, 3]")
    assert cluster.led(3)[-1] == cluster.led(2)[-1]


async def test_an_unclean_election_needs_the_topics_permission(cluster: Cluster) -> None:
    for name in ("safe", "unsafe"):
        await create(
            cluster, name, {0: (2, 3)}, **({"unclean_leader_election_enable": "true"} if name == "unsafe" else {})
        )
        node = await cluster.store.get(znodes.partition_state(name, 0))
        await cluster.store.set(znodes.partition_state(name, 0), node.data.replace(b"[2,3]", b"[2]"))
    await cluster.store.delete(znodes.CONTROLLER)  # the next epoch reads the ISR that was written beside the controller
    await cluster.settle()
    cluster.forget()
    await cluster.go(2)
    told = {topic.topic_name: topic.partition_states[0] for topic in cluster.metadata(3).topic_states}
    assert (told["safe"].leader, told["unsafe"].leader) == (-1, 3)
    led = next(each for each in cluster.told[3] if isinstance(each, m.LeaderAndIsrRequest))
    states = {topic.topic_name: topic.partition_states[0] for topic in led.topic_states}
    assert (states["unsafe"].leader_recovery_state, states["safe"].leader_recovery_state) == (1, 0)


async def test_an_isr_change_made_beside_the_controller_is_read_again(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    path = znodes.partition_state("t", 0)
    node = await cluster.store.get(path)
    await cluster.store.set(path, node.data.replace(b"[2,3,1]", b"[2,1]"))
    cluster.forget()
    await cluster.go(2)
    assert cluster.led(1)[-1] == "t-0 1@1 [1] [2, 3, 1]"


async def test_an_unreachable_broker_keeps_nobody_from_being_told_and_is_told_when_it_answers(
    cluster: Cluster,
) -> None:
    cluster.unreachable.add(2)
    wishes = [
        RequestedTopic(name, assignments={0: (BrokerId(first), BrokerId(3))}) for name, first in (("t", 2), ("u", 1))
    ]
    outcomes = await cluster.controller.create_topics(wishes, timeout_ms=100)
    late = outcomes["t"]
    assert isinstance(late, KafkaError) and late.code is ErrorCode.REQUEST_TIMED_OUT
    assert isinstance(outcomes["u"], TopicOutcome)
    assert cluster.led(3) == ["t-0 2@0 [2, 3] [2, 3]", "u-0 1@0 [1, 3] [1, 3]"]
    assert cluster.metadata(1).topic_states
    cluster.unreachable.clear()
    await cluster.settle()
    assert cluster.led(2) == ["t-0 2@0 [2, 3] [2, 3]"]
    updates = [each for each in cluster.told[2] if isinstance(each, m.UpdateMetadataRequest)]
    assert [topic.topic_name for each in updates for topic in each.topic_states] == ["t", "u"]


async def test_what_a_slow_broker_was_not_yet_told_is_told_once_as_it_is_by_then(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3), 1: (3, 2)})
    await cluster.settle()
    cluster.forget()
    cluster.unreachable.add(3)
    await cluster.controller.create_topics([RequestedTopic("u", 1, 1)], timeout_ms=0)
    await cluster.go(2)
    await cluster.come(2)
    cluster.unreachable.clear()
    await cluster.settle()
    assert cluster.led(3) == ["t-0 3@1 [3] [2, 3]", "t-1 3@1 [3] [3, 2]"]
    assert len([each for each in cluster.told[3] if isinstance(each, m.UpdateMetadataRequest)]) == 2


async def test_a_topic_is_deleted_for_good_when_its_last_replica_is_back(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    await cluster.go(2)
    cluster.forget()
    await cluster.controller.delete_topics(["t"])
    assert cluster.metadata(3).topic_states[0].partition_states[0].leader == -2
    assert await cluster.store.exists(znodes.topic("t")) is not None
    again = (await cluster.controller.create_topics([RequestedTopic("t")]))["t"]
    assert isinstance(again, KafkaError) and again.code is ErrorCode.TOPIC_ALREADY_EXISTS
    cluster.forget()
    await cluster.come(2)
    stopped = [each for each in cluster.told[2] if isinstance(each, m.StopReplicaRequest)]
    assert stopped and all(state.delete_partition for state in stopped[0].topic_states[0].partition_states)
    assert cluster.led(2) == []
    assert await cluster.store.exists(znodes.topic("t")) is None
    assert isinstance((await cluster.controller.create_topics([RequestedTopic("t")]))["t"], TopicOutcome)


async def test_a_broker_that_cannot_be_reached_keeps_the_topic_until_it_answers(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    cluster.unreachable.add(2)
    await cluster.controller.delete_topics(["t"], timeout_ms=100)
    assert await cluster.store.exists(znodes.delete_topic("t")) is not None
    cluster.unreachable.clear()
    await cluster.settle()
    assert await cluster.store.exists(znodes.topic("t")) is None


async def test_a_standby_takes_over_when_the_controller_goes(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    standby = Controller(
        cluster.store,
        BrokerId(2),
        send=cluster.send,
        configs=cluster.configs,
        now_ms=lambda: 0,
        defaults=TopicDefaults(1, 1),
    )
    await standby.start()
    assert (standby.is_active, standby.controller_id) == (False, 1)
    await cluster.controller.close()
    await cluster.store.delete(znodes.CONTROLLER)
    cluster.forget()
    while not standby.is_active:
        await cluster.store.exists("/")
    with pytest.raises(KafkaError):
        await cluster.controller.create_topics([RequestedTopic("u")])
    await standby.create_topics([RequestedTopic("u", 1, 3)])
    assert standby.epoch == 2
    assert "t-0 2@0 [2, 3] [2, 3]" in cluster.led(2)
    assert all(request.controller_epoch == 2 and request.controller_id == 2 for request in cluster.told[3])
    await standby.close()


async def test_what_is_sent_can_be_sent_over_the_wire_in_every_version_that_has_topics_grouped(
    cluster: Cluster,
) -> None:
    await create(cluster, "t", {0: (1, 2), 1: (2, 3)})
    await cluster.controller.delete_topics(["t"])
    oldest = {"LeaderAndIsrRequest": 2, "UpdateMetadataRequest": 5, "StopReplicaRequest": 3}
    kinds = set()
    for request in cluster.told[2]:
        kinds.add(type(request).__name__)
        for version in range(oldest[type(request).__name__], type(request).VERSIONS.stop):
            data = request.encode(version)
            back, end = type(request).decode(version, data)
            assert end == len(data)
            assert back.controller_epoch == request.controller_epoch
            if version == type(request).VERSIONS[-1]:
                assert back == request
    assert kinds == set(oldest)


async def test_many_leaders_are_sent_in_several_requests_before_the_metadata(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channels, "LEADERS_PER_REQUEST_MAX", 3)
    await create(cluster, "t", dict.fromkeys(range(7), (1, 2)))
    await create(cluster, "u", {0: (2, 3), 1: (2, 3)})
    await cluster.go(3)
    cluster.forget()
    await cluster.come(3)
    await cluster.go(2)
    cluster.forget()
    await cluster.come(2, directory="d2")
    assert sizes_led(cluster) == [[3], [3], [1], [2]]
    assert sorted(cluster.led(2)) == sorted(set(cluster.led(2)))
    kinds = [type(each) for each in cluster.told[2]]
    assert kinds.index(m.LeaderAndIsrRequest) + 3 < max(
        n for n, each in enumerate(kinds) if each is m.UpdateMetadataRequest
    )
    await cluster.go(2)
    cluster.forget()
    await cluster.come(2)
    assert sizes_led(cluster) == [[7, 2]], "Apache Kafka's broker would forget high watermarks"


def sizes_led(cluster: Cluster) -> list[list[int]]:
    """For each LeaderAndIsr that broker 2 got, how many partitions of each topic it has."""
    led = [each for each in cluster.told[2] if isinstance(each, m.LeaderAndIsrRequest)]
    return [[len(topic.partition_states) for topic in each.topic_states] for each in led]


async def test_a_replica_made_anew_has_its_metadata_behind_its_leader(cluster: Cluster) -> None:
    """Its deletion still waits for the broker: both go into the next batch."""
    await create(cluster, "t", {0: (1, 2), 1: (1, 2)})
    active = cluster.controller._candidate.active
    assert active is not None
    epoch, first, second = active.controller_epoch, TopicPartition("t", 0), TopicPartition("t", 1)
    cluster.forget()
    epoch.stop(first, [BrokerId(2)], delete=True)
    epoch.send([first, second])
    await cluster.settle()
    told = [
        (
            type(each).__name__,
            [state.partition_index for topic in each.topic_states for state in topic.partition_states],
        )
        for each in cluster.told[2]
    ]
    assert told == [
        ("UpdateMetadataRequest", []),
        ("StopReplicaRequest", [0]),
        ("LeaderAndIsrRequest", [0, 1]),
        ("UpdateMetadataRequest", [0, 1]),
    ]
