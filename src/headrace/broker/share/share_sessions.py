"""Share sessions: the partitions that each member of a share group fetches from this broker.

    epoch    0      a new session, in place of the member's earlier one
             1 …    the next request of the session: partitions to add, to forget; then the same again
             -1     the end: the member's records are released
    another one                    INVALID_SHARE_SESSION_EPOCH
    no such session                SHARE_SESSION_NOT_FOUND
    no room for another session    SHARE_SESSION_LIMIT_REACHED

A session belongs to the connection that opened it, and ends with it. What the broker keeps of a group in memory ends
with the group's last session, when the connection closes. Each instance (tenant) has room of its own, and so has the
operator: nobody can fill another's. Pure. Source: Kafka's ShareSession, ShareSessionCache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from headrace.broker.fetch.fetch_sessions import next_epoch
from headrace.coordinators.share_state.persister import TopicIdPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import SHARE_SESSION_PARTITIONS_MAX

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_ENDED_GROUPS_MAX = 16


class _Room:
    """What the sessions of one owner take."""

    __slots__ = ("owner", "partitions", "sessions")

    def __init__(self, owner: str) -> None:
        self.owner, self.sessions, self.partitions = owner, 0, 0


class ShareSession:
    """One member's session."""

    __slots__ = ("connection", "epoch", "group_id", "member_id", "partitions", "room")

    def __init__(
        self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], connection: Hashable, room: _Room
    ) -> None:
        self.group_id, self.member_id, self.connection, self.room = group_id, member_id, connection, room
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)
        """In the order of fetches; True: the next response contains the partition even if it has no records."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must have."""

    def noted(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Notes the result of a partition; returns whether the response must contain it. A partition with records goes
        to the end of the order."""
        must = self.partitions.get(partition)
        if must is None:  # forgotten meanwhile
            return has_records or has_error
        if has_records:
            del self.partitions[partition]
            self.partitions[partition] = False
        else:
            self.partitions[partition] = has_error
        return must or has_records or has_error


class ShareSessionCache:
    """Every share session of one broker."""

    def __init__(
        self,
        slots: int,
        partitions_max: int = SHARE_SESSION_PARTITIONS_MAX,
        owner_of: Callable[[str], str] = lambda _group_id: "",
    ) -> None:
        """`slots`, `partitions_max`: of each owner. `owner_of`: the instance of a group; empty for the operator's."""
        self._slots, self._partitions_max, self._owner_of = slots, partitions_max, owner_of
        self._rooms: dict[str, _Room] = {}
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._per_group: Counter[str] = Counter()
        self._by_connection: dict[Hashable, dict[str, set[ShareSession]]] = {}
        self._left: list[str] = []

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return sum(room.partitions for room in self._rooms.values())

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """The session of a member, or None."""
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._per_group

    def open(
        self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], connection: Hashable
    ) -> ShareSession:
        """Begins a session, and ends the member's earlier one. Raises SHARE_SESSION_LIMIT_REACHED."""
        earlier = self.get(group_id, member_id)
        if earlier is not None:
            self.end(earlier)
        owner = self._owner_of(group_id)
        room = self._rooms.get(owner) or _Room(owner)
        session = ShareSession(group_id, member_id, partitions, connection, room)
        if room.sessions >= self._slots or room.partitions + len(session.partitions) > self._partitions_max:
            raise KafkaError(
                f"{room.sessions} share sessions with {room.partitions} partitions are open, of {self._slots} and "
                f"{self._partitions_max}: close a consumer, or raise group.share.max.share.sessions",
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
            )
        self._rooms[owner] = room
        room.sessions += 1
        room.partitions += len(session.partitions)
        self._sessions[group_id, member_id] = session
        self._per_group[group_id] += 1
        self._by_connection.setdefault(connection, {}).setdefault(group_id, set()).add(session)
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session whose request has this epoch, or the final one.

        Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.get(group_id, member_id)
        if session is None:
            raise KafkaError(f"member {member_id} has no share session", ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise KafkaError(
                f"the share session of member {member_id} expects epoch {session.epoch}, not {epoch}",
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            )
        return session

    def resume(
        self, session: ShareSession, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Applies the changes of a session's next request. Raises SHARE_SESSION_NOT_FOUND when it has grown too large:
        the client begins another one."""
        before = len(session.partitions)
        for each in added:
            session.partitions.setdefault(each, True)
        for each in forgotten:
            session.partitions.pop(each, None)
        session.room.partitions += len(session.partitions) - before
        if session.room.partitions > self._partitions_max:
            self.end(session)
            raise KafkaError("all share sessions have too many partitions", ErrorCode.SHARE_SESSION_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)

    def advance(self, session: ShareSession) -> None:
        """Takes the next request of a session, one that changes no partitions."""
        session.epoch = next_epoch(session.epoch)

    def end(self, session: ShareSession) -> None:
        """Forgets a session. A connection with many groups that have ended forgets some of them too (`left`)."""
        if self._sessions.get((session.group_id, session.member_id)) is not session:
            return
        del self._sessions[session.group_id, session.member_id]
        room = session.room
        room.sessions -= 1
        room.partitions -= len(session.partitions)
        if not room.sessions:
            del self._rooms[room.owner]
        self._per_group[session.group_id] -= 1
        if not self._per_group[session.group_id]:
            del self._per_group[session.group_id]
        groups = self._by_connection.get(session.connection)
        if groups is not None:
            groups[session.group_id].discard(session)
            while len(groups) > _ENDED_GROUPS_MAX:
                ended = next((group for group, sessions in groups.items() if not sessions), None)
                if ended is None:
                    break
                del groups[ended]
                self._left.append(ended)

    def left(self) -> list[str]:
        """The groups that connections have forgotten since the last call, and that have no session."""
        left, self._left = self._left, []
        return [group for group in left if group not in self._per_group]

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        """The sessions that a connection opened and that have not ended."""
        return [session for sessions in self._by_connection.get(connection, {}).values() for session in sessions]

    def closed(self, connection: Hashable) -> list[str]:
        """Forgets a connection whose sessions have ended; returns the groups that had some, and may have none now."""
        return [group for group in self._by_connection.pop(connection, {}) if group not in self._per_group]
