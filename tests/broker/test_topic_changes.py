"""Partitions are added and settings changed as Apache Kafka does it: each test is asked of both."""

import pytest

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    add_partitions,
    alter,
    alter_many,
    broker_id,
    create_topic,
    own_settings,
    partition_count,
    replace,
    settled,
    start_offsets,
)
from tests.conftest import StartHeadrace
from tests.wire import Wire, batch

DONE = ("NONE", None)


# CreatePartitions


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(asker: Asker, version: int) -> None:
    name, leader = create_topic(asker, 2), broker_id(asker)
    assert add_partitions(asker, name, 4, version=version) == DONE
    assert add_partitions(asker, name, 5, [[leader]], version=version) == DONE
    assert settled(lambda: partition_count(asker, name), lambda count: count == 5) == 5
    found = settled(lambda: start_offsets(asker, name, range(5)), lambda found: -1 not in found.values())
    assert found == dict.fromkeys(range(5), 0)


def test_growth_is_refused_with_reasons(asker: Asker) -> None:
    name, leader = create_topic(asker, 6), broker_id(asker)
    shrinks = f"The topic {name} currently has 6 partition(s); {{}} would not be an increase."
    too_few = "Attempted to add {} additional partition(s), but only {} assignment(s) were specified."
    nobody = "The manual partition assignment includes broker {}, but no such broker is registered."
    for count, assignments, code, message in (
        (6, None, "INVALID_PARTITIONS", "Topic already has 6 partition(s)."),
        (5, None, "INVALID_PARTITIONS", shrinks.format(5)),
        (0, None, "INVALID_PARTITIONS", shrinks.format(0)),
        (-1, None, "INVALID_PARTITIONS", shrinks.format(-1)),
        (8, [[leader]], "INVALID_REPLICA_ASSIGNMENT", too_few.format(2, 1)),
        (7, [[leader], [leader]], "INVALID_REPLICA_ASSIGNMENT", too_few.format(1, 2)),
        (7, [], "INVALID_REPLICA_ASSIGNMENT", too_few.format(1, 0)),
        (7, [[99]], "INVALID_REPLICA_ASSIGNMENT", nobody.format(99)),
        (7, [[leader, 99]], "INVALID_REPLICA_ASSIGNMENT", nobody.format(99)),
        (7, [[-1]], "INVALID_REPLICA_ASSIGNMENT", nobody.format(-1)),
        (
            7,
            [[leader, leader]],
            "INVALID_REPLICA_ASSIGNMENT",
            f"The manual partition assignment includes the broker {leader} more than once.",
        ),
        (
            8,
            [[leader], []],
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes an empty replica list.",
        ),
    ):
        assert add_partitions(asker, name, count, assignments) == (code, message)
    assert add_partitions(asker, "no-such-topic", 3)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert add_partitions(asker, "", 3)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert add_partitions(asker, name, 7, validate_only=True) == DONE
    assert partition_count(asker, name) == 6


def test_a_topic_named_twice_does_not_grow_and_the_others_do(asker: Asker) -> None:
    twice, once = create_topic(asker), create_topic(asker)
    wish = m.CreatePartitionsRequest.CreatePartitionsTopic
    topics = [wish(name=name, count=count, assignments=None) for name, count in ((twice, 2), (once, 2), (twice, 3))]
    results = asker.ask(m.CreatePartitionsRequest(topics=topics, timeout_ms=10_000), 3).results
    told = {each.name: (each.error_code, each.error_message) for each in results}
    assert (len(results), told) == (2, {twice: (42, "Duplicate topic name."), once: (0, None)})
    assert settled(lambda: partition_count(asker, once), lambda count: count == 2) == 2
    assert partition_count(asker, twice) == 1


def test_new_partitions_take_records_and_survive_a_kill(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        name = create_topic(asker)
        assert add_partitions(asker, name, 3) == DONE
    with Wire(server.bootstrap) as wire:
        assert wire.produce(name, batch([b"new"]), partition=2) == (0, 0)
    server.kill()
    server.restart()
    with Wire(server.bootstrap) as wire:
        assert b"new" in wire.fetch(name, 0, partition=2).records


# Settings


def test_settings_are_set_and_taken_back_one_by_one(asker: Asker) -> None:
    name = create_topic(asker, settings={"retention.ms": "1000"})
    for version in (0, 1):
        value = str(5000 + version)
        assert alter(asker, name, ("segment.ms", SET, value), version=version) == DONE
        after = {"retention.ms": "1000", "segment.ms": value}
        assert settled(lambda: own_settings(asker, name), lambda own, after=after: own == after) == after  # type: ignore[misc]
    changes = [("retention.ms", DELETE, None), ("retention.bytes", DELETE, "1"), ("no.such", DELETE, None)]
    assert alter(asker, name, *changes) == DONE
    assert alter(asker, name) == DONE
    assert settled(lambda: own_settings(asker, name), lambda own: len(own) == 1) == {"segment.ms": "5001"}


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("delete,compact", APPEND, "compact", "delete,compact"),
        ("delete,compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "compact", ""),
        ("", APPEND, "delete,compact", "delete,compact"),
        ("delete", SET, "", ""),
    ],
)
def test_a_list_is_appended_to_and_subtracted_from(
    asker: Asker, before: str | None, operation: int, value: str, after: str
) -> None:
    name = create_topic(asker, settings={} if before is None else {"cleanup.policy": before})
    assert alter(asker, name, ("cleanup.policy", operation, value)) == DONE
    found = settled(lambda: own_settings(asker, name).get("cleanup.policy"), lambda own: own == after)
    assert found == after


