"""A coordinator of one classic group as a few dictionaries: it answers when it likes, and may forget a member."""

from __future__ import annotations

from itertools import count

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message


class ModelCoordinator:
    """Requests in, answers into a mailbox per member. All members send the same one assignor."""

    def __init__(self) -> None:
        self.mail: dict[str, list[Message]] = {}
        self.generation = 0
        self._members: dict[str, bytes] = {}
        self._joining: set[str] = set()
        self._syncing: set[str] = set()
        self._assigned: dict[str, bytes] | None = None
        self._numbers = count()

    def join(self, request: m.JoinGroupRequest) -> Message | None:
        """An error at once, or None: the answer comes by mail."""
        if not request.member_id:
            return m.JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{next(self._numbers)}", members=[]
            )
        if request.member_id not in self._members and request.member_id in self.mail:
            return m.JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="", members=[])
        self.mail.setdefault(request.member_id, [])
        self._members[request.member_id] = bytes(request.protocols[0].metadata)
        self._rebalance()
        self._joining.add(request.member_id)
        self._complete()
        return None

    def sync(self, request: m.SyncGroupRequest) -> Message | None:
        """An error or the assignment at once, or None: the answer comes by mail."""
        code = self._code(request.member_id, request.generation_id)
        if code:
            return m.SyncGroupResponse(error_code=code)
        if request.assignments:
            self._assigned = {each.member_id: bytes(each.assignment) for each in request.assignments}
        self._syncing.add(request.member_id)
        if self._assigned is not None:
            for member_id in self._syncing:
                answer = m.SyncGroupResponse(error_code=0, assignment=self._assigned.get(member_id, b""))
                self.mail[member_id].append(answer)
            self._syncing.clear()
        return None

    def heartbeat(self, request: m.HeartbeatRequest) -> int:
        """An error code."""
        return self._code(request.member_id, request.generation_id)

    def knows(self, member_id: str) -> bool:
        """Whether the member is in the group."""
        return member_id in self._members

    def expire(self, member_id: str) -> None:
        """The member's session is over."""
        if self._members.pop(member_id, None) is None:
            return
        if member_id in self._joining:
            answer = m.JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="", members=[])
            self.mail[member_id].append(answer)
        self._rebalance()
        self._joining.discard(member_id)
        self._complete()

    def _rebalance(self) -> None:
        if not self._joining:
            for member_id in self._syncing:
                self.mail[member_id].append(m.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            self._syncing.clear()
        self._assigned = None
        self._is_preparing = True

    _is_preparing = True

    def _complete(self) -> None:
        if not self._members or self._joining != set(self._members):
            return
        self.generation += 1
        self._is_preparing = False
        leader = min(self._members)
        listed = [
            m.JoinGroupResponse.JoinGroupResponseMember(member_id=member_id, metadata=metadata)
            for member_id, metadata in self._members.items()
        ]
        for member_id in self._members:
            answer = m.JoinGroupResponse(
                error_code=0,
                generation_id=self.generation,
                protocol_name="cooperative-sticky",
                leader=leader,
                member_id=member_id,
                members=listed if member_id == leader else [],
            )
            self.mail[member_id].append(answer)
        self._joining.clear()

    def _code(self, member_id: str, generation: int) -> int:
        if member_id not in self._members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self._is_preparing else ErrorCode.NONE
