"""Real clients write in transactions, and read what is committed."""

import pytest

from tests.conformance.cases import case
from tests.conformance.checks import assert_same, other_writer
from tests.conformance.conftest import end_of_topic, new_name, new_topic
from tests.conformance.model import Client, Message, Refused, Transforming, Writing

FENCED = {47, 90}  # INVALID_PRODUCER_EPOCH, as brokers call it before 2.7, and PRODUCER_FENCED
LOST = [Message(None, b"lost %d" % number) for number in range(5)]
KEPT = [Message(None, b"kept %d" % number) for number in range(5)]


@case("commit", slow=True)
def test_commits_and_a_read_committed_reader_gets_all(bootstrap: str, topic: str, client: Client) -> None:
    producer = client.transactional(bootstrap, new_name())
    try:
        for part in (client.messages[:4], client.messages[4:]):
            producer.begin()
            producer.send(topic, part)
            producer.commit()
    finally:
        producer.close()
    read = client.read_committed(bootstrap, topic, len(client.messages))
    assert_same(read[:4], client.messages[:4], 0, client)
    assert_same(read[4:], client.messages[4:], 5, client)  # after the marker


@case("abort", slow=True)
def test_aborts_and_a_read_committed_reader_gets_nothing(bootstrap: str, topic: str, client: Client) -> None:
    producer = client.transactional(bootstrap, new_name())
    try:
        producer.begin()
        producer.send(topic, LOST)
        producer.abort()
        producer.begin()
        producer.send(topic, KEPT)
        producer.commit()
    finally:
        producer.close()
    assert_same(client.read_committed(bootstrap, topic, len(KEPT)), KEPT, len(LOST) + 1, client)
    assert end_of_topic(bootstrap, topic) == len(LOST) + len(KEPT) + 2


@case("transform", slow=True)
def test_the_offsets_of_a_group_are_committed_with_what_was_made_of_its_records(
    bootstrap: str, topic: str, client: Client
) -> None:
    _transform(bootstrap, topic, client, "classic")


@case("new transform", slow=True)
def test_the_same_as_a_member_of_the_new_protocol(bootstrap: str, topic: str, client: Client) -> None:
    _transform(bootstrap, topic, client, "consumer")


def _transform(bootstrap: str, topic: str, client: Client, protocol: str) -> None:
    target = new_topic(bootstrap)
    what = Transforming(topic, target, f"group-of-{topic}", f"transformer-of-{topic}", 3, protocol)
    other_writer().produce(bootstrap, topic, KEPT[:3], Writing())
    assert_same(client.transform(bootstrap, what, commit=False), KEPT[:3], 0, client)
    assert_same(client.transform(bootstrap, what, commit=True), KEPT[:3], 0, client)
    other_writer().produce(bootstrap, topic, KEPT[3:], Writing())
    assert_same(client.transform(bootstrap, what._replace(records=2), commit=True), KEPT[3:], 3, client)
    values = [each.message.value for each in client.read_committed(bootstrap, target, len(KEPT))]
    assert values == [each.value for each in KEPT]


@case("fence", slow=True)
def test_a_second_producer_with_the_same_id_fences_the_first(bootstrap: str, topic: str, client: Client) -> None:
    name = new_name()
    first, second = client.transactional(bootstrap, name), None
    try:
        first.begin()
        first.send(topic, LOST)
        second = client.transactional(bootstrap, name)
        second.begin()
        with pytest.raises(Refused) as refused:
            first.commit()
        assert refused.value.code in FENCED
        second.send(topic, KEPT)
        second.commit()
    finally:
        first.close()
        if second is not None:
            second.close()
    assert_same(client.read_committed(bootstrap, topic, len(KEPT)), KEPT, len(LOST) + 1, client)
