"""What operations decide from a view of the cluster alone: which partitions, in which order, and where to."""

import pytest

from headrace.client.core.metadata import ClusterView, PartitionInfo, TopicInfo
from headrace.client.core.settings import Address
from headrace.client.operations.moves import parse_plan, plan_drain, plan_on
from headrace.client.operations.placement import NoRoom
from headrace.client.operations.rolling_restart import command_for, restart_order
from headrace.client.operations.selection import NotThere, partitions_named
from headrace.errors import ErrorCode
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def info(number: int, *replicas: BrokerId) -> PartitionInfo:
    return PartitionInfo(number, replicas[0], LeaderEpoch(0), replicas, replicas, ())


VIEW = ClusterView(
    "cluster",
    ONE,
    {each: Address("localhost", 9090 + each) for each in (ONE, TWO, THREE)},
    {},
    {
        "a": TopicInfo("a", bytes(16), False, ErrorCode.NONE, (info(0, ONE, TWO), info(1, TWO, ONE))),
        "a:1": TopicInfo("a:1", bytes(16), False, ErrorCode.NONE, (info(0, THREE, TWO),)),
    },
)
A0, A1, ODD = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a:1", 0)


def test_the_controller_restarts_last() -> None:
    assert restart_order(VIEW) == [TWO, THREE, ONE]
    assert restart_order(VIEW, [1, 3]) == [THREE, ONE]
    with pytest.raises(NotThere, match="broker 7 does not exist; the brokers are: 1, 2, 3"):
        restart_order(VIEW, [1, 7])


def test_a_command_names_the_broker_and_its_address() -> None:
    assert command_for("ssh {host} 'restart {broker}' {port}", TWO, VIEW) == ["ssh", "localhost", "restart 2", "9092"]
    for wrong in ("{name}", "'open", "{}"):
        with pytest.raises(ValueError, match="only {broker}, {host} and {port}"):
            command_for(wrong, TWO, VIEW)


def test_a_topic_of_that_name_comes_before_a_partition_of_that_number() -> None:
    assert partitions_named(VIEW, ["a"]) == {A0, A1}
    assert partitions_named(VIEW, ["a:0", "a:1"]) == {A0, ODD}
    for wrong in ("b", "a:2", "a:x", ":"):
        with pytest.raises(NotThere, match=f"topic or partition {wrong} does not exist"):
            partitions_named(VIEW, [wrong])


def test_a_drained_broker_has_no_replica_in_the_plan() -> None:
    plan = plan_drain(VIEW, 2)
    assert plan.keys() == {A0, A1, ODD} and not any(TWO in replicas for replicas in plan.values())
    with pytest.raises(NotThere, match="broker 7 does not exist, and no partition has a replica on it"):
        plan_drain(VIEW, 7)


def test_a_plan_needs_brokers_that_are_there_and_enough_of_them() -> None:
    assert {each: set(replicas) for each, replicas in plan_on(VIEW, {TWO, THREE}, {A0}).items()} == {A0: {TWO, THREE}}
    with pytest.raises(NotThere):
        plan_on(VIEW, {BrokerId(9)}, {A0})
    with pytest.raises(NoRoom):
        plan_on(VIEW, {ONE}, {A0})


def test_a_plan_is_read_as_kafkas_tool_writes_it() -> None:
    text = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    assert parse_plan(text) == {A0: [3, 1]}
    for wrong in ("", "[]", '{"partitions":[{"topic":"t"}]}', '{"partitions":[{"topic":"t","partition":"x"}]}'):
        with pytest.raises(ValueError, match="expected"):
            parse_plan(wrong)
