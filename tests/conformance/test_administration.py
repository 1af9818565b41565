"""Real clients describe and change topics and groups."""

from time import monotonic

import pytest

from tests.conformance.cases import case
from tests.conformance.checks import other_writer
from tests.conformance.conftest import end_of_topic, new_name, new_topic
from tests.conformance.model import (
    EARLIEST,
    LATEST,
    TIMED,
    Client,
    FromOffset,
    GroupState,
    Joining,
    Member,
    Refused,
    Writing,
)
from tests.eventually import WITHIN_SECONDS, eventually
from tests.wire import Wire

UNKNOWN_TOPIC_OR_PARTITION, NON_EMPTY_GROUP = 3, 68


@case("settings")
def test_describes_the_settings_of_a_topic(bootstrap: str, topic: str, client: Client) -> None:
    settings = client.topic_settings(bootstrap, topic)
    assert settings["retention.ms"] == "-1"
    assert settings["cleanup.policy"] == "delete"
    assert settings["max.message.bytes"] == "1048588"


@case("alter")
def test_alters_the_settings_of_a_topic(bootstrap: str, topic: str, client: Client) -> None:
    client.set_topic_setting(bootstrap, topic, "segment.bytes", "2097152")
    seen_by_another = other_writer()
    eventually(
        lambda: seen_by_another.topic_settings(bootstrap, topic)["segment.bytes"] == "2097152", "the setting is there"
    )


@case("partitions")
def test_adds_partitions_that_can_be_written(bootstrap: str, topic: str, client: Client) -> None:
    client.add_partitions(bootstrap, topic, 3)
    end_of_topic(bootstrap, topic, partition=2)
    client.produce(bootstrap, topic, TIMED[:2], Writing(partition=2))
    assert end_of_topic(bootstrap, topic, partition=2) == 2


@case("delete records")
def test_deletes_records_below_an_offset(bootstrap: str, topic: str, client: Client) -> None:
    other_writer().produce(bootstrap, topic, TIMED, Writing())
    client.delete_records(bootstrap, topic, 12)
    assert client.list_offset(bootstrap, topic, EARLIEST) == 12
    assert client.list_offset(bootstrap, topic, LATEST) == len(TIMED)
    assert client.read(bootstrap, topic, FromOffset(12), 1)[0].message.value == TIMED[12].value


@case("delete topic")
def test_deletes_a_topic(bootstrap: str, client: Client) -> None:
    name = new_topic(bootstrap)
    client.delete_topic(bootstrap, name)

    def is_gone() -> bool:
        with Wire(bootstrap) as wire:
            return wire.list_offset(name, -1)[0] == UNKNOWN_TOPIC_OR_PARTITION

    eventually(is_gone, "the topic is gone")


@case("groups", slow=True)
def test_lists_and_describes_groups(bootstrap: str, topic: str, client: Client) -> None:
    group = new_name()
    other_writer().produce(bootstrap, topic, TIMED, Writing())
    member = _member_that_reads(client, bootstrap, topic, group)
    try:
        assert group in client.groups(bootstrap)
        assert client.group_state(bootstrap, group) == GroupState("Stable", 1)
    finally:
        member.close()
    eventually(lambda: client.group_state(bootstrap, group) == GroupState("Empty", 0), "the group is empty")


@case("delete group", slow=True)
def test_deletes_a_group_but_not_one_with_members(bootstrap: str, topic: str, client: Client) -> None:
    group = new_name()
    other_writer().produce(bootstrap, topic, TIMED, Writing())
    member = _member_that_reads(client, bootstrap, topic, group)
    try:
        member.commit()
        with pytest.raises(Refused) as refused:
            client.delete_group(bootstrap, group)
        assert refused.value.code == NON_EMPTY_GROUP
    finally:
        member.close()
    client.delete_group(bootstrap, group)
    assert group not in client.groups(bootstrap)


def _member_that_reads(client: Client, bootstrap: str, topic: str, group: str) -> Member:
    """A member that has its partition and something to commit."""
    member = client.join(bootstrap, topic, group, Joining())
    deadline = monotonic() + WITHIN_SECONDS
    while not member.poll(0.1):
        assert monotonic() < deadline, f"nothing arrives; assigned {member.assignment()}"
    return member
