"""Replicas on their way from one data directory to another of the same broker.

    asked      ─▶ copying, a piece of each in turn, by a thread ─▶ caught up ─▶ swapped ─▶ on the disk ─▶ done
    cancelled  by asking for the directory where the replica is; asking for a third one begins anew

All moves share `replica.alter.log.dirs.io.max.bytes.per.second`. A full disk makes a move wait. A log that moves is not
cleaned, since cleaning replaces what was copied. Moves that a stop or a crash interrupted are taken up by `resume`.
Source: Kafka's ReplicaManager (alterReplicaLogDirs), ReplicaAlterLogDirsThread; KIP-113.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headrace.broker.replica_manager import ReplicaManager
from headrace.errors import ErrorCode, InvalidTopic, KafkaError, NotLeaderOrFollower, StorageError
from headrace.log.moving import LogMove, future_name
from headrace.log.names import NAME_CHARS_MAX
from headrace.types import TopicPartition

log = logging.getLogger(__name__)
PIECE_BYTES_MAX = 4 << 20
PIECES_PER_SECOND_MIN = 4
"""A low rate is kept by small pieces."""
ROLL_BYTES_MIN = 1 << 20
"""A larger active segment is rolled before the swap, so that little is left to do in it."""
UNLIMITED = 1 << 40
"""Bytes in a second that no disk copies."""

RETRY_S = 5.0
POLL_S = 0.02


class ReplicaMoves:
    """The moves of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        tasks: asyncio.TaskGroup,
        *,
        now_ms: Callable[[], int],
        bytes_per_second: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._now_ms = now_ms
        self._bytes_per_second = bytes_per_second
        self._loop = asyncio.get_running_loop()
        self._moves: dict[TopicPartition, LogMove] = {}
        self._then: dict[TopicPartition, Path] = {}
        """Where replicas go once the move that can no longer be cancelled is done."""
        self._resting: dict[TopicPartition, float] = {}
        self._cancelled: list[LogMove] = []
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None

    def close(self) -> None:
        """No more is copied; the next start begins anew."""
        for task in (self._task, self._resuming):
            if task is not None:
                task.cancel()

    def to(self, directory: Path) -> list[LogMove]:
        """The replicas that are on their way to a data directory."""
        moves = [each for each in self._moves.values() if each.directory == directory and not each.is_swapped]
        return [each for each in moves if self._logs.get(each.log.partition) is each.log]

    # Asked for

    def ask(self, key: TopicPartition, path: str) -> ErrorCode:
        """Begins to move a replica to a data directory, or cancels that by naming the one where it is; what Kafka
        answers."""
        try:
            self._ask(key, Path(path))
        except NotLeaderOrFollower:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        except KafkaError as error:
            log.warning("%s is not moved to %s: %s", key, path, error)
            return error.code
        return ErrorCode.NONE

    def _ask(self, key: TopicPartition, path: Path) -> None:
        if len(future_name(key)) > NAME_CHARS_MAX:
            raise InvalidTopic("The topic name is too long.")
        if any(each.absolute() == path for each in self._logs.offline):
            raise StorageError(f"Log directory {path} is offline")
        directory = self._logs.directory(path) if path.is_absolute() else None
        if directory is None:
            raise KafkaError(f"{path} is no data directory of this broker", ErrorCode.LOG_DIR_NOT_FOUND)
        try:
            moved = self._replicas.get(*key).log
        except NotLeaderOrFollower:
            self._logs.preferred[key] = directory.path  # it may be about to come
            raise
        self._then.pop(key, None)
        self._logs.futures.pop(key, None)
        move = self._moves.get(key)
        if move is not None and move.is_swapped:
            if move.directory != directory.path:
                self._then[key] = directory.path
            return
        if move is not None and move.directory != directory.path:
            self._end(key)
            self._cancelled.append(move)
        if key not in self._moves and moved.directory.parent != directory.path:
            if self._logs.offline:  # the copy may be in a directory that is offline
                raise StorageError(f"{key} cannot be moved while {', '.join(map(str, self._logs.offline))} is offline")
            self._begin(key, directory.path)

    def resume(self) -> None:
        """Takes up the moves that the last stop interrupted, as the controller gives the replicas back."""
        if self._logs.futures:
            self._resuming = self._tasks.create_task(self._resume())

    async def _resume(self) -> None:
        futures = self._logs.futures
        while futures:
            for key in [key for key in futures if self._replicas.find(key) is not None]:
                directory = futures.pop(key)
                is_there = self._replicas.get(*key).log.directory.parent == directory
                if not is_there and key not in self._moves and directory not in self._logs.offline:
                    self._begin(key, directory)
            await asyncio.sleep(RETRY_S)

    def _begin(self, key: TopicPartition, directory: Path) -> None:
        moved = self._replicas.get(*key).log
        self._moves[key] = LogMove(self._logs.files, moved, directory)
        self._logs.cleaner.paused.add(key)
        log.info("%s is being moved from %s to %s", key, moved.directory.parent, directory)
        if self._task is None or self._task.done():
            self._task = self._tasks.create_task(self._run())

    def _end(self, key: TopicPartition) -> None:
        self._moves.pop(key, None)
        self._resting.pop(key, None)
        self._logs.checkpoints.incoming.pop(key, None)
        self._logs.cleaner.paused.discard(key)

    def directory_failed(self, directory: Path) -> None:
        """Ends the moves from and to a directory that has failed. Copies stay, for when it is back."""
        for key, move in list(self._moves.items()):
            if directory in (move.directory, move.source.parent):
                log.warning("%s is not moved to %s any more: %s failed", key, move.directory, directory)
                self._end(key)

    # Doing it

    async def _run(self) -> None:
        """Until no replica is to be moved."""
        while self._moves or self._cancelled:
            is_idle = True
            while self._cancelled:
                await self._drop(self._cancelled.pop())
            for key, move in list(self._moves.items()):
                if self._moves.get(key) is not move or self._resting.get(key, 0) > self._loop.time():
                    continue
                try:
                    is_idle &= not await self._step(key, move)
                except OSError as error:
                    if self._moves.get(key) is move:  # else its directory has failed, and that is said
                        log.warning("%s cannot be moved to %s now: %s", key, move.directory, error)
                        self._resting[key] = self._loop.time() + RETRY_S
            if is_idle:
                await asyncio.sleep(POLL_S)

    async def _step(self, key: TopicPartition, move: LogMove) -> bool:
        """Brings a move a little further; False when it has to wait. Raises OSError."""
        if self._logs.get(key) is not move.log:
            self._end(key)
            await self._call(move.remove_source if move.is_swapped else move.drop)
            return True
        if move.is_swapped:
            return await self._finish(key, move)
        if not move.is_begun:
            await self._call(move.begin)
            return True
        rate = self._bytes_per_second()
        piece = move.next_piece(max(1, int(min(PIECE_BYTES_MAX, rate / PIECES_PER_SECOND_MIN))))
        if piece is not None and not move.is_last(piece):
            try:
                await self._call(lambda: move.copy(piece))
            except FileNotFoundError:
                return False  # the segment was deleted; another look is taken
            if piece.size and rate < UNLIMITED:
                await asyncio.sleep(piece.size / rate)
            return True
        if self._logs.cleaner.is_busy_with(move.log) or move.log.failure is not None:
            return False
        if not move.has_rolled and move.log.active.size > ROLL_BYTES_MIN:
            move.has_rolled = True
            move.log.roll(self._now_ms())
            return True
        return self._swap(key, move)

    def _swap(self, key: TopicPartition, move: LogMove) -> bool:
        if move.log.log_start_offset > move.log.segments[0].base_offset:  # no segment's name says it
            self._logs.checkpoints.incoming[key] = move.directory
            self._logs.checkpoint_log_starts(self._now_ms())
        if not move.swap(self._now_ms()):
            return True
        self._logs.checkpoints.incoming.pop(key, None)
        self._logs.moved(move.log, move.source.parent)
        return True

    async def _finish(self, key: TopicPartition, move: LogMove) -> bool:
        if not move.is_safe:
            return False
        await self._call(move.finish)
        if self._moves.get(key) is move:
            self._end(key)
            log.info("%s was moved to %s", key, move.directory)
            then = self._then.pop(key, None)
            if then is not None and self._logs.get(key) is move.log and then != move.directory:
                self._begin(key, then)
        return True

    async def _call(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(None, work)

    async def _drop(self, move: LogMove) -> None:
        try:
            await self._call(move.drop)
        except OSError as error:  # the next start removes it
            log.warning("%s could not be removed: %s", move.path, error)
