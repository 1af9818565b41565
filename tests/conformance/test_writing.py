"""What real clients write: every codec, nulls, headers, by key, with each kind of acknowledgement, up to the limit."""

import pytest

from tests.conformance.cases import case
from tests.conformance.checks import assert_same, stored
from tests.conformance.clients import CLIENTS
from tests.conformance.conftest import end_of_topic, new_name, new_topic
from tests.conformance.model import (
    CODEC_NUMBERS,
    CODECS,
    FROM_START,
    Client,
    FromOffset,
    Message,
    Refused,
    Writing,
)
from tests.eventually import eventually

MESSAGE_TOO_LARGE = 10
LIMIT = 1_048_588  # max.message.bytes of a topic
KEYS = [b"", b"a", b"key", b"headrace", b"\x00\xff" * 5, "schlüssel".encode(), *(b"key-%d" % n for n in range(30))]


@case("create")
def test_creates_a_topic_and_reads_back_what_it_wrote(bootstrap: str, client: Client) -> None:
    name = new_name()
    client.create_topic(bootstrap, name, 1)
    end = end_of_topic(bootstrap, name)
    client.produce(bootstrap, name, client.messages[:1], Writing())
    assert_same(client.read(bootstrap, name, FromOffset(end), 1), client.messages[:1], end, client)


@case("nulls")
def test_nulls_stay_nulls_and_empty_stays_empty(bootstrap: str, topic: str, client: Client) -> None:
    messages = [each for each in client.messages if not each.key or not each.value]
    assert any(each.key is None for each in messages)
    client.produce(bootstrap, topic, messages, Writing())
    assert_same(client.read(bootstrap, topic, FROM_START, len(messages)), messages, 0, client)


@case("headers")
def test_headers_come_back_as_they_were(bootstrap: str, topic: str, client: Client) -> None:
    messages = [each for each in client.messages if each.headers]
    client.produce(bootstrap, topic, messages, Writing())
    assert_same(client.read(bootstrap, topic, FROM_START, len(messages)), messages, 0, client)


@pytest.mark.slow
@case(*CODECS)
def test_a_codec_is_stored_as_it_was_sent(bootstrap: str, topic: str, client: Client, codec: str) -> None:
    client.produce(bootstrap, topic, client.messages, Writing(codec))
    codecs = {each.codec for each in stored(bootstrap, topic)}
    assert CODEC_NUMBERS[codec] in codecs, "the broker stored another codec than the client was told to write"
    assert_same(client.read(bootstrap, topic, FROM_START, len(client.messages)), client.messages, 0, client)


@case("read by all")
def test_what_it_writes_is_read_byte_equal_by_every_client(bootstrap: str, topic: str, client: Client) -> None:
    """In two topics, since a reader fetches many batches at once and fails on the first in a codec that it lacks."""
    common = [codec for codec in CODECS if all(codec not in each.gaps for each in CLIENTS)]
    others = [codec for codec in CODECS if codec not in (*common, *client.gaps)]
    for codecs, where in ((common, topic), (others, new_topic(bootstrap))):
        for codec in codecs:
            client.produce(bootstrap, where, client.messages, Writing(codec))
        written = list(client.messages) * len(codecs)
        for reader in CLIENTS:
            if written and not reader.missing() and not set(codecs) & set(reader.gaps):
                assert_same(reader.read(bootstrap, where, FROM_START, len(written)), written, 0, reader)


@case("by key")
def test_keys_lie_where_the_murmur2_of_java_puts_them(bootstrap: str, client: Client) -> None:
    from headrace.client.producer.partitioner import partition_for_key

    topic = new_topic(bootstrap, partitions=5)
    keys = [key for key in KEYS if client.name != "kcat" or (key and b"\0" not in key)][
        : 8 if client.name == "kcat" else None
    ]
    client.produce(bootstrap, topic, [Message(key, b"value") for key in keys], Writing(partition=None))
    counts = [end_of_topic(bootstrap, topic, partition) for partition in range(5)]
    expected = [partition_for_key(key, 5) for key in keys]
    assert counts == [expected.count(partition) for partition in range(5)]


@case("idempotent")
def test_an_idempotent_producer_numbers_its_batches(bootstrap: str, topic: str, client: Client) -> None:
    client.produce(bootstrap, topic, client.messages, Writing(idempotent=True))
    batches = stored(bootstrap, topic)
    assert sum(each.record_count for each in batches) == len(client.messages)
    assert all(each.producer_id >= 0 and each.base_sequence >= 0 for each in batches)


@case("acks=0")
def test_what_nobody_acknowledges_arrives(bootstrap: str, topic: str, client: Client) -> None:
    client.produce(bootstrap, topic, client.messages, Writing(acks=0))
    eventually(lambda: end_of_topic(bootstrap, topic) == len(client.messages), "all has arrived")


@case("large")
def test_a_record_just_below_the_limit_goes_in_and_out(bootstrap: str, topic: str, client: Client) -> None:
    large = Message(b"large", b"x" * (LIMIT - 200))
    client.produce(bootstrap, topic, [large], Writing())
    assert_same(client.read(bootstrap, topic, FROM_START, 1), [large], 0, client)


@case("too large")
def test_a_record_above_the_limit_is_refused_by_its_name(bootstrap: str, topic: str, client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.produce(bootstrap, topic, [Message(b"too large", b"x" * LIMIT)], Writing())
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert end_of_topic(bootstrap, topic) == 0
