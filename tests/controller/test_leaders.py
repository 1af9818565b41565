"""ISRs, elections that are asked for, stops and failing disks, from the request to what brokers are told."""

from dataclasses import replace

import pytest

from headrace.controller.controller import Controller, LeaderRebalancing
from headrace.controller.decisions.leader_election import ElectionKind
from headrace.controller.decisions.topics import RequestedTopic, TopicDefaults
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import admin_nodes, znodes
from headrace.metadata.registry import register_broker
from headrace.metastore.store import SessionState
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.controller.paper_brokers import Cluster, create, registration

T = TopicPartition("t", 0)


async def epoch_of(cluster: Cluster, broker: int) -> int:
    return (await cluster.store.get(znodes.broker(broker))).czxid


async def alter(cluster: Cluster, leader: int, *isr: int, topic: str = "t", **told: int) -> m.AlterPartitionResponse:
    """The answer to a leader that asks for an ISR; `told` is laid over what it knows."""
    state = await cluster.state(topic)
    partition = m.AlterPartitionRequest.PartitionData(
        partition_index=0,
        leader_epoch=told.get("leader_epoch", state.leader_epoch),
        partition_epoch=told.get("partition_epoch", state.partition_epoch),
        leader_recovery_state=told.get("recovery", 0),
        new_isr_with_epochs=[
            m.AlterPartitionRequest.BrokerState(
                broker_id=each, broker_epoch=told.get(f"epoch_{each}", await epoch_of(cluster, each))
            )
            for each in isr
        ],
    )
    request = m.AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=told.get("broker_epoch", await epoch_of(cluster, leader)),
        topics=[m.AlterPartitionRequest.TopicData(topic_name=topic, partitions=[partition])],
    )
    return await cluster.controller.alter_partition(request)


def only(answer: m.AlterPartitionResponse) -> m.AlterPartitionResponse.PartitionData:
    ((partition,),) = (topic.partitions for topic in answer.topics)
    return partition


