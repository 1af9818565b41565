"""Plain requests that wait for replicas: a queue for each partition, in the order of their offsets.

    append_plainly, the shortest way ─▶ WaitingProduce ─▶ a place in the queue of each partition ─▶ the response
    plain_groups                     ─▶ WaitingCommit  ─▶ a place in the queue of the group's    ─▶ the response

`durable_append` has an operation of the purgatory for each request. Here one operation, the queue, stands for all
requests of a partition, and a change of its high watermark ends those at the head of the queue. The commit rule is the
same (`replication.commit_wait`). The response is encoded at the append, for the case that all goes well. Responses
that one look at a queue frees are sent together, those to one connection in one call.

A queue is in the purgatory while requests wait in it, until the earliest of their deadlines. A batch that repeats an
older one takes its place, before batches that were appended in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import ErrorCode
from headrace.protocol.apis import ApiKey
from headrace.replication.commit_wait import CommitWait, outcome

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.request.purgatory import WaitingOperation
    from headrace.broker.services import Services

_OVER_MIN = 64
"""So many requests that are over may stay in a queue before they are taken out."""

_S_BETWEEN_LOOKS = 5e-6
"""So long for each request that waits: a look at all of them takes a fiftieth of that. Without it, 50,000 requests with
as many deadlines take the whole event loop; with it they time out up to a quarter of a second late."""


class Answering(Protocol):
    """The request that waits, as it is answered: a `RequestContext`, or what the shortest way keeps of a request."""

    def reply_frame(self, frame: bytes) -> None:
        """Sends the response."""

    def failed(self) -> None:
        """Logs the current exception, which is a bug of the broker, and closes the connection."""


Refuse = Callable[[Any, Sequence[ErrorCode]], None]
"""Answers a request, given what waits of it, and the error of each of its batches; NONE for those that are durable."""


class WaitingRequest(Protocol):
    """A request whose batches are appended."""

    @property
    def deadline(self) -> float:
        """When it is answered at the latest, in seconds of the event loop's clock."""

    @property
    def is_over(self) -> bool:
        """Whether it waits no more."""

    def ended(self, number: int, code: ErrorCode) -> bool:
        """Takes in the end of the wait for one batch, which is in the queue no more. Whether it is to be
        answered."""

    def answer(self) -> None:
        """Answers, with REQUEST_TIMED_OUT for batches that still wait. It is over then."""


Waiting = tuple[WaitingRequest, int, CommitWait]
"""A request, the number of one of its batches, and what that waits for."""


def _place(each: Waiting) -> tuple[int, int]:
    """What a queue is in the order of: what was appended before the partition had another leader is over."""
    wait = each[2]
    return wait.leading_since, wait.commit_to


class WaitingProduce:
    """A request whose batches are appended, until the last of them is committed or has failed."""

    __slots__ = ("_codes", "_ctx", "_frame", "_queues", "_refuse", "deadline", "is_over")

    def __init__(self, ctx: Answering, frame: bytes, batches: int, refuse: Refuse, deadline: float) -> None:
        """`frame` is the response if all goes well. `deadline` is in seconds of the event loop's clock."""
        self._ctx, self._frame, self._refuse, self.deadline = ctx, frame, refuse, deadline
        self._codes = [ErrorCode.NONE] * batches
        self._queues: dict[int, CommitQueue] = {}  # in which it waits, by the number of the batch
        self.is_over = False
        """Whether it is answered, or its client has left."""

    def settle(self) -> None:
        """Answers, unless a batch waits."""
        if not self.is_over and not self._queues:
            self.answer()

    def refuse(self, number: int, code: ErrorCode) -> None:
        """Takes in that one of the batches is not appended."""
        self._codes[number] = code

    def wait(self, queue: CommitQueue, number: int, wait: CommitWait) -> None:
        """Waits for one of the batches."""
        self._codes[number] = ErrorCode.REQUEST_TIMED_OUT
        self._queues[number] = queue
        queue.add(self, number, wait)

    def ended(self, number: int, code: ErrorCode) -> bool:
        """Takes in the end of the wait for one batch, which is in the queue no more. Whether it was the last one."""
        self._codes[number] = code
        del self._queues[number]
        return not self._queues

    def answer(self) -> None:
        """Answers, with REQUEST_TIMED_OUT for batches that still wait."""
        self._leave()
        try:
            if any(self._codes):
                self._refuse(self._ctx, self._codes)
            else:
                self._ctx.reply_frame(self._frame)
        except Exception:
            self._ctx.failed()

    def abandon(self) -> None:
        """Ends the wait: the client's connection has closed."""
        if not self.is_over:
            self._leave()

    def _leave(self) -> None:
        self.is_over = True
        for queue in self._queues.values():
            queue.note_over()


