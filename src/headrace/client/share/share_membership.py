"""A member of a share group, and its heartbeats. Partitions are shared, so the member gives nothing up and says nothing
of what it holds: what the last answer assigned counts at once. Source: Kafka's `ShareMembershipManager`."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.consumer.heartbeat_membership import Answer, HeartbeatMembership
from headrace.client.consumer.heartbeat_session import HeartbeatSession
from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

_LEAVE_EPOCH = -1


class ShareMembership(HeartbeatMembership):
    """The state of a member of a share group."""

    @property
    def has_news(self) -> bool:
        """Whether the next heartbeat is to be sent at once."""
        return not self._must_subscribe and (self._sent is None or self._sent[0] != self._subscribed)

    def request(self) -> m.ShareGroupHeartbeatRequest:
        """The next heartbeat."""
        is_new = self._sent is None or self._sent[0] != self._subscribed
        is_full = self._sent is None
        self._sent = (self._subscribed, frozenset())
        return m.ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            rack_id=self._rack if is_full else None,
            subscribed_topic_names=list(self._subscribed[0] or ()) if is_new else None,
        )

    def assigned(self, names: Mapping[bytes, str]) -> list[TopicPartition] | None:
        """What the member is to read from now on, or None if that has not changed."""
        if self._target is None:
            return None
        named = {names[topic_id]: topic_id for topic_id in self._target if topic_id in names}
        found = [TopicPartition(topic, each) for topic, topic_id in named.items() for each in self._target[topic_id]]
        is_whole = len(named) == len(self._target)
        if not is_whole and self.owned == frozenset(found):
            return None
        if is_whole:
            self._target = None
        self.owned, self._ids = frozenset(found), named
        return found

    @property
    def places(self) -> dict[TopicPartition, tuple[bytes, int]]:
        """The assigned partitions by topic id."""
        return {each: (self._ids[each.topic], each.partition) for each in self.owned}

    def given_up(self, partitions: object) -> None:
        """Nothing is given up."""

    def leave_request(self) -> m.ShareGroupHeartbeatRequest:
        """The heartbeat with which the member leaves."""
        return m.ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=_LEAVE_EPOCH, subscribed_topic_names=None
        )

    def error(self, code: int, what: str) -> KafkaError:
        """The error for a code, with what to do about it."""
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return error_for(
                code,
                f"{what}; the cluster serves no share groups: they need Apache Kafka 4.2 or headrace, with "
                "share.version=1",
            )
        return super().error(code, what)

    def _fence(self) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        super()._fence()


class ShareGroupSession(HeartbeatSession):
    """The session of a member of a share group with its coordinator."""

    _api_key = ApiKey.SHARE_GROUP_HEARTBEAT
    _answer: type[Answer] = m.ShareGroupHeartbeatResponse