def test_a_bad_change_is_refused_whole(asker: Asker) -> None:
    name = create_topic(asker, settings={"retention.ms": "1000"})
    for changes, code, message in (
        ([("retention.ms", SET, "x")], "INVALID_CONFIG", ""),
        ([("retention.ms", SET, "-2")], "INVALID_CONFIG", ""),
        ([("retention.ms", SET, "5"), ("no.such", SET, "1")], "INVALID_CONFIG", ""),
        ([("cleanup.policy", APPEND, "bogus")], "INVALID_CONFIG", ""),
        (
            [("retention.ms", APPEND, "5")],
            "INVALID_CONFIG",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", SUBTRACT, "5")],
            "INVALID_CONFIG",
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        ([("retention.ms", SET, None)], "INVALID_REQUEST", "Null value not supported for : retention.ms"),
        ([("cleanup.policy", APPEND, None)], "INVALID_REQUEST", "Null value not supported for : cleanup.policy"),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            "INVALID_REQUEST",
            "Error due to duplicate config keys",
        ),
    ):
        told = alter(asker, name, *changes)
        assert told == (code, message or told[1]), changes
        assert told[1]
    assert own_settings(asker, name) == {"retention.ms": "1000"}


def test_each_resource_has_its_own_answer(asker: Asker) -> None:
    name = create_topic(asker)
    change = [("retention.ms", SET, "78")]
    answers = alter_many(asker, [(TOPIC, name, change), (TOPIC, "missing", change), (TOPIC, "", change)])
    assert answers == [
        DONE,
        ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'missing' does not exist."),
        ("INVALID_REQUEST", "Default topic resources are not allowed."),
    ]
    assert settled(lambda: own_settings(asker, name), bool) == {"retention.ms": "78"}
    for kind in (0, 1, 3, 77):
        assert alter(asker, "x", kind=kind) == ("INVALID_REQUEST", f"Unknown resource type {kind}")
    twice = alter_many(asker, [(TOPIC, name, change), (TOPIC, name, [("retention.bytes", SET, "5")])])
    assert twice == [("INVALID_REQUEST", "Each resource must appear at most once.")] * 2
    assert alter_many(asker, [(TOPIC, name, [("retention.ms", SET, "79")])], validate_only=True) == [DONE]
    assert own_settings(asker, name) == {"retention.ms": "78"}


def test_a_broker_says_why_it_does_not_change(asker: Asker) -> None:
    own = broker_id(asker)
    static = "Cannot update these configs dynamically: [num.partitions]"
    for name, message in (
        (str(own), static),
        ("", static),
        ("99", f"Unexpected broker id, expected {own}, but received 99"),
        ("x", "Node id must be an integer, but it is: x"),
    ):
        for told in (
            alter(asker, name, ("num.partitions", SET, "7"), kind=BROKER),
            replace(asker, name, [("num.partitions", "7")], kind=BROKER),
        ):
            assert told[0] == "INVALID_REQUEST"
            assert told[1] is not None and told[1].startswith(message)


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced_by_those_that_are_named(asker: Asker, version: int) -> None:
    name = create_topic(asker, settings={"retention.ms": "1000", "segment.ms": "7000"})
    assert replace(asker, name, [("retention.bytes", "5000")], version=version) == DONE
    after = settled(lambda: own_settings(asker, name), lambda own: len(own) == 1)
    assert after == {"retention.bytes": "5000"}
    assert replace(asker, name, [("retention.ms", "9")], version=version, validate_only=True) == DONE
    for values, told in (
        ([("retention.bytes", None)], "INVALID_REQUEST"),
        ([("no.such", "1")], "INVALID_CONFIG"),
        ([("retention.ms", "x")], "INVALID_CONFIG"),
        ([("retention.ms", "1"), ("retention.ms", "2")], "INVALID_REQUEST"),
    ):
        assert replace(asker, name, values, version=version)[0] == told
    assert replace(asker, "missing", [], version=version)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert replace(asker, "", [], version=version)[0] == "INVALID_REQUEST"
    assert own_settings(asker, name) == after
    assert replace(asker, name, [], version=version) == DONE
    assert settled(lambda: own_settings(asker, name), lambda own: not own) == {}


def test_a_resource_named_twice_in_the_older_request_is_refused_too(headrace_server: StartHeadrace) -> None:
    """Apache Kafka 4.3.1 does not answer this at all."""
    with Asker(headrace_server().bootstrap) as asker:
        name = create_topic(asker)
        resource = m.AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
        responses = asker.ask(m.AlterConfigsRequest(resources=[resource, resource]), 2).responses
        assert [each.error_code for each in responses] == [42, 42]


def test_an_operation_that_does_not_exist_is_refused(headrace_server: StartHeadrace) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR."""
    with Asker(headrace_server().bootstrap) as asker:
        name = create_topic(asker)
        assert alter(asker, name, ("retention.ms", 9, "5")) == ("INVALID_REQUEST", "Unknown operation 9 on a setting")


def test_a_change_holds_for_the_next_record_and_after_a_kill(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker, Wire(server.bootstrap) as wire:
        name = create_topic(asker)
        assert wire.produce(name, batch([b"x" * 500])).error_code == 0
        assert alter(asker, name, ("max.message.bytes", SET, "300")) == DONE
        assert wire.produce(name, batch([b"x" * 500])).error_code == 10
    server.kill()
    server.restart()
    with Wire(server.bootstrap) as wire:
        assert wire.produce(name, batch([b"x" * 500])).error_code == 10
        assert wire.produce(name, batch([b"x"])).error_code == 0