async def test_a_leaders_isr_is_written_answered_and_in_everybodys_metadata(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    cluster.forget()
    told = only(await alter(cluster, 2, 2, 3))
    assert (told.error_code, told.leader_id, told.isr, told.leader_epoch, told.partition_epoch) == (0, 2, [2, 3], 0, 1)
    assert (await cluster.state("t")).isr == (2, 3)
    await cluster.settle()
    assert cluster.metadata(1).topic_states[0].partition_states[0].isr == [2, 3]
    assert cluster.led(2) == []
    again = only(await alter(cluster, 2, 2, 3, 1))
    assert (again.error_code, again.isr, again.partition_epoch) == (0, [2, 3, 1], 2)


async def test_a_question_that_is_asked_twice_is_granted_once(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    assert only(await alter(cluster, 2, 2, 3)).partition_epoch == 1
    assert only(await alter(cluster, 2, 2, 3, partition_epoch=0)).partition_epoch == 1
    assert (await cluster.state("t")).partition_epoch == 1


@pytest.mark.parametrize(
    ("leader", "isr", "told", "error"),
    [
        (2, (2, 3), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (2, (2, 3), {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        (2, (2, 3), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        (2, (2, 3), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (3, (3, 2), {}, ErrorCode.INVALID_REQUEST),
        (2, (3, 1), {}, ErrorCode.INVALID_REQUEST),
        (2, (2, 3), {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        (2, (2, 3), {"epoch_3": 1}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
async def test_what_a_leader_cannot_have(
    cluster: Cluster, leader: int, isr: tuple[int, ...], told: dict[str, int], error: ErrorCode
) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    assert only(await alter(cluster, leader, *isr, topic="t", **told)).error_code == error
    assert (await cluster.state("t")).partition_epoch == 0


async def test_a_request_of_an_earlier_registration_is_refused_whole(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    assert (await alter(cluster, 2, 2, broker_epoch=1)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_topic_is_found_by_its_id(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    topic = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("t"))).data)
    partition = m.AlterPartitionRequest.PartitionData(partition_index=0, leader_epoch=0, new_isr=[2], partition_epoch=0)
    request = m.AlterPartitionRequest(
        broker_id=2,
        broker_epoch=await epoch_of(cluster, 2),
        topics=[
            m.AlterPartitionRequest.TopicData(topic_name="", topic_id=each, partitions=[partition])
            for each in (topic.id, b"?" * 16)
        ],
    )
    answer = await cluster.controller.alter_partition(request)
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_broker_that_came_back_from_a_crash_leaves_every_isr_that_has_others(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await create(cluster, "alone", {0: (2,)})
    cluster.forget()
    await cluster.store.delete(znodes.broker(2))
    crashed = registration(2)._replace(is_clean=False, directory="d")
    await register_broker(cluster.store, crashed, 0)
    await cluster.settle()
    state, alone = await cluster.state("t"), await cluster.state("alone")
    assert (state.leader, state.isr) == (3, (3,))
    assert (alone.leader, alone.isr) == (2, (2,)) and alone.leader_epoch > 0
    assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.NONE


async def test_a_broker_that_stops_leads_nothing_and_is_in_no_isr_when_others_are(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    await create(cluster, "u", {0: (3, 2)})
    await create(cluster, "alone", {0: (2,)})
    cluster.forget()
    left = await cluster.controller.controlled_shutdown(BrokerId(2), await epoch_of(cluster, 2))
    assert left == []
    await cluster.settle()
    t, u, alone = [await cluster.state(name) for name in ("t", "u", "alone")]
    assert [(each.leader, each.isr) for each in (t, u, alone)] == [(3, (3, 1)), (3, (3,)), (2, (2,))]
    assert cluster.stopped(2) == ["u-0"]
    assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    await cluster.go(2)
    await cluster.come(2)
    assert only(await alter(cluster, 3, 3, 1, 2)).error_code == ErrorCode.NONE


async def test_what_nobody_can_take_over_remains(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await alter(cluster, 2, 2)
    assert await cluster.controller.controlled_shutdown(BrokerId(2), -1) == [T]
    await alter(cluster, 2, 2, 3)
    assert await cluster.controller.controlled_shutdown(BrokerId(2), -1) == []


async def test_a_stop_of_nobody_or_of_an_earlier_life_is_refused(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as unknown:
        await cluster.controller.controlled_shutdown(BrokerId(9), -1)
    assert unknown.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    with pytest.raises(KafkaError) as stale:
        await cluster.controller.controlled_shutdown(BrokerId(2), 1)
    assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_producer_ids_are_given_in_blocks_to_brokers_that_are_registered_so(cluster: Cluster) -> None:
    blocks = [await cluster.controller.allocate_producer_ids(BrokerId(n), await epoch_of(cluster, n)) for n in (2, 3)]
    assert [(each.broker_id, each.first, each.last) for each in blocks] == [(2, 0, 999), (3, 1000, 1999)]
    assert znodes.decode_producer_ids((await cluster.store.get(znodes.PRODUCER_ID_BLOCK)).data) == blocks[1]
    for broker, epoch in ((2, 1), (9, 1)):
        with pytest.raises(KafkaError) as refused:
            await cluster.controller.allocate_producer_ids(BrokerId(broker), epoch)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_preferred_leaders_are_elected_where_asked_and_possible(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3), 1: (2, 3), 2: (1, 3)})
    await cluster.go(2)
    await cluster.come(2)
    partitions = [TopicPartition("t", number) for number in (0, 2, 7)]
    outcomes = await cluster.controller.elect_leaders(partitions, ElectionKind.PREFERRED)
    assert [error.code if error else None for error in outcomes.values()] == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.NONE
    outcomes = await cluster.controller.elect_leaders(None, ElectionKind.PREFERRED)
    assert {partition.partition: error is None for partition, error in outcomes.items()} == {
        0: True,
        1: False,
        2: False,
    }
    assert cluster.led(2)[-1] == "t-0 2@2 [3, 2] [2, 3]"


async def test_an_unclean_election_is_made_when_asked_for(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await alter(cluster, 2, 2)
    await cluster.go(2)
    assert (await cluster.state("t")).leader == -1
    assert await cluster.controller.elect_leaders([T], ElectionKind.UNCLEAN) == {T: None}
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.is_recovering) == (3, (3,), True)
    again = (await cluster.controller.elect_leaders([T], ElectionKind.UNCLEAN))[T]
    assert again is not None and again.code is ErrorCode.ELECTION_NOT_NEEDED


async def test_a_topic_that_may_lose_records_by_now_gets_a_leader(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await alter(cluster, 2, 2)
    await cluster.go(2)
    await cluster.configs.alter("t", {"unclean.leader.election.enable": "true"})

    async def is_led() -> bool:
        return (await cluster.state("t")).leader == 3

    await cluster.until(is_led)
    assert cluster.metadata(1).topic_states[0].partition_states[0].leader == 3


async def test_topics_that_may_lose_records_by_a_new_default_get_leaders(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await create(cluster, "safe", {0: (2, 3)}, unclean_leader_election_enable="false")
    for name in ("t", "safe"):
        node = await cluster.store.get(znodes.partition_state(name, 0))
        await cluster.store.set(znodes.partition_state(name, 0), node.data.replace(b"[2,3]", b"[2]"))
    await cluster.store.delete(znodes.CONTROLLER)  # a new epoch reads the ISR that was written beside the controller
    await cluster.settle()
    await cluster.go(2)
    assert ((await cluster.state("t")).leader, (await cluster.state("safe")).leader) == (-1, -1)
    cluster.configs.set_defaults(replace(cluster.configs.defaults, unclean_leader_election_enable=True))

    async def is_led() -> bool:
        return (await cluster.state("t")).leader == 3

    await cluster.until(is_led)
    assert (await cluster.state("safe")).leader == -1
    await cluster.configs.close()


async def test_leaders_go_back_by_themselves_when_too_many_are_elsewhere(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3), 1: (2, 3)})
    await cluster.go(2)
    await cluster.come(2)
    await cluster.controller.close()
    await cluster.store.delete(znodes.CONTROLLER)
    node = await cluster.store.get(znodes.partition_state("t", 0))
    await cluster.store.set(znodes.partition_state("t", 0), node.data.replace(b"[3]", b"[3,2]"))

    async def has_gone_back() -> bool:
        return (await cluster.state("t", 0)).leader == 2

    cluster.controller = Controller(
        cluster.store,
        BrokerId(1),
        send=cluster.send,
        configs=cluster.configs,
        now_ms=lambda: 0,
        defaults=TopicDefaults(),
        rebalancing=LeaderRebalancing(first_s=0.01, interval_s=0.01),
    )
    await cluster.controller.start()
    await cluster.until(has_gone_back)
    assert (await cluster.state("t", 1)).leader == 3


async def test_a_log_directory_that_failed_costs_its_replicas_leader_and_isr(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3), 1: (2, 3)})
    cluster.forget()
    cluster.failed[2] = {T}
    event = admin_nodes.encode_log_dir_event(BrokerId(2))
    await cluster.store.create(f"{admin_nodes.LOG_DIR_EVENTS}/log_dir_event_", event, sequential=True)

    async def has_moved() -> bool:
        return (await cluster.state("t")).leader == 3

    await cluster.until(has_moved)
    state, other = await cluster.state("t"), await cluster.state("t", 1)
    assert (state.isr, other.leader, other.isr) == ((3,), 2, (2, 3))
    assert cluster.metadata(1).topic_states[0].partition_states[0].offline_replicas == [2]
    assert await cluster.store.children(admin_nodes.LOG_DIR_EVENTS) == []
    assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.failed.clear()
    await cluster.go(2)
    await cluster.come(2)
    assert only(await alter(cluster, 3, 3, 2)).error_code == ErrorCode.NONE


async def test_isrs_that_leaders_of_old_versions_wrote_are_taken_over(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3, 1)})
    path = znodes.partition_state("t", 0)
    node = await cluster.store.get(path)
    await cluster.store.set(path, node.data.replace(b"[2,3,1]", b"[2,1]"))
    cluster.forget()
    change = f"{admin_nodes.ISR_CHANGES}/isr_change_"
    changed = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    await cluster.store.create(change, changed, sequential=True)

    async def is_taken() -> bool:
        return not await cluster.store.children(admin_nodes.ISR_CHANGES)

    await cluster.until(is_taken)
    assert cluster.metadata(3).topic_states[0].partition_states[0].isr == [2, 1]


async def test_a_lost_session_ends_the_term_at_once_and_what_waited_is_not_said(cluster: Cluster) -> None:
    cluster.unreachable.add(2)
    await create(cluster, "u", {0: (1, 2)})
    cluster.controller._candidate._on_session(SessionState.LOST)
    assert not cluster.controller.is_active
    cluster.unreachable.clear()
    with pytest.raises(KafkaError) as refused:
        await cluster.controller.create_topics([RequestedTopic("v")])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.led(2) == []
    await cluster.store.delete(znodes.CONTROLLER)

    async def is_back() -> bool:
        return cluster.controller.is_active

    await cluster.until(is_back)
    assert cluster.controller.epoch == 2
    await cluster.settle()
    assert cluster.led(2) == ["u-0 1@0 [1, 2] [1, 2]"]


@pytest.mark.parametrize(("default_of_leader", "eligible"), [(2, (3,)), (1, ())])
async def test_nobody_is_eligible_where_the_leader_goes_by_a_smaller_default(
    cluster: Cluster, default_of_leader: int, eligible: tuple[int, ...]
) -> None:
    """As while a new default is rolled out: broker 2 commits alone then, and 3 misses what it committed."""
    cluster.configs.set_defaults(replace(cluster.configs.defaults, min_insync_replicas=2))  # those of the controller
    for number, default in ((1, 2), (2, default_of_leader), (3, 2)):
        await cluster.go(number)
        ours = registration(number)._replace(directory=f"d{number}", min_insync_replicas=default)
        await register_broker(cluster.store, ours, 0)
    await cluster.settle()
    await create(cluster, "t", {0: (2, 3)})
    await cluster.go(3)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.eligible) == (2, (2,), eligible)
