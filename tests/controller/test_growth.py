"""Which partitions a topic may get, where their replicas go, and that they serve when the answer is there."""

from pathlib import Path

import pytest

from headrace.controller.decisions.add_partitions import NewPartitions, plan_growth
from headrace.controller.decisions.assignment import assign_replicas
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import znodes
from headrace.metadata.model import Broker, Replicas, Topic
from headrace.types import BrokerId
from tests.controller.node import Node


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def brokers(*numbers: int, racks: dict[int, str] | None = None) -> dict[BrokerId, Broker]:
    return {each: Broker(each, (), racks[each] if racks else None) for each in ids(*numbers)}


def topic(*replicas: tuple[BrokerId, ...]) -> dict[str, Topic]:
    return {"t": Topic("t", bytes(16), {number: Replicas(each) for number, each in enumerate(replicas)})}


FIVE = brokers(0, 1, 2, 3, 4)
TWO_OF_TWO = topic(ids(3, 1), ids(4, 2))


def test_new_partitions_go_on_where_the_topics_own_ended() -> None:
    for start in range(5):
        whole = assign_replicas(dict.fromkeys(FIVE), 23, 3, start_index=start)
        known = topic(*(whole[number] for number in range(8)))
        grown = plan_growth(NewPartitions("t", 23), known, (), FIVE)
        assert [each[0] for each in grown.values()] == [whole[number][0] for number in range(8, 23)]
        assert sorted(grown) == list(range(8, 23))
        assert all(len(set(each)) == 3 for each in grown.values())


def test_they_begin_at_the_next_broker_when_the_first_leader_is_gone() -> None:
    known = topic(ids(1))
    assert plan_growth(NewPartitions("t", 3), known, (), brokers(0, 2, 3)) == {1: ids(3), 2: ids(0)}
    assert plan_growth(NewPartitions("t", 3), topic(ids(9)), (), brokers(0, 2, 3)) == {1: ids(2), 2: ids(3)}


def test_racks_are_spread_over() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    known = topic(ids(0, 2), ids(2, 0))
    for replicas in plan_growth(NewPartitions("t", 12), known, (), brokers(*racks, racks=racks)).values():
        assert {racks[each] for each in replicas} == {"a", "b"}


def test_an_assignment_is_taken_as_it_is() -> None:
    wish = NewPartitions("t", 4, (ids(0, 1), ids(2, 0)))
    assert plan_growth(wish, TWO_OF_TWO, (), FIVE) == {2: ids(0, 1), 3: ids(2, 0)}


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewPartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 2_000_000_000), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, (ids(0, 1), ids(0, 1))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, (ids(0),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, (ids(0, 0),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, (ids(0, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_each_refusal_has_its_code(wish: NewPartitions, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_growth(wish, TWO_OF_TWO, (), FIVE)
    assert (caught.value.code, bool(caught.value.message)) == (code, True)


def test_a_topic_that_goes_or_moves_does_not_grow() -> None:
    with pytest.raises(KafkaError) as caught:
        plan_growth(NewPartitions("t", 3), TWO_OF_TWO, {"t"}, FIVE)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    moving = {"t": Topic("t", bytes(16), {0: Replicas(ids(0, 1), adding=ids(1))})}
    with pytest.raises(KafkaError) as caught:
        plan_growth(NewPartitions("t", 3), moving, (), FIVE)
    assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS


async def test_partitions_serve_when_the_answer_is_there_and_after_a_restart(tmp_path: Path) -> None:
    node = await Node.start(tmp_path)
    await node.controller.create_topics([RequestedTopic("t", 2)])
    before = node.metadata.topic("t")
    assert await node.controller.create_partitions([NewPartitions("t", 5)]) == {"t": None}
    grown = node.metadata.topic("t")
    assert before is not None and grown is not None
    assert (list(grown.partitions), grown.id) == ([0, 1, 2, 3, 4], before.id)
    for number in range(5):
        partition = node.replicas.leader("t", number)
        assert partition.log.topic_id == grown.id
        assert (tmp_path / f"t-{number}").is_dir()
    stored = znodes.decode_topic("t", (await node.store.get(znodes.topic("t"))).data)
    assert {number: each.replicas for number, each in stored.partitions.items()} == dict.fromkeys(range(5), (0,))
    await node.close()
    again = await Node.start(tmp_path)
    assert [again.replicas.leader("t", number).is_leader for number in range(5)] == [True] * 5
    await again.close()


async def test_validate_only_adds_nothing_and_one_refusal_does_not_stop_the_others(node: Node) -> None:
    await node.controller.create_topics([RequestedTopic("t"), RequestedTopic("u")])
    assert await node.controller.create_partitions([NewPartitions("t", 3)], validate_only=True) == {"t": None}
    wishes = [NewPartitions("nope", 3), NewPartitions("t", 1), NewPartitions("u", 2)]
    outcomes = await node.controller.create_partitions(wishes)
    assert [each.code if each else None for each in outcomes.values()] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
        None,
    ]
    for name, count in (("t", 1), ("u", 2)):
        found = node.metadata.topic(name)
        assert found is not None and len(found.partitions) == count


async def test_a_grown_topic_is_deleted_whole(node: Node, tmp_path: Path) -> None:
    await node.controller.create_topics([RequestedTopic("t")])
    await node.controller.create_partitions([NewPartitions("t", 3)])
    await node.controller.delete_topics(["t"])
    assert await node.store.exists(znodes.topic("t")) is None
    assert await node.store.children(znodes.TOPICS) == []
    assert not [path.name for path in tmp_path.glob("t-?")]
