"""ShareFetch and ShareAcknowledge, asked of both: sessions, acquired records, acknowledgements and their refusals."""

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation, batch
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

FETCH, ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
GROUP_CONFIG, SET = 32, 0
ONE, TWO = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
UNKNOWN_ID = b"nobody has this."
RENEW_FROM = 2

Batches = Sequence[tuple[int, int, Sequence[int]]]


class Queue:
    """A topic of one partition and a share group that begins at its first record, with members' sessions."""

    def __init__(self, ask: Conversation, *batches: str, **configs: str) -> None:
        self.ask, self.group, self.topic = ask, ask.name("g"), ask.topic()
        self.id = ask.topic_id(self.topic)
        self._epochs: dict[str, int] = {}
        for name, value in {"share.auto.offset.reset": "earliest", **configs}.items():
            config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=value, config_operation=SET)
            resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=GROUP_CONFIG, resource_name=self.group, configs=[config]
            )
            ask.quietly(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        joining = m.ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=ONE, member_epoch=0, subscribed_topic_names=[self.topic]
        )
        ask.settle(lambda answer: answer.assignment is not None and answer.assignment.topic_partitions, joining, 1)
        ask.settle(
            lambda answer: answer.responses and answer.responses[0].partitions[0].error_code == 0,
            self.fetching(epoch=0),
        )
        self._epochs[ONE] = 1
        for each in batches:
            ask.produce(self.topic, batch(tuple(each)))

    def fetching(
        self, *, member: str = ONE, epoch: int, acknowledged: Batches = (), partition: int = 0, **more: Any
    ) -> m.ShareFetchRequest:
        """A ShareFetch; keywords set fields."""
        Acknowledged = m.ShareFetchRequest.AcknowledgementBatch
        wanted = m.ShareFetchRequest.FetchPartition(
            partition_index=partition,
            acknowledgement_batches=[
                Acknowledged(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for first, last, types in acknowledged
            ],
        )
        request = m.ShareFetchRequest(
            group_id=self.group,
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[m.ShareFetchRequest.FetchTopic(topic_id=self.id, partitions=[wanted])],
        )
        for name, value in more.items():
            setattr(request, name, value)
        return request

    def fetch(self, acknowledged: Batches = (), *, member: str = ONE, **more: Any) -> Any:
        """Asks for a ShareFetch with the session's next epoch, which grows if it succeeds."""
        epoch = self._epochs.setdefault(member, 0)
        version = self.ask.version if self.ask.api is FETCH else 1
        answer = self.ask(self.fetching(member=member, epoch=epoch, acknowledged=acknowledged, **more), version)
        self._epochs[member] += not answer.error_code
        return answer

    def acknowledge(self, *acknowledged: tuple[int, int, Sequence[int]], member: str = ONE, **more: Any) -> None:
        """Asks for a ShareAcknowledge with the session's next epoch."""
        epoch = more.pop("epoch", self._epochs.get(member, 1))
        Acknowledged = m.ShareAcknowledgeRequest.AcknowledgementBatch
        wanted = m.ShareAcknowledgeRequest.AcknowledgePartition(
            partition_index=more.pop("partition", 0),
            acknowledgement_batches=[
                Acknowledged(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for first, last, types in acknowledged
            ],
        )
        request = m.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[m.ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.id, partitions=[wanted])],
        )
        for name, value in more.items():
            setattr(request, name, value)
        version = self.ask.version if self.ask.api is ACKNOWLEDGE else 1
        answer = self.ask(request, version)
        if not answer.error_code and epoch > 0:
            self._epochs[member] = epoch + 1


@scenario(FETCH)
def test_members_acquire_accept_release_and_reject(ask: Conversation) -> None:
    queue = Queue(ask, "abc", "defg", "h")
    queue.fetch(max_records=4)
    queue.fetch(member=TWO)
    queue.fetch([(0, 6, [ACCEPT])])
    queue.fetch([(7, 7, [RELEASE])], member=TWO)
    queue.fetch()
    queue.fetch([(7, 7, [REJECT])])


@scenario(FETCH)
def test_each_record_may_have_its_own_acknowledgement(ask: Conversation) -> None:
    queue = Queue(ask, "abcdef")
    queue.fetch()
    queue.fetch([(0, 5, [ACCEPT, RELEASE, GAP, REJECT, RELEASE, RELEASE])])
    queue.fetch([(4, 5, [ACCEPT])])
    queue.fetch([(1, 1, [RELEASE])])
    queue.fetch()


@scenario(FETCH)
def test_batch_size_and_limits(ask: Conversation) -> None:
    queue = Queue(ask, *(["ab"] * 6))
    queue.fetch(max_records=5, batch_size=3)
    queue.fetch(max_records=1, batch_size=1)
    queue.fetch(max_records=0)
    queue.fetch(max_bytes=0)
    queue.fetch(max_bytes=1)
    queue.fetch(max_wait_ms=0)


@scenario(FETCH, range(RENEW_FROM, 3))
def test_the_record_limit_gives_no_record_more(ask: Conversation) -> None:
    queue = Queue(ask, "abcdef", "gh")
    queue.fetch(max_records=4, share_acquire_mode=1)
    queue.fetch(max_records=3, share_acquire_mode=1)
    queue.fetch(max_records=3, share_acquire_mode=1)
    queue.fetch([(0, 3, [RELEASE])], max_records=2, share_acquire_mode=1)
    queue.fetch()


