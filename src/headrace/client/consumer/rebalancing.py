"""Brings what a consumer reads in line with its group, and tells the application. For the consumer's thread.

What goes is committed and told before it goes; what comes is told before its first record. What stays is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from headrace.client.consumer.positions import Positions
from headrace.client.consumer.sessions import Session
from headrace.client.consumer.subscription import SubscriptionState
from headrace.client.core.timing import Deadline
from headrace.client.metrics.consuming import ConsumerMetrics
from headrace.types import TopicPartition


class Rebalancing:
    """The subscription of a member, and the partitions that it holds for it."""

    def __init__(
        self, session: Session, positions: Positions, commit: Callable[[], None], metrics: ConsumerMetrics
    ) -> None:
        """`commit` commits what was consumed, if that is automatic."""
        self._session = session
        self._positions = positions
        self._commit = commit
        self._metrics = metrics

    def follow(self, subscription: SubscriptionState, deadline: Deadline) -> None:
        """Join the group if need be, and apply a new assignment.

        While this member still holds partitions, nothing is waited for: their records come meanwhile.
        """
        session = self._session
        if session.follows_topics and subscription.has_changed():
            session.member.rejoin()
        session.polled()
        self._metrics.is_settled(settled=session.is_settled)
        while not session.is_settled:
            self._give_up(subscription, session.to_give_up(subscription))
            wait = Deadline.after_ms(0) if self._positions.assigned else deadline
            assigned = session.advance(subscription, wait)
            if assigned is not None:
                self._take(subscription, assigned)
                self._metrics.is_settled(settled=session.is_settled)
            elif wait.expired and not session.to_give_up(subscription):
                return

    def give_all_up(self, subscription: SubscriptionState) -> None:
        """The member is about to leave."""
        self._give_up(subscription, list(self._positions.assigned))

    def leave(self, subscription: SubscriptionState) -> None:
        """Give everything up, and leave the group."""
        self.give_all_up(subscription)
        self._session.leave()

    def _take(self, subscription: SubscriptionState, assigned: list[TopicPartition]) -> None:
        """Read what is assigned: give up what is not, keep the rest as it is."""
        before = set(self._positions.assigned)
        try:
            self._give_up(subscription, before.difference(assigned))
        finally:  # the member has taken the assignment: it comes once
            subscription.joined(subscription.latest_topics)
            self._positions.use(assigned)
            subscription.tell_assigned([partition for partition in assigned if partition not in before])

    def _give_up(self, subscription: SubscriptionState, partitions: Collection[TopicPartition]) -> None:
        """Give partitions up: committed, if this member is still in the group, and lost if it is not."""
        going = [partition for partition in self._positions.assigned if partition in partitions]
        try:
            if going:
                self._end_reading(subscription, going)
        finally:
            self._positions.use([partition for partition in self._positions.assigned if partition not in partitions])
            self._session.given_up(partitions)

    def _end_reading(self, subscription: SubscriptionState, going: list[TopicPartition]) -> None:
        is_lost = not self._session.is_member
        try:
            if not is_lost:
                self._commit()
        finally:
            subscription.tell_revoked(going, is_lost=is_lost)
