"""An instance cannot fill what the instances of a broker have room for: each has a bound of its own."""

from collections.abc import Iterator

import pytest

from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.instances.houses import Houses

SESSIONS_MAX = 2
SETTINGS = {
    "group.share.max.share.sessions": str(SESSIONS_MAX),
    "max.incremental.fetch.session.cache.slots": str(SESSIONS_MAX),
}


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (Instance("acme", "AAAAAAAAQACAAAAAAAAAAA"), Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA"))
    with Houses(tmp_path_factory.mktemp("share") / "data", instances, SETTINGS) as found:
        yield found


def share(wire: Asker, group: str, member: str, epoch: int = 0) -> int:
    """The error of a share session's request without partitions."""
    request = m.ShareFetchRequest(
        group_id=group, member_id=member, share_session_epoch=epoch, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
        max_records=100, batch_size=100, topics=[], forgotten_topics_data=[],
    )  # fmt: skip
    return int(wire.ask(request, 1).error_code)


def test_the_share_sessions_of_one_instance_leave_room_for_others(houses: Houses) -> None:
    with houses.ask("acme") as greedy, houses.ask("beta") as other, Asker(houses.bootstrap) as operator:
        for number in range(SESSIONS_MAX):
            assert share(greedy, f"g{number}", "AAAAAAAAQACAAAAAAAAAAA") == 0
        assert share(greedy, "more", "AAAAAAAAQACAAAAAAAAAAA") == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert share(other, "g0", "AAAAAAAAQACAAAAAAAAAAA") == 0
        for number in range(SESSIONS_MAX):
            assert share(operator, f"no-instance-{number}.g", "AAAAAAAAQACAAAAAAAAAAA") == 0
        more = share(operator, "another.g", "AAAAAAAAQACAAAAAAAAAAA")
        assert more == ErrorCode.SHARE_SESSION_LIMIT_REACHED, "a dot alone makes no room"
        assert share(greedy, "g0", "AAAAAAAAQACAAAAAAAAAAA", -1) == 0
        assert share(greedy, "more", "AAAAAAAAQACAAAAAAAAAAA") == 0, "a session has ended"


def test_the_fetch_sessions_of_one_instance_evict_nobody_elses(houses: Houses) -> None:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)

    def fetch(wire: Asker, session_id: int = 0, epoch: int = 0) -> m.FetchResponse:
        topics = [] if session_id else [m.FetchRequest.FetchTopic(topic="any", partitions=[part])]
        answer = wire.ask(m.FetchRequest(max_wait_ms=0, topics=topics, session_id=session_id, session_epoch=epoch), 12)
        assert isinstance(answer, m.FetchResponse)
        return answer

    with houses.ask("beta") as kept, Asker(houses.bootstrap) as operator, houses.ask("acme") as greedy:
        theirs = fetch(kept).session_id
        ours = fetch(operator).session_id
        assert theirs
        assert ours
        assert [bool(fetch(greedy).session_id) for _ in range(SESSIONS_MAX + 1)] == [True] * SESSIONS_MAX + [False]
        assert fetch(kept, theirs, 1).error_code == 0
        assert fetch(operator, ours, 1).error_code == 0
