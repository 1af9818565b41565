"""The kinds of groups, by the versions of their record keys. A kind is imported when its first record is read.

Source: Kafka's `CoordinatorRecordType`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.classic.replay import replay as replay_classic

if TYPE_CHECKING:
    from headrace.coordinators.groups.loading import ReplayRecord

CLASSIC_KEY_VERSION = 2
CONSUMER_KEY_VERSIONS = frozenset({3, 4, 5, 6, 7, 8, 16})
SHARE_KEY_VERSIONS = range(10, 16)
STREAMS_KEY_VERSIONS = frozenset((17, 19, 20, 21, 22, 23))


def replay_of(key_version: int) -> ReplayRecord | None:
    """What replays records whose keys have this version; None for versions that no kind has."""
    if key_version == CLASSIC_KEY_VERSION:
        return replay_classic
    if key_version in CONSUMER_KEY_VERSIONS:
        from headrace.coordinators.groups.consumer.records import replay as replay_consumer

        return replay_consumer
    if key_version in SHARE_KEY_VERSIONS:
        from headrace.coordinators.groups.share.replay import replay as replay_share

        return replay_share
    if key_version in STREAMS_KEY_VERSIONS:
        from headrace.coordinators.groups.streams.records import replay as replay_streams

        return replay_streams
    return None