@scenario(FETCH, range(RENEW_FROM, 3))
def test_renewals_fetch_nothing(ask: Conversation) -> None:
    queue = Queue(ask, "abc")
    queue.fetch()
    nothing: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    queue.fetch([(0, 2, [RENEW])], **nothing)
    queue.fetch([(0, 2, [RENEW, ACCEPT, RENEW])], **nothing)
    queue.fetch([(0, 0, [RENEW])], is_renew_ack=True)
    queue.fetch([(0, 0, [RENEW])])


@scenario(FETCH)
def test_a_record_that_is_released_again_and_again(ask: Conversation) -> None:
    queue = Queue(ask, "abcdefgh")
    queue.fetch()
    queue.fetch([(0, 7, [RELEASE])])
    queue.fetch([(0, 7, [RELEASE])])
    for _ in range(3):
        answer = queue.fetch()
        acquired = [each for topic in answer.responses for each in topic.partitions for each in each.acquired_records]
        queue.fetch([(each.first_offset, each.last_offset, [RELEASE]) for each in acquired], max_records=0)


@scenario(FETCH)
def test_sessions_begin_go_on_and_end(ask: Conversation) -> None:
    queue = Queue(ask, "abc")
    for epoch in (5, 2, 0):
        ask(queue.fetching(epoch=epoch))
    ask(queue.fetching(epoch=0, acknowledged=[(0, 2, [ACCEPT])]))
    ask(queue.fetching(epoch=1, acknowledged=[(0, 2, [RELEASE])]))
    ask(queue.fetching(epoch=-1))
    ask(queue.fetching(epoch=-1))
    ask(queue.fetching(epoch=1))
    ask(queue.fetching(member=TWO, epoch=0))
    for member in ("", None, "x" * 37):
        ask(queue.fetching(member=member, epoch=0))  # type: ignore[arg-type]
    ask(queue.fetching(epoch=0, group_id=None))


@scenario(FETCH)
def test_unknown_topics_and_partitions(ask: Conversation) -> None:
    queue = Queue(ask, "abc")
    queue.fetch(partition=7)
    forgotten = m.ShareFetchRequest.ForgottenTopic(topic_id=queue.id, partitions=[7])
    queue.fetch([(0, 2, [ACCEPT])], partition=7, forgotten_topics_data=[forgotten])
    queue.fetch(topics=[])


@scenario(FETCH)
def test_illegal_acknowledgements_in_a_fetch(ask: Conversation) -> None:
    queue = Queue(ask, "abc", "def")
    queue.fetch(max_records=3)
    illegal: Sequence[Batches] = (
        [(2, 1, [ACCEPT])],
        [(0, 1, [ACCEPT]), (0, 2, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [5])],
        [(0, 2, [-1])],
        [(0, 2, [RENEW])],
        [(0, 9, [ACCEPT])],
        [(8, 9, [ACCEPT])],
        [(0, 0, [ACCEPT]), (0, 0, [ACCEPT])],
    )
    for batches in illegal:
        queue.fetch(batches, max_records=0)
    queue.fetch(member=TWO)
    queue.fetch([(0, 2, [ACCEPT])], member=TWO)
    queue.fetch([(3, 5, [ACCEPT])])
    queue.fetch([(0, 2, [ACCEPT])])
    queue.fetch([(0, 2, [ACCEPT])])


@scenario(ACKNOWLEDGE)
def test_acknowledges_by_a_request_of_its_own(ask: Conversation) -> None:
    queue = Queue(ask, "abc", "def")
    queue.fetch()
    queue.acknowledge((0, 1, [ACCEPT]), (2, 4, [RELEASE, REJECT, GAP]))
    queue.acknowledge((0, 1, [ACCEPT]))
    queue.acknowledge((5, 5, [ACCEPT]))
    queue.acknowledge()
    queue.fetch()


@scenario(ACKNOWLEDGE)
def test_illegal_acknowledgements(ask: Conversation) -> None:
    queue = Queue(ask, "abc", "def")
    queue.fetch(max_records=3)
    queue.fetch(member=TWO)
    for first, last, types in (
        (2, 1, [ACCEPT]),
        (0, 2, []),
        (0, 2, [ACCEPT, ACCEPT]),
        (0, 2, [5]),
        (0, 2, [RENEW]),
        (3, 5, [ACCEPT]),
        (2, 3, [ACCEPT]),
        (0, 9, [ACCEPT]),
        (7, 9, [ACCEPT]),
    ):
        queue.acknowledge((first, last, types))
    queue.acknowledge((0, 0, [ACCEPT]), partition=7)
    queue.acknowledge((0, 2, [ACCEPT]))


@scenario(ACKNOWLEDGE)
def test_sessions_of_acknowledgements(ask: Conversation) -> None:
    queue = Queue(ask, "abc")
    queue.fetch()
    for epoch in (0, 7):
        queue.acknowledge((0, 2, [ACCEPT]), epoch=epoch)
    queue.acknowledge((0, 2, [ACCEPT]), member=TWO)
    queue.acknowledge((0, 0, [ACCEPT]), epoch=-1)
    queue.acknowledge((1, 2, [ACCEPT]), epoch=-1)
    ask(queue.fetching(epoch=0), 1)


@scenario(ACKNOWLEDGE, range(RENEW_FROM, 3))
def test_renews_locks(ask: Conversation) -> None:
    queue = Queue(ask, "abc")
    queue.fetch()
    queue.acknowledge((0, 2, [RENEW]), is_renew_ack=True)
    queue.acknowledge((0, 2, [RENEW, ACCEPT, RENEW]), is_renew_ack=True)
    queue.acknowledge((0, 0, [RENEW]))
    queue.acknowledge((0, 2, [ACCEPT]))
