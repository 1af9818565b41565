"""The session of a consumer with its group, by its `group_protocol`. Imported when there is one: each takes time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.client.consumer.settings import CONSUMER_PROTOCOL, ConsumerSettings
from headrace.client.core.cluster import Cluster

if TYPE_CHECKING:
    from headrace.client.consumer.group_session import GroupSession
    from headrace.client.consumer.heartbeat_session import HeartbeatSession

Session: TypeAlias = "GroupSession | HeartbeatSession"


def session_of(cluster: Cluster, settings: ConsumerSettings) -> Session | None:
    """A new session; None without a group_id. Nothing is sent yet."""
    if settings.group_id is None:
        return None
    return (
        _heartbeat(cluster, settings) if settings.group_protocol == CONSUMER_PROTOCOL else _classic(cluster, settings)
    )


def resource_of(settings: ConsumerSettings, session: Session | None) -> Callable[[], dict[str, str | None]] | None:
    """The consumer's attributes in a push of its metrics; None if nothing is pushed."""
    if not settings.metrics_push:
        return None
    return lambda: {
        "group_id": settings.group_id,
        "group_instance_id": settings.group_instance_id,
        "group_member_id": None if session is None else session.member.member_id,
        "client_rack": settings.client_rack,
    }


def _heartbeat(cluster: Cluster, settings: ConsumerSettings) -> HeartbeatSession:
    from headrace.client.consumer.heartbeat_membership import HeartbeatMembership
    from headrace.client.consumer.heartbeat_session import HeartbeatSession, new_member_id

    assert settings.group_id is not None
    member = HeartbeatMembership(
        settings.group_id,
        new_member_id(),
        settings.times.max_poll_interval_ms,
        settings.group_instance_id,
        settings.client_rack,
        settings.group_remote_assignor,
    )
    return HeartbeatSession(cluster, member, settings.times)


def _classic(cluster: Cluster, settings: ConsumerSettings) -> GroupSession:
    from headrace.client.consumer.group_session import GroupSession
    from headrace.client.consumer.membership import Membership

    assert settings.group_id is not None
    membership = Membership(
        settings.group_id,
        settings.assignors,
        settings.times.session_timeout_ms,
        settings.times.max_poll_interval_ms,
        settings.group_instance_id,
        settings.client_rack,
    )
    return GroupSession(cluster, membership, settings.times)