class CommitQueue:
    """The plain requests that wait for one partition; an operation of the purgatory."""

    __slots__ = ("_entry", "_next_look", "_over", "_owner", "_partition", "_waiting", "api_key")

    def __init__(self, owner: CommitQueues, partition: Partition) -> None:
        self._owner, self._partition, self.api_key = owner, partition, owner.api_key
        self._waiting: deque[Waiting] = deque()
        self._entry: tuple[WaitingOperation, float] | None = None  # in the purgatory, with its deadline
        self._next_look = 0.0  # not before this time
        self._over = 0  # of the waiting ones, those that are over

    @property
    def requests(self) -> int:
        """How many requests wait."""
        return len(self._waiting) - self._over

    def add(self, request: WaitingRequest, number: int, wait: CommitWait) -> None:
        """Adds a batch of a request, in nearly all cases behind the others."""
        place = _place(each := (request, number, wait))
        if self._waiting and place < _place(self._waiting[-1]):
            self._waiting.insert(bisect_right(self._waiting, place, key=_place), each)
        else:
            self._waiting.append(each)
        look = max(request.deadline, self._next_look)
        if self._entry is None or look < self._entry[1]:
            self._wait_until(look)

    def try_complete(self) -> bool:
        """Ends the waits at the head of the queue that are over; returns whether none is left.

        The last response gets its place first. Since a response waits for those before it in its connection, all of a
        connection are sent with the first one."""
        ended = self._take_ended()
        while ended:
            request = ended.pop()
            if not request.is_over:  # to answer another one may have closed its connection
                request.answer()
        if self._waiting:
            return False
        self._ends()
        return True

    def _take_ended(self) -> list[WaitingRequest]:
        """Takes the batches whose wait is over from the head of the queue; returns the requests that wait no more."""
        waiting, state, ended = self._waiting, self._partition.state, []
        is_offline = self._owner.is_offline(self._partition)
        while waiting:
            request, number, wait = waiting[0]
            if request.is_over:
                waiting.popleft()
                self._over -= 1
                continue
            code = outcome(wait, state, 0, is_offline=is_offline)
            if code is None:
                break
            waiting.popleft()
            if request.ended(number, code):
                ended.append(request)
        return ended

    def expire(self) -> None:
        """Answers the requests whose time is up."""
        self._entry = None
        now = self._owner.now()
        for request, _, _ in list(self._waiting):
            if not request.is_over and request.deadline <= now:
                request.answer()
        self._drop_over()
        if self._waiting:
            self._next_look = now + _S_BETWEEN_LOOKS * len(self._waiting)
            self._wait_until(max(self._next_look, min(request.deadline for request, _, _ in self._waiting)))
        else:
            self._ends()

    def note_over(self) -> None:
        """Notes that a request that waits here is over: its client has left, or it is answered for another batch."""
        self._over += 1
        if self._over > max(_OVER_MIN, len(self._waiting) // 2):
            self._drop_over()

    def _drop_over(self) -> None:
        left = [each for each in self._waiting if not each[0].is_over]
        self._waiting.clear()
        self._waiting.extend(left)
        self._over = 0

    def _wait_until(self, deadline: float) -> None:
        purgatory = self._owner.purgatory
        if self._entry is not None:
            purgatory.cancel(self._entry[0])
        left_ms = max(0, ceil(1000 * (deadline - self._owner.now())))
        self._entry = purgatory.wait(self, (self._partition.key,), left_ms), deadline

    def _ends(self) -> None:
        self._entry = None
        self._owner.ended(self._partition)


class CommitQueues:
    """The queues of a dispatcher's requests of one API, each while requests wait in it."""

    def __init__(self, services: Services, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        self._services, self.purgatory, self.now = services, services.purgatory, services.loop.time
        self.api_key = api_key
        self._queues: dict[Partition, CommitQueue] = {}

    def of(self, partition: Partition) -> CommitQueue:
        """The queue of a partition, made if there is none."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = CommitQueue(self, partition)
        return queue

    def ended(self, partition: Partition) -> None:
        """Drops an empty queue."""
        self._queues.pop(partition, None)

    def is_offline(self, partition: Partition) -> bool:
        """Whether the partition's disk has failed."""
        return partition.log.failure is not None or partition.key in self._services.replicas.offline
