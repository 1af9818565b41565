"""Moves replicas between the data directories of this broker.

    requested  ─▶ copying, a piece of each in turn, on a thread ─▶ caught up ─▶ swapped ─▶ flushed ─▶ done
    cancelled  by a request for the directory where the replica is; a request for a third directory starts over

All moves share `replica.alter.log.dirs.io.max.bytes.per.second`. A full disk makes a move wait. A log is not cleaned
while it moves, since cleaning replaces segments that were copied. `resume` begins the moves again that a stop or a
crash interrupted.
Source: Kafka's ReplicaManager (alterReplicaLogDirs), ReplicaAlterLogDirsThread; KIP-113.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.errors import CorruptMessage, ErrorCode, InvalidTopic, KafkaError, NotLeaderOrFollower, StorageError
from headrace.log.directories.moving import LogMove, future_name
from headrace.log.filenames import NAME_CHARS_MAX
from headrace.types import TopicPartition

log = logging.getLogger(__name__)
PIECE_BYTES_MAX = 4 << 20
PIECES_PER_SECOND_MIN = 4
"""A low rate is kept by copying smaller pieces."""
ROLL_BYTES_MIN = 1 << 20
"""A larger active segment is rolled before the swap, since the swap copies the rest of the active segment on the event
loop."""
UNLIMITED = 1 << 40
"""A rate in bytes per second that no disk reaches: it stands for no limit."""

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
        self._next_directory: dict[TopicPartition, Path] = {}
        """The next directory of replicas whose current move can no longer be cancelled."""
        self._delayed_until: dict[TopicPartition, float] = {}
        self._cancelled: list[LogMove] = []
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stops copying; after the next start, `resume` begins the moves again."""
        for task in (self._task, self._resuming):
            if task is not None:
                task.cancel()

    def to(self, directory: Path) -> list[LogMove]:
        """Returns the moves of replicas to a data directory."""
        moves = [each for each in self._moves.values() if each.directory == directory and not each.is_swapped]
        return [each for each in moves if self._logs.get(each.log.partition) is each.log]

    # Requests

    def request(self, key: TopicPartition, path: str) -> ErrorCode:
        """Starts to move a replica to a data directory; a request for the replica's own directory cancels its move.
        Returns Kafka's error code."""
        try:
            self._request(key, Path(path))
        except NotLeaderOrFollower:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        except KafkaError as error:
            return error.code  # not logged: one request may name thousands of partitions that are not here
        return ErrorCode.NONE

    def _request(self, key: TopicPartition, path: Path) -> None:
        if len(future_name(key)) > NAME_CHARS_MAX:
            raise InvalidTopic("The topic name is too long.")
        if any(each.absolute() == path for each in self._logs.directories.offline):
            raise StorageError(f"Log directory {path} is offline")
        directory = self._logs.directories.find(path) if path.is_absolute() else None
        if directory is None:
            raise KafkaError(f"{path} is not in log.dirs of this broker", ErrorCode.LOG_DIR_NOT_FOUND)
        try:
            moved = self._replicas.get(*key).log
        except NotLeaderOrFollower:
            self._logs.preferred[key] = directory.path  # if the replica is created here later, it is created there
            raise
        self._next_directory.pop(key, None)
        self._logs.futures.pop(key, None)
        move = self._moves.get(key)
        if move is not None and move.is_swapped:
            if move.directory != directory.path:
                self._next_directory[key] = directory.path
            return
        if move is not None and move.directory != directory.path:
            self._end(key)
            self._cancelled.append(move)
        if key not in self._moves and moved.directory.parent != directory.path:
            if self._logs.directories.offline:  # the copy may be in a directory that is offline
                raise StorageError(
                    f"{key} cannot be moved while {', '.join(map(str, self._logs.directories.offline))} is offline"
                )
            self._begin(key, directory.path)

    def resume(self) -> None:
        """Begins the moves again that the last stop interrupted, as LeaderAndIsr opens their replicas."""
        if self._logs.futures:
            self._resuming = self._tasks.create_task(self._resume())

    async def _resume(self) -> None:
        futures = self._logs.futures
        while futures:
            for key in [key for key in futures if self._replicas.find(key) is not None]:
                directory = futures.pop(key)
                is_there = self._replicas.get(*key).log.directory.parent == directory
                if not is_there and key not in self._moves and directory not in self._logs.directories.offline:
                    self._begin(key, directory)
            await asyncio.sleep(RETRY_S)

    def _begin(self, key: TopicPartition, directory: Path) -> None:
        moved = self._replicas.get(*key).log
        self._moves[key] = LogMove(self._logs.files, moved, directory)
        self._logs.cleaner.paused.add(key)
        log.info("%s: moving the replica from %s to %s", key, moved.directory.parent, directory)
        if self._task is None or self._task.done():
            self._task = self._tasks.create_task(self._run())

    def _end(self, key: TopicPartition) -> None:
        self._moves.pop(key, None)
        self._delayed_until.pop(key, None)
        self._logs.checkpoints.incoming.pop(key, None)
        self._logs.cleaner.paused.discard(key)

    def directory_failed(self, directory: Path) -> None:
        """Ends the moves from and to a failed directory. The copies stay, so that the moves resume when it is back."""
        for key, move in list(self._moves.items()):
            if directory in (move.directory, move.source.parent):
                log.warning(
                    "%s: the move to %s stopped, because data directory %s failed", key, move.directory, directory
                )
                self._end(key)

    # Copying

    async def _run(self) -> None:
        """Runs until no move is left."""
        while self._moves or self._cancelled:
            is_idle = True
            while self._cancelled:
                await self._drop(self._cancelled.pop())
            for key, move in list(self._moves.items()):
                if self._moves.get(key) is not move or self._delayed_until.get(key, 0) > self._loop.time():
                    continue
                try:
                    is_idle &= not await self._step(key, move)
                except (CorruptMessage, OSError) as error:
                    if self._moves.get(key) is move:  # otherwise its directory failed, which is already logged
                        log.warning(
                            "%s: the move to %s failed, trying again in %g s: %s", key, move.directory, RETRY_S, error
                        )
                        self._delayed_until[key] = self._loop.time() + RETRY_S
            if is_idle:
                await asyncio.sleep(POLL_S)

    async def _step(self, key: TopicPartition, move: LogMove) -> bool:
        """Takes one step of a move; returns False when the move has to wait. Raises OSError."""
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
                return False  # retention deleted the segment: the next step reads the segment list again
            if piece.size and rate < UNLIMITED:
                await asyncio.sleep(piece.size / rate)
            return True
        is_free = move.log.failure is None and not move.log.is_truncating
        if self._logs.cleaner.is_busy_with(move.log) or not is_free:
            return False
        if not move.has_rolled and move.log.active.size > ROLL_BYTES_MIN:
            move.has_rolled = True
            move.log.roll(self._now_ms())
            return True
        return self._swap(key, move)

    def _swap(self, key: TopicPartition, move: LogMove) -> bool:
        if (
            move.log.log_start_offset > move.log.segments[0].base_offset
        ):  # the start is in no segment's name, so the checkpoint must have it
            self._logs.checkpoints.incoming[key] = move.directory
            self._logs.checkpoint_log_starts()
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
            log.info("%s: moved the replica to %s", key, move.directory)
            next_directory = self._next_directory.pop(key, None)
            if next_directory is not None and self._logs.get(key) is move.log and next_directory != move.directory:
                self._begin(key, next_directory)
        return True

    async def _call(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(None, work)

    async def _drop(self, move: LogMove) -> None:
        try:
            await self._call(move.drop)
        except OSError as error:  # the next start removes it
            log.warning("%s could not be removed: %s", move.path, error)
