"""Fetch, ListOffsets and DeleteRecords over transactions, and where coordinators are, asked of both."""

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation
from tests.differential.deliberate import Differs
from tests.differential.requests import fetch_by_id_request, fetch_request, offset_request
from tests.differential.scenario import scenario
from tests.differential.transactions import Transactions, transactions

pytestmark = pytest.mark.slow  # asks Apache Kafka


def _three_transactions(ask: Conversation) -> tuple[str, Transactions]:
    """a, commit | b, abort | c by another producer, open; with a plain record between them."""
    topic = ask.topic()
    first, second = transactions(ask, "x1"), transactions(ask, "x2")
    first.produce(topic, "a")
    first.commit()
    first.produce(topic, "b", "b")
    ask.produce(topic)
    first.abort()
    second.produce(topic, "c")
    ask.produce(topic)
    return topic, second


@scenario(ApiKey.FETCH, range(4, 19))
def test_fetches_committed_records(ask: Conversation) -> None:
    topic, second = _three_transactions(ask)
    topic_id = ask.topic_id(topic)

    def fetch(offset: int, isolation_level: int) -> m.FetchRequest:
        if ask.version < 13:
            return fetch_request(topic, offset, isolation_level=isolation_level)
        return fetch_by_id_request(topic_id, offset, isolation_level=isolation_level)

    for isolation in (0, 1):
        for offset in (0, 2, 3, 6, 7, 8, 9):
            ask(fetch(offset, isolation))
    second.abort()
    for offset in (0, 2, 3, 6, 8, 9, 10):
        ask(fetch(offset, 1))


@scenario(ApiKey.LIST_OFFSETS, range(2, 12))
def test_lists_offsets_to_the_last_stable_one(ask: Conversation) -> None:
    topic, second = _three_transactions(ask)
    lowest = {-3: 7, -4: 8, -5: 9, -6: 11}
    timestamps = [-1, -2, 0, 1_700_000_000_000, 1_700_000_000_001]
    timestamps += [each for each, version in lowest.items() if ask.version >= version]
    for isolation in (0, 1):
        for timestamp in timestamps:
            ask(offset_request(topic, timestamp, isolation_level=isolation))
    second.commit()
    for timestamp in timestamps:
        ask(offset_request(topic, timestamp))


@scenario(ApiKey.DELETE_RECORDS)
def test_deletes_records_over_an_open_transaction(ask: Conversation) -> None:
    topic, second = _three_transactions(ask)
    for offset in (2, 8, 9, -1):
        wanted = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        whole = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])
        ask(m.DeleteRecordsRequest(topics=[whole], timeout_ms=5_000))
        ask(offset_request(topic, -2), 9)
        ask(offset_request(topic, -1), 9)
        ask(fetch_request(topic, 7), 12)
    second.commit()
    ask(offset_request(topic, -1), 9)


@scenario(ApiKey.FIND_COORDINATOR, range(1, 4))
def test_finds_the_coordinator_of_a_transactional_id(ask: Conversation) -> None:
    for key in (ask.name(), "", "not legal/"):
        ask(m.FindCoordinatorRequest(key=key, key_type=1))


@scenario(
    ApiKey.FIND_COORDINATOR,
    range(4, 7),
    differs=[Differs("FindCoordinator.coordinators[]", "a key that is named twice is answered once", ours="(absent)")],
)
def test_finds_the_coordinators_of_transactional_ids(ask: Conversation) -> None:
    for keys in ([ask.name()], [ask.name(), ask.name("u"), ask.name()], [""], [], ["not legal/"]):
        ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=keys))


@scenario(ApiKey.API_VERSIONS, range(3, 5))
def test_finalizes_the_features_of_transactions(ask: Conversation) -> None:
    answer = ask.quietly(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    for features in (answer.supported_features, answer.finalized_features):
        ask.note("features", [repr(each) for each in features if each.name == "transaction.version"])
