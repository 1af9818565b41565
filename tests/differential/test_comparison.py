"""The comparison of answers itself: what counts as a difference, and what does not."""

import time

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.answers import Tokens, plain
from tests.differential.conversation import Conversation, Step, batch, shown
from tests.differential.deliberate import Differs
from tests.differential.scenario import Brokers, compare, differences


def step(answer: object, line: int = 1, api: str = "Metadata") -> Step:
    return Step(line, "()", api, 1, answer)


def test_numbers_ids_as_they_appear() -> None:
    def answers(*ids: int) -> list[object]:
        tokens = Tokens()
        return [plain(m.InitProducerIdResponse(producer_id=each, producer_epoch=0), 4, tokens) for each in ids]

    assert answers(7, 8, 7, -1) == answers(1000, 2000, 1000, -1)
    assert answers(7, 8, 7) != answers(7, 8, 8)


def test_numbers_uuids_within_member_ids() -> None:
    first = "c-2f1b6e0a-0000-4000-8000-000000000001"
    tokens = Tokens()
    answers = [plain(m.JoinGroupResponse(member_id=each, leader=first), 4, tokens) for each in (first, "c-1")]
    assert [each["member_id"] for each in answers] == ["c-uuid 1", "c-1"]
    assert answers[0]["leader"] == "c-uuid 1"


def test_shows_times_of_today_as_now_and_other_times_as_they_are() -> None:
    now = int(time.time() * 1000)
    for time_ms, expected in ((now - 5000, "now"), (-1, -1), (1_700_000_000_000, 1_700_000_000_000)):
        state = m.DescribeTransactionsResponse.TransactionState(transaction_start_time_ms=time_ms)
        answer = plain(m.DescribeTransactionsResponse(transaction_states=[state]), 0, Tokens())
        assert answer["transaction_states"][0]["transaction_start_time_ms"] == expected


def test_decodes_records() -> None:
    data = m.FetchResponse.PartitionData(records=batch(("a", "b"), producer_id=9, producer_epoch=1, base_sequence=0))
    answer = plain(
        m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])]), 12, Tokens()
    )
    (found,) = answer["responses"][0]["partitions"][0]["records"]
    assert (found["producer_id"], found["producer_epoch"], found["attributes"]) == ("producer 1", 1, 0)
    assert [each["value"] for each in found["records"]] == ["61", "62"]


def test_finds_the_field_that_differs() -> None:
    ours = [step({"topics": [{"error_code": "NONE", "name": "a"}]})]
    theirs = [step({"topics": [{"error_code": "UNKNOWN_TOPIC_ID", "name": "a"}]})]
    (found,) = differences(ours, theirs)
    assert found[1:] == ("()", "Metadata.topics[0].error_code", "NONE", "UNKNOWN_TOPIC_ID")
    assert differences(theirs, theirs) == []


def test_finds_missing_elements_and_steps() -> None:
    (missing,) = differences([step({"a": []})], [step({"a": [{"b": 1}]})])
    assert missing[2:] == ("Metadata.a[0]", "(absent)", "{b=1}")
    assert [each.field for each in differences([], [step({"a": 1})])] == ["step"]
    assert [each.field for each in differences([step({"a": 1}, line=2)], [step({"a": 1}, line=3)])] == ["step"]


def test_shows_what_a_request_says_beyond_its_defaults() -> None:
    request = m.EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=0, committed=True)
    assert (
        shown(request, Tokens()) == "(transactional_id='x', producer_id=producer 1, producer_epoch=0, committed=True)"
    )


@pytest.mark.parametrize(
    ("differs", "report"), [((), "error_code"), ((Differs("Heartbeat.error_code", "because"),), "")]
)
def test_fails_with_a_difference_unless_it_is_meant(differs: tuple[Differs, ...], report: str) -> None:
    def script(ask: Conversation) -> None:
        code = 0 if ask.bootstrap == "ours" else 25
        ask.record(m.HeartbeatRequest(), 1, m.HeartbeatResponse(error_code=code))

    both = Brokers("ours", "theirs", {12: range(5)}, {12: range(5)})
    if not report:
        return compare(script, both, ApiKey.HEARTBEAT, None, differs)
    with pytest.raises(pytest.fail.Exception, match=f"(?s)Heartbeat.{report}.*NONE.*UNKNOWN_MEMBER_ID"):
        compare(script, both, ApiKey.HEARTBEAT, None, differs)
    return None


def test_fails_if_a_deliberate_difference_does_not_occur_or_a_version_is_missing() -> None:
    def script(ask: Conversation) -> None:
        ask.record(m.HeartbeatRequest(), 1, m.HeartbeatResponse())

    both = Brokers("ours", "theirs", {12: range(4)}, {12: range(5)})
    with pytest.raises(pytest.fail.Exception, match="(?s)no version 4 .*did not occur: Heartbeat.x"):
        compare(script, both, ApiKey.HEARTBEAT, None, (Differs("Heartbeat.x", "because"),))
