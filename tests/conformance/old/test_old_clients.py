"""Clients from Kafka 0.8.2 on write and read topics that clients of today use too."""

from collections.abc import Sequence

import pytest

from headrace.records.any_format import iter_any_headers
from tests.conformance.conftest import end_of_topic, new_name, new_topic
from tests.conformance.model import (
    BASE_TIME_MS,
    CODEC_NUMBERS,
    EARLIEST,
    FROM_START,
    LATEST,
    TIMED,
    Client,
    Consumed,
    FromOffset,
    Message,
    Refused,
    Writing,
)
from tests.conformance.old.crowd import Crowd, Place, is_marked, kept, magic_of, mark
from tests.conformance.old.old_cases import old_case
from tests.conformance.old.old_clients import FIRST_CODECS, OldKafkaPython, OldProgram
from tests.conformance.test_groups import ALL, GroupScenario
from tests.eventually import eventually
from tests.records.decoding import decode_any
from tests.wire import Wire

MESSAGE_TOO_LARGE = 10
NO_TIME = -1
LIMIT = 1_048_588  # max.message.bytes of a topic
TODAYS_READERS = ("headrace", "java 4.3.1", "confluent-kafka", "aiokafka")


@old_case("create")
def test_writing_to_a_topic_that_is_not_there_makes_it(bootstrap: str, client: Client) -> None:
    topic = new_name()
    messages = [client.seen(each) for each in TIMED[:3]]
    client.produce(bootstrap, topic, messages, Writing())
    _assert_same(client.read(bootstrap, topic, FROM_START, 3), messages, range(3), client)


@old_case(*FIRST_CODECS)
def test_a_codec_is_read_equal_by_everybody(
    bootstrap: str, topics: dict[Place, str], crowd: Crowd, client: Client, codec: str
) -> None:
    name = mark(client.name, codec)
    for place in (each for each in topics if codec in each.codecs_of(client)):
        written = crowd.writes(client.name, codec, place)
        for reader in crowd.readers(place):
            read = [each for each in crowd.reads(reader.name, place) if is_marked(each.message, name)]
            expected = [kept(each, magic_of(client), place.magic, magic_of(reader)) for each in written]
            _assert_same(read, expected, None, reader)
        assert _stored_as(bootstrap, topics[place], name) == {(place.magic, CODEC_NUMBERS[codec])}


@old_case("read")
def test_it_reads_everything_in_everybodys_order(topics: dict[Place, str], crowd: Crowd, client: Client) -> None:
    for place in (each for each in topics if each.is_read_by(client)):
        read = crowd.reads(client.name, place)
        assert [each.offset for each in read] == list(range(len(read)))
        parts = crowd.parts(place)
        assert len(read) == sum(map(len, parts.values()))
        for part, messages in parts.items():
            theirs = [each for each in read if is_marked(each.message, mark(part.client, part.codec))]
            writer = next(each for each in crowd.clients if each.name == part.client)
            expected = [kept(each, magic_of(writer), place.magic, magic_of(client)) for each in messages]
            _assert_same(theirs, expected, None, client)
        for reader in (each for each in crowd.readers(place) if each.name in TODAYS_READERS):
            others = [(each.offset, each.message.key, each.message.value) for each in crowd.reads(reader.name, place)]
            assert others == [(each.offset, each.message.key, each.message.value) for each in read], reader.name


@old_case("acks=0")
def test_what_nobody_acknowledges_arrives(bootstrap: str, client: Client) -> None:
    topic = new_topic(bootstrap)
    client.produce(bootstrap, topic, [client.seen(each) for each in TIMED], Writing(acks=0))
    eventually(lambda: end_of_topic(bootstrap, topic) == len(TIMED), "all has arrived")


@old_case("too large")
def test_a_record_above_the_limit_is_refused_by_its_name(bootstrap: str, client: Client) -> None:
    topic = new_topic(bootstrap)
    with pytest.raises(Refused) as refused:
        client.produce(bootstrap, topic, [Message(b"too large", b"x" * LIMIT)], Writing())
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert end_of_topic(bootstrap, topic) == 0


