"""OffsetCommit, OffsetFetch and OffsetDelete without transactions, asked of headrace and of Apache Kafka."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import commit_request, fetch_offsets_request, join_request, sync_request
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

COMMIT, FETCH = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH
UNKNOWN_ID = b"nobody has this."


def _key(ask: Conversation, topic: str) -> str | bytes:
    """A topic as this version names it."""
    return ask.topic_id(topic) if ask.version >= 10 else topic


@scenario(COMMIT)
def test_commits_offsets_without_members(ask: Conversation) -> None:
    topic, group = ask.topic(partitions=2), ask.name("g")
    key = _key(ask, topic)
    ask(commit_request(group, key, (0, 5), (1, 6)))
    ask(commit_request(group, key, (7, 5), (0, 7)))
    ask(commit_request(group, key, (0, -1)))
    ask(commit_request(group, key, (0, -5)))
    ask(commit_request(group, key, (-1, 5)))
    ask(commit_request(group, key, (0, 2**63 - 1), metadata="m" * 4096))
    ask(commit_request(group, key, (0, 1), metadata="m" * 4097))
    ask(commit_request(group, key, (0, 1), metadata=None))
    ask(commit_request(group, key))
    ask(fetch_offsets_request(7, group, {topic: [0, 1]}), 7)


@scenario(COMMIT)
def test_commits_offsets_of_unknown_topics(ask: Conversation) -> None:
    group = ask.name("g")
    for key in (UNKNOWN_ID, bytes(16)) if ask.version >= 10 else (ask.name("missing"), "not legal", ""):
        ask(commit_request(group, key, (0, 5)))


@scenario(COMMIT)
def test_a_commit_of_nothing_creates_no_group(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("g")
    key = _key(ask, topic)
    ask(m.OffsetCommitRequest(group_id=group))
    ask(m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=7, member_id="stranger"))
    ask(commit_request(group, key))
    ask(commit_request(group, key, (9, 1)))
    ask(m.DeleteGroupsRequest(groups_names=[group]), 2)
    ask(commit_request(group, key, (0, 1), metadata="m" * 4097))
    ask(m.DeleteGroupsRequest(groups_names=[group]), 2)


@scenario(COMMIT)
def test_checks_members_of_commits(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("g")
    answer = ask.quietly(join_request(group), 3)
    member, generation = answer.member_id, answer.generation_id
    key = _key(ask, topic)
    ask(commit_request(group, key, (0, 5), member=member, generation=generation))
    ask.quietly(sync_request(group, member, generation), 3)
    for who, number in (
        (member, generation), (member, generation + 1), (member, generation - 1), (member, -1),
        ("stranger", generation), ("", generation), ("", -1), ("stranger", -1),
    ):  # fmt: skip
        ask(commit_request(group, key, (0, 5), member=who, generation=number))
    ask(commit_request(ask.name("missing"), key, (0, 5), member="m", generation=1))
    ask(commit_request(ask.name("other"), key, (0, 5), member="", generation=1))
    if ask.version >= 7:
        ask(commit_request(group, key, (0, 5), member=member, generation=generation, instance="nobody"))


@scenario(
    COMMIT,
    differs=[Differs("OffsetCommit.topics[].partitions[]", "a repeated partition is answered once", ours="(absent)")],
)
def test_commits_a_repeated_partition(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("g")
    ask(commit_request(group, _key(ask, topic), (0, 5), (0, 6)))
    ask(fetch_offsets_request(7, group, {topic: [0]}), 7)


@scenario(
    FETCH,
    differs=[
        Differs(
            f"OffsetFetch.{field}",
            "repeated partitions and empty topics are left out",
            ours="(absent)",
        )
        for field in ("topics[]", "groups[].topics[]")
    ],
)
def test_fetches_offsets(ask: Conversation) -> None:
    topic, group = ask.topic(partitions=2), ask.name("g")
    ask.quietly(commit_request(group, topic, (0, 5), metadata="meta"), 7)
    key = _key(ask, topic)
    for name in (group, ask.name("missing"), ""):
        for partitions in ([0], [0, 1], [7], [-1], [0, 0], []):
            ask(fetch_offsets_request(ask.version, name, {key: partitions}))
        if ask.version >= 2:
            ask(fetch_offsets_request(ask.version, name, None))
        ask(fetch_offsets_request(ask.version, name, {}))


@scenario(FETCH)
def test_fetches_offsets_of_unknown_topics(ask: Conversation) -> None:
    group = ask.name("g")
    ask.quietly(commit_request(group, ask.topic(), (0, 5)), 7)
    for key in (UNKNOWN_ID, bytes(16)) if ask.version >= 10 else (ask.name("missing"), "not legal", ""):
        ask(fetch_offsets_request(ask.version, group, {key: [0]}))


@scenario(FETCH, range(8, 11))
def test_fetches_offsets_of_several_groups(ask: Conversation) -> None:
    topic, first, second = ask.topic(), ask.name("a"), ask.name("b")
    ask.quietly(commit_request(first, topic, (0, 5)), 7)
    request = fetch_offsets_request(ask.version, first, None)
    request.groups += fetch_offsets_request(ask.version, second, None).groups
    ask(request)
    request.groups = []
    ask(request)


@scenario(FETCH, range(9, 11))
def test_checks_members_of_offset_fetches(ask: Conversation) -> None:
    topic, group = ask.topic(), ask.name("g")
    ask.quietly(commit_request(group, topic, (0, 5)), 7)
    for member, epoch in (("m", 1), ("m", -1), (None, 3), ("", 0)):
        ask(fetch_offsets_request(ask.version, group, None, member=member, epoch=epoch))


@scenario(ApiKey.OFFSET_DELETE)
def test_deletes_offsets(ask: Conversation) -> None:
    topic, group = ask.topic(partitions=2), ask.name("g")
    ask.quietly(commit_request(group, topic, (0, 5)), 7)
    Topic, Partition = (
        m.OffsetDeleteRequest.OffsetDeleteRequestTopic,
        m.OffsetDeleteRequest.OffsetDeleteRequestPartition,
    )
    for name, where, number in (
        (group, topic, 1), (group, topic, 7), (group, ask.name("missing"), 0), (ask.name("missing"), topic, 0),
        ("", topic, 0), (group, topic, 0), (group, topic, 0),
    ):  # fmt: skip
        ask(
            m.OffsetDeleteRequest(
                group_id=name, topics=[Topic(name=where, partitions=[Partition(partition_index=number)])]
            )
        )
    ask(m.OffsetDeleteRequest(group_id=group, topics=[]))
