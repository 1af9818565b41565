"""The results of requests to share groups, which their callers act upon: they ask the persister, and answer clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.protocol import messages as m


class RequestRefused(Exception):
    """A request that is refused: an error code and its explanation."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error, self.message = error, message


class ToInitialize(NamedTuple):
    """Share partitions whose state the persister is to begin."""

    state_epoch: int
    partitions: Mapping[bytes, frozenset[int]]


class Beat(NamedTuple):
    """The result of a heartbeat."""

    response: m.ShareGroupHeartbeatResponse
    to_initialize: ToInitialize | None = None


class Altered(NamedTuple):
    """The result of the first step of AlterShareGroupOffsets: the epoch for the persister, or an error."""

    error: ErrorCode = ErrorCode.NONE
    state_epoch: int = 0


class ToDelete(NamedTuple):
    """Share partitions whose state the persister is to remove, or an error."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[bytes, frozenset[int]] = {}
    unknown: tuple[str, ...] = ()
    """Topics without state in the group."""


def failed_heartbeat(error: ErrorCode, message: str | None = None) -> m.ShareGroupHeartbeatResponse:
    """The answer to a heartbeat that failed."""
    return m.ShareGroupHeartbeatResponse(error_code=error, error_message=message)