@old_case("offset")
def test_it_reads_from_an_offset_inside_a_compressed_set(bootstrap: str, client: Client) -> None:
    topic = new_topic(bootstrap)
    messages = [client.seen(each) for each in TIMED]
    client.produce(bootstrap, topic, messages, Writing("gzip"))
    read = client.read(bootstrap, topic, FromOffset(13), 7)
    expected = [kept(each, magic_of(client)) for each in messages[13:]]
    _assert_same(read, expected, range(13, 20), client)


@old_case("end")
def test_it_reads_only_what_is_new(bootstrap: str, client: Client) -> None:
    topic = new_topic(bootstrap)
    messages = [client.seen(each) for each in TIMED]
    client.produce(bootstrap, topic, messages[:10], Writing("gzip"))
    write = lambda: client.produce(bootstrap, topic, messages[10:], Writing("gzip"))  # noqa: E731
    read = client.read_new(bootstrap, topic, 10, write)
    _assert_same(read, [kept(each, magic_of(client)) for each in messages[10:]], range(10, 20), client)


@old_case("list offsets")
def test_it_lists_offsets(bootstrap: str, old_client: OldProgram | OldKafkaPython) -> None:
    client = old_client
    topic = new_topic(bootstrap)
    client.produce(bootstrap, topic, [client.seen(each) for each in TIMED], Writing())
    assert client.list_offset(bootstrap, topic, EARLIEST) == 0
    assert client.list_offset(bootstrap, topic, LATEST) == len(TIMED)
    if client.knows.times and client.knows.magic > 0:
        assert client.list_offset(bootstrap, topic, BASE_TIME_MS + 4_001) == 5


@old_case("commit")
def test_a_committed_offset_is_found_again(bootstrap: str, old_client: OldProgram | OldKafkaPython) -> None:
    """Version 0's offsets were ZooKeeper's, which had no place for what is said beside them."""
    client = old_client
    topic = new_topic(bootstrap)
    for version in client.knows.offset_versions:
        group = f"{topic}-{version}"
        client.commit_offset(bootstrap, topic, group, 5, "metadata", version)
        offset, metadata = client.committed_offset(bootstrap, topic, group, version)
        assert offset == 5
        assert metadata == "metadata" or version == 0
        client.commit_offset(bootstrap, topic, group, 6, "", version)
        assert client.committed_offset(bootstrap, topic, group, version) == (6, "")


@old_case("group")
def test_two_members_share_commit_leave_and_resume_without_duplicates(bootstrap: str, client: Client) -> None:
    with GroupScenario(client, bootstrap) as group:
        first = group.join()
        group.poll_until(lambda: first.assignment() == ALL, "the first to come has all four")
        second = group.join()
        group.poll_until(group.is_shared, "two partitions each")
        group.write_and_read()
        group.leave(first)
        group.poll_until(lambda: second.assignment() == ALL, "the one who stays has all four")
        group.write_and_read()
        group.leave(second)
        third = group.join()
        group.poll_until(lambda: third.assignment() == ALL, "the one who resumes has all four")
        group.write_and_read()


def _assert_same(
    read: Sequence[Consumed], expected: Sequence[Message], offsets: Sequence[int] | None, reader: Client
) -> None:
    """Byte for byte and in order; times where the reader knows of them, of which some say None for none."""
    if offsets is not None:
        assert [each.offset for each in read] == list(offsets), reader.name
    got = [(each.message.key, each.message.value, tuple(each.message.headers)) for each in read]
    assert got == [(each.key, each.value, each.headers) for each in expected], reader.name
    if magic_of(reader) > 0:
        times = [NO_TIME if each.message.timestamp_ms is None else each.message.timestamp_ms for each in read]
        assert times == [each.timestamp_ms for each in expected], reader.name


def _stored_as(bootstrap: str, topic: str, name: bytes) -> set[tuple[int, int]]:
    """Format and codec of all batches that have a record of this mark."""
    found = set()
    with Wire(bootstrap) as wire:
        fetched = wire.fetch(topic, 0)
    for position, header in iter_any_headers(fetched.records):
        batch = fetched.records[position : position + header.size_bytes]
        if name in batch or any(name in (each.key or b"") + (each.value or b"") for each in decode_any(batch)):
            found.add((header.magic, int(header.codec)))
    return found
