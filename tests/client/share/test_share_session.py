"""A share session's requests: all at first, then what has changed, and all again after the broker has dropped it."""

from headrace.client.consumer.fetching import FETCH_SIZES
from headrace.client.share.share_session import FetchLimits, Place, ShareSessionHandler
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import Offset

LIMITS = FetchLimits(FETCH_SIZES, 10, 0)
A, B = (b"a" * 16, 0), (b"a" * 16, 1)


def fetch(session: ShareSessionHandler, *wanted: Place, acknowledged: tuple[Place, ...] = ()) -> m.ShareFetchRequest:
    return session.fetch_request(wanted, {place: {Offset(7): 1} for place in acknowledged}, LIMITS)


def asked(request: m.ShareFetchRequest) -> list[Place]:
    return [(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions]


def test_later_requests_say_what_has_changed() -> None:
    session = ShareSessionHandler("g", "m")
    first = fetch(session, A)
    assert (first.share_session_epoch, asked(first)) == (0, [A])
    session.answered(0)
    second = fetch(session, A, B)
    assert (second.share_session_epoch, asked(second)) == (1, [B])
    session.answered(0)
    third = fetch(session, B, acknowledged=(A,))
    assert asked(third) == [A]
    assert third.topics[0].partitions[0].acknowledgement_batches[0].acknowledge_types == [1]
    assert [topic.partitions for topic in third.forgotten_topics_data] == [[0]]


def test_a_request_that_was_not_answered_is_said_with_the_same_epoch() -> None:
    session = ShareSessionHandler("g", "m")
    session.answered(0)
    assert session.acknowledge_request({}).share_session_epoch == 1
    session.answered(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert session.acknowledge_request({}).share_session_epoch == 1


def test_a_session_that_the_broker_dropped_begins_anew() -> None:
    session = ShareSessionHandler("g", "m")
    fetch(session, A, B)
    session.answered(0)
    session.answered(ErrorCode.SHARE_SESSION_NOT_FOUND)
    assert not session.is_open
    again = fetch(session, A)
    assert (again.share_session_epoch, asked(again), again.forgotten_topics_data) == (0, [A], [])


def test_the_last_request_ends_the_session() -> None:
    session = ShareSessionHandler("g", "m")
    session.answered(0)
    assert session.acknowledge_request({}, is_last=True).share_session_epoch == -1
