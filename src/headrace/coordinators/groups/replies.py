"""The reply type of an open JoinGroup, SyncGroup, OffsetCommit or TxnOffsetCommit request: a call with its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.protocol import messages as m

Response: TypeAlias = "m.JoinGroupResponse | m.SyncGroupResponse | m.OffsetCommitResponse | m.TxnOffsetCommitResponse"
Reply: TypeAlias = "Callable[[Response], None]"
