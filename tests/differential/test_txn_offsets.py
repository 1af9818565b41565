"""AddOffsetsToTxn and TxnOffsetCommit, and what OffsetFetch tells of them, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.requests import committed_request
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka

ADD, COMMIT = ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT


@scenario(ADD)
def test_adds_the_offsets_of_a_group(ask: Conversation) -> None:
    producer = transactions(ask)
    group = ask.name("group")
    ask(producer.add_offsets_request(group))
    ask(producer.describe(), 0)
    ask(producer.add_offsets_request(group))
    ask(producer.add_offsets_request(""))


@scenario(ADD)
def test_refuses_offsets_of_wrong_producers(ask: Conversation) -> None:
    producer = transactions(ask)
    producer.init()
    group = ask.name("group")
    for wrong in (
        producer.with_(producer_id=producer.producer_id + 1_000_000),
        producer.with_(epoch=producer.epoch - 1),
        producer.with_(epoch=producer.epoch + 1),
        Transactions(ask, ask.name("unknown"), producer.producer_id, producer.epoch),
        Transactions(ask, "", producer.producer_id, producer.epoch),
    ):
        ask(wrong.add_offsets_request(group))
    ask(producer.describe(), 0)


def _committing(ask: Conversation, group: str) -> Transactions:
    """A producer that may commit offsets of a group; version 5 adds the group itself."""
    version = 2 if ask.version >= 5 else 1
    producer = transactions(ask, version=version)
    if version == 1:
        ask.quietly(producer.add_offsets_request(group), 3)
    return producer


@scenario(COMMIT, alone=True)
def test_commits_offsets_that_are_pending_until_the_end(ask: Conversation) -> None:
    _commit_and_end(ask, committed=True)


@scenario(COMMIT, alone=True)
def test_drops_pending_offsets_of_an_abort(ask: Conversation) -> None:
    _commit_and_end(ask, committed=False)


def _commit_and_end(ask: Conversation, *, committed: bool) -> None:
    topic, group = ask.topic(partitions=2), ask.name("group")
    producer = _committing(ask, group)
    ask(producer.commit_offset_request(group, topic, 5))
    ask(producer.describe(), 0)
    for require_stable in (False, True):
        ask(committed_request(group, topic, require_stable=require_stable), 7)
    producer.end(committed=committed)
    producer.complete()
    ask.until(
        lambda found: found.topics[0].partitions[0].error_code == 0,
        committed_request(group, topic, require_stable=True),
        7,
    )


@scenario(COMMIT, alone=True)
def test_commits_offsets_without_adding_the_group(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("group")
    producer = transactions(ask, version=1)
    ask(producer.commit_offset_request(group, topic))
    ask(producer.describe(), 0)


@scenario(COMMIT, alone=True)
def test_refuses_commits_of_wrong_producers(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("group")
    producer = _committing(ask, group).init()
    if producer.version == 1:
        ask.quietly(producer.add_offsets_request(group), 3)
    for wrong in (
        producer.with_(producer_id=producer.producer_id + 1_000_000),
        producer.with_(epoch=producer.epoch - 1),
        producer.with_(epoch=producer.epoch + 1),
        Transactions(ask, ask.name("unknown"), producer.producer_id, producer.epoch),
        Transactions(ask, "", producer.producer_id, producer.epoch),
    ):
        ask(wrong.commit_offset_request(group, topic))
    ask(producer.commit_offset_request(group, topic))
    ask(producer.with_(epoch=producer.epoch - 1).commit_offset_request(group, topic))


@scenario(COMMIT, alone=True)
def test_refuses_offsets_of_unknown_topics_and_wrong_values(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("group")
    producer = _committing(ask, group)
    ask(producer.commit_offset_request(group, ask.name("missing")))
    ask(producer.commit_offset_request(group, topic, partition=7))
    ask(producer.commit_offset_request(group, topic, partition=-1))
    ask(producer.commit_offset_request(group, topic, -1))
    ask(producer.commit_offset_request(group, topic, -2))
    ask(producer.commit_offset_request("", topic))
    large = producer.commit_offset_request(group, topic)
    large.topics[0].partitions[0].committed_metadata = "m" * 5000
    ask(large)
    none = producer.commit_offset_request(group, topic)
    none.topics[0].partitions[0].committed_metadata = None
    ask(none)
    ask(m.TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id, group_id=group, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, topics=[],
    ))  # fmt: skip


@scenario(COMMIT, range(3, 6), alone=True)
def test_checks_the_member_and_generation(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("group")
    member, generation = join(ask, group)
    producer = _committing(ask, group)
    for name, number in (
        (member, generation), (member, generation + 1), (member, generation - 1), (member, -1),
        ("stranger", generation), ("", generation), ("", -1), ("stranger", -1),
    ):  # fmt: skip
        ask(producer.commit_offset_request(group, topic, member_id=name, generation_id=number))
    ask(
        producer.commit_offset_request(
            group, topic, member_id=member, generation_id=generation, group_instance_id="nobody"
        )
    )
    ask(producer.commit_offset_request(ask.name("unknown"), topic, member_id="m", generation_id=3))


def join(ask: Conversation, group: str) -> tuple[str, int]:
    """Join a group alone, and sync it: the member id and the generation."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = m.JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="", protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    answer = ask.quietly(request, 3)
    assert answer.error_code == 0, answer
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")
    ask.quietly(
        m.SyncGroupRequest(
            group_id=group, generation_id=answer.generation_id, member_id=answer.member_id, assignments=[assignment]
        ),
        3,
    )
    return answer.member_id, answer.generation_id


@scenario(ApiKey.OFFSET_FETCH, range(7, 10))
def test_says_which_offsets_are_unstable(ask: Conversation) -> None:
    topic, group = ask.topic(partitions=2), ask.name("group")
    producer = transactions(ask)
    assert ask.quietly(producer.commit_offset_request(group, topic, 5), 5).topics[0].partitions[0].error_code == 0
    for require_stable in (False, True):
        for partitions in ([0], [1], [0, 1], None):
            ask(_fetch_offsets(ask.version, group, topic, partitions, require_stable))
    producer.commit()
    request = _fetch_offsets(ask.version, group, topic, [0, 1], True)
    if ask.version < 8:
        ask.until(lambda found: all(each.error_code == 0 for each in found.topics[0].partitions), request)
    else:
        ask.until(lambda found: all(each.error_code == 0 for each in found.groups[0].topics[0].partitions), request)


def _fetch_offsets(
    version: int, group: str, topic: str, partitions: list[int] | None, require_stable: bool
) -> m.OffsetFetchRequest:
    if version < 8:
        wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions or [])
        topics = None if partitions is None else [wanted]
        return m.OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
    named = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions or [])
    whole = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None if partitions is None else [named])
    return m.OffsetFetchRequest(groups=[whole], require_stable=require_stable)
