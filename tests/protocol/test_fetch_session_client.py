"""A follower's half of a fetch session."""

from headrace.errors import ErrorCode
from headrace.limits import INT32_MAX
from headrace.protocol.conversation.fetch_session_client import FetchSessionClient


def test_it_begins_with_everything_and_goes_on_with_changes() -> None:
    talk = FetchSessionClient()
    assert (talk.session, talk.is_full) == ((0, 0), True)
    assert talk.answered(0, 77)
    assert (talk.session, talk.is_full) == ((77, 1), False)
    assert talk.answered(0, 77)
    assert talk.session == (77, 2)


def test_a_leader_without_room_for_a_session_is_told_everything_each_time() -> None:
    talk = FetchSessionClient()
    for _ in range(3):
        assert talk.answered(0, 0)
        assert (talk.session, talk.is_full) == ((0, 0), True)


def test_a_session_that_the_leader_has_lost_begins_anew_and_one_that_it_has_is_ended_first() -> None:
    talk = FetchSessionClient()
    talk.answered(0, 77)
    assert not talk.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert talk.session == (0, 0)
    talk.answered(0, 78)
    assert not talk.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert talk.session == (78, 0)


def test_after_silence_nobody_knows_what_was_heard() -> None:
    talk = FetchSessionClient()
    talk.answered(0, 77)
    talk.handle_error()
    assert (talk.session, talk.is_full) == ((77, 0), True)


def test_an_answer_of_another_session_is_none() -> None:
    talk = FetchSessionClient()
    talk.answered(0, 77)
    assert not talk.answered(0, 78)
    assert talk.is_full


def test_epochs_go_on_from_one_after_the_largest() -> None:
    talk = FetchSessionClient()
    talk.answered(0, 77)
    talk.epoch = INT32_MAX
    talk.answered(0, 77)
    assert talk.session == (77, 1)
