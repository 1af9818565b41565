# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: annotation_typing=False, binding=False
"""Plain requests that wait for replicas: a queue for each partition, in the order of their offsets.

    the shortest way ─▶ WaitingAnswer ─▶ a place in the queue of each partition ─▶ the response
    append_plainly   ─▶ WaitingReply  ─▶ a place in the queue of each partition ─▶ the response
    plain_groups     ─▶ WaitingCommit ─▶ a place in the queue of the group's    ─▶ the response

`durable_append` has an operation of the purgatory for each request. Here one operation, the queue, stands for all
requests of a partition, and a change of its high watermark ends those at the head of the queue. The commit rule is the
same (`replication.commit_wait`). The response is encoded at the append, for the case that all goes well. Responses
that one look at a queue frees are sent together, those to one connection in one call.

A partition has its queue from the first request that waits on. The queue is in the purgatory while requests wait in it,
and paused otherwise; it is looked at, at the latest, at the earliest of their deadlines. A batch that repeats an older
one takes its place, before batches that were appended in between. Compiled, since all produces with acks=all to
partitions with followers pass it; it also runs uncompiled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Protocol

from headrace.broker.request.purgatory import DelayedRequest
from headrace.errors import ErrorCode
from headrace.network.answer_order import Waiter
from headrace.protocol.apis import ApiKey
from headrace.replication.commit_wait import CommitWait, outcome
from headrace.types import LeaderEpoch

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.request.purgatory import WaitingOperation
    from headrace.broker.services import Services
    from headrace.types import TopicPartition

_OVER_MIN = 64
"""So many requests that are over may stay in a queue before they are taken out; and so many free places at its head."""

_S_BETWEEN_LOOKS = 5e-6
"""So long for each request that waits: a look at all of them takes a fiftieth of that. Without it, 50,000 requests with
as many deadlines take the whole event loop; with it they time out up to a quarter of a second late."""

_ANSWERS_PER_LOOK = 1_000
"""So many requests are answered in one turn of the event loop, the others in the next ones: a refusal takes 20 µs, and
fifty thousand may time out, or lose their leader, at once."""

_NEXT_TURN_S = 0.001
_NEVER = inf
_NONE, _TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Answering(Protocol):
    """The request that waits, as it is answered: a `RequestContext`."""

    def reply_frame(self, frame: bytes) -> None:
        """Sends the response."""

    def failed(self) -> None:
        """Logs the current exception, which is a bug of the broker, and closes the connection."""


Refuse = Callable[[Any, Sequence[ErrorCode]], None]
"""Answers a request, given what waits of it, and the error of each of its batches; NONE for those that are durable."""


class WaitingRequest(Waiter):
    """A request whose batches are appended."""

    __slots__ = ("deadline", "is_over")

    deadline: float
    """When it is answered at the latest, in seconds of the event loop's clock."""
    is_over: bool
    """Whether it waits no more: it is answered, or its client has left."""

    def ended(self, number: int, code: ErrorCode) -> bool:
        """Takes in the end of the wait for one batch, which is in the queue no more. Whether it is to be
        answered."""
        raise NotImplementedError

    def answer(self) -> None:
        """Answers, with REQUEST_TIMED_OUT for batches that still wait. It is over then."""
        raise NotImplementedError


class Place:
    """The place of one of a request's batches in a queue."""

    __slots__ = ("base_offset", "commit_to", "leading_since", "number", "partition", "request")

    request: WaitingRequest
    number: int
    """The batch's place in the request."""
    partition: Partition
    """The queue itself has none: an empty one would keep the files of a partition that is deleted."""
    base_offset: int
    commit_to: int
    """See `CommitWait`, as for the next one."""
    leading_since: int


def place_of(
    request: WaitingRequest, number: int, partition: Partition, base_offset: int, commit_to: int, leading_since: int
) -> Place:
    """The place of a batch that is appended."""
    made = Place.__new__(Place)
    made.request, made.number, made.partition = request, number, partition
    made.base_offset, made.commit_to, made.leading_since = base_offset, commit_to, leading_since
    return made


def _order_of(place: Place) -> tuple[int, int]:
    """What a queue is in the order of: what was appended before the partition had another leader is over."""
    return place.leading_since, place.commit_to


class WaitingProduce(WaitingRequest):
    """A request whose batches are appended, until the last of them is committed or has failed."""

    __slots__ = ("_batches", "_codes", "_number", "_queue", "_queues")

    def _begin(self, batches: int, deadline: float) -> None:
        self.deadline, self.is_over, self._batches = deadline, False, batches
        self._codes: list[ErrorCode] | None = None  # of each batch, once one has failed
        self._queue: CommitQueue | None = None  # in which batch `_number` waits
        self._number = 0
        self._queues: dict[int, CommitQueue] | None = None  # in which others wait, by the number of the batch

    def settle(self) -> None:
        """Answers, unless a batch waits."""
        if not (self.is_over or self._is_waiting()):
            self.answer()

    def refuse(self, number: int, code: ErrorCode) -> None:
        """Takes in that one of the batches is not appended, or not committed."""
        if self._codes is None:
            self._codes = [_NONE] * self._batches
        self._codes[number] = code

    def wait(self, queue: CommitQueue, place: Place) -> None:
        """Waits for one of the batches."""
        if self._queue is None:
            self._queue, self._number = queue, place.number
        else:
            if self._queues is None:
                self._queues = {}
            self._queues[place.number] = queue
        queue.add(place)

    def ended(self, number: int, code: ErrorCode) -> bool:
        """Takes in the end of the wait for one batch, which is in the queue no more. Whether it was the last one."""
        if code is not _NONE:
            self.refuse(number, code)
        if self._queue is not None and number == self._number:
            self._queue = None
        elif self._queues is not None:
            del self._queues[number]
        return not self._is_waiting()

    def answer(self) -> None:
        """Answers, with REQUEST_TIMED_OUT for batches that still wait."""
        if self._queue is not None:
            self.refuse(self._number, _TIMED_OUT)
        if self._queues is not None:
            for number in self._queues:
                self.refuse(number, _TIMED_OUT)
        self._leave()
        try:
            self._reply()
        except Exception:
            self._fail()

    def abandon(self) -> None:
        """Ends the wait: the client's connection has closed."""
        if not self.is_over:
            self._leave()

    def _is_waiting(self) -> bool:
        return self._queue is not None or (self._queues is not None and len(self._queues) > 0)

    def _leave(self) -> None:
        self.is_over = True
        if self._queue is not None:
            self._queue.note_over()
        if self._queues is not None:
            for queue in self._queues.values():
                queue.note_over()

    def _reply(self) -> None:
        """Sends the response; `_codes` are the errors of all batches, if there is one."""
        raise NotImplementedError

    def _fail(self) -> None:
        """See `Answering.failed`."""
        raise NotImplementedError


class WaitingReply(WaitingProduce):
    """A request that the dispatcher has taken, and that has a context."""

    __slots__ = ("_ctx", "_frame", "_refuse")

    def __init__(self, ctx: Answering, frame: bytes, batches: int, refuse: Refuse, deadline: float) -> None:
        """`frame` is the response if all goes well. `deadline` is in seconds of the event loop's clock."""
        self._ctx, self._frame, self._refuse = ctx, frame, refuse
        self._begin(batches, deadline)

    def wait_for(self, queue: CommitQueue, number: int, partition: Partition, wait: CommitWait) -> None:
        """Waits for one of the batches."""
        self.wait(queue, place_of(self, number, partition, -1, wait.commit_to, wait.leading_since))

    def _reply(self) -> None:
        if self._codes is not None:
            self._refuse(self._ctx, self._codes)
        else:
            self._ctx.reply_frame(self._frame)

    def _fail(self) -> None:
        self._ctx.failed()


class CommitQueue(DelayedRequest):
    """The plain requests that wait for one partition; an operation of the purgatory."""

    __slots__ = ("_due", "_entry", "_head", "_keys", "_next_look", "_over", "_owner", "_waiting", "api_key")

    def __init__(self, owner: CommitQueues, key: TopicPartition) -> None:
        self._owner, self._keys, self.api_key = owner, (key,), owner.api_key
        self._waiting: list[Place] = []  # what is before `_head` is None
        self._head = 0
        self._entry: WaitingOperation | None = None  # in the purgatory; paused while nobody waits
        self._due = 0.0  # its deadline
        self._next_look = 0.0  # not before this time
        self._over = 0  # of the waiting ones, those that are over

    @property
    def requests(self) -> int:
        """How many requests wait."""
        return len(self._waiting) - self._head - self._over

    def add_request(self, request: WaitingRequest, partition: Partition, commit_to: int) -> None:
        """As `add`, for the only batch of a request, which was just appended."""
        self.add(place_of(request, 0, partition, -1, commit_to, partition.state.leading_since))

    def add(self, place: Place) -> None:
        """Adds a batch of a request, in nearly all cases behind the others."""
        waiting = self._waiting
        count = len(waiting)
        if count > self._head and _is_before(place, waiting[count - 1]):
            waiting.insert(bisect_right(waiting, _order_of(place), self._head, key=_order_of), place)
        else:
            waiting.append(place)
        look = max(place.request.deadline, self._next_look)
        if self._entry is None or look < self._due or not self._owner.purgatory.resume(self._entry):
            self._wait_until(look)

    def try_complete(self) -> bool:
        """Ends the waits at the head of the queue that are over. It is never complete.

        The last response gets its place first. Since a response waits for those before it in its connection, all of a
        connection are sent with the first one."""
        most: int = _ANSWERS_PER_LOOK
        ended = self._take_ended(most)
        number = count = len(ended)
        while number > 0:
            number -= 1
            request = ended[number]
            if not request.is_over:  # to answer another one may have closed its connection
                request.answer()
        if count >= most and self._waiting:
            self._owner.purgatory.touch(self._keys[0])  # more may be over: in the next turn
        self._rest()
        return False

    def _take_ended(self, most: int) -> list[WaitingRequest]:
        """Takes batches whose wait is over from the head of the queue; returns the requests that wait no more, at
        `most` so many."""
        ended: list[WaitingRequest] = []
        is_offline = is_short = -1  # not known
        while self._head < len(self._waiting) and len(ended) < most:
            place = self._waiting[self._head]
            request = place.request
            if request.is_over:
                self._take_first()
                self._over -= 1
                continue
            state = place.partition.state
            if is_offline < 0:
                is_offline = self._owner.is_offline(place.partition)
            code = _NONE
            if is_offline or not state.is_leader or state.leading_since != place.leading_since:
                code = _outcome(place, place.partition, is_offline > 0)
            elif state.high_watermark < place.commit_to:
                break
            else:
                if is_short < 0:
                    is_short = state.is_short()
                if is_short:
                    code = _outcome(place, place.partition, False)
            self._take_first()
            if request.ended(place.number, code):
                ended.append(request)
        return ended

    def _take_first(self) -> None:
        waiting, free = self._waiting, self._head + 1
        if free == len(waiting):
            waiting.clear()
            self._head = 0
        elif free >= _OVER_MIN and 2 * free >= len(waiting):
            del waiting[:free]
            self._head = 0
        else:
            waiting[self._head] = None  # type: ignore[call-overload]
            self._head = free

    def expire(self) -> None:
        """Answers the requests whose time is up."""
        self._entry = None
        now, left = self._owner.now(), _ANSWERS_PER_LOOK
        for each in self._waiting[self._head :]:
            place = each
            request = place.request
            if not request.is_over and request.deadline <= now:
                request.answer()
                left -= 1
                if not left:
                    break
        self._drop_over()
        if self._waiting and not left:
            self._wait_until(now + _NEXT_TURN_S)
        elif self._waiting:
            self._next_look = now + _S_BETWEEN_LOOKS * len(self._waiting)
            earliest = _NEVER
            for each in self._waiting:
                place = each
                earliest = min(earliest, place.request.deadline)
            self._wait_until(max(self._next_look, earliest))
        else:
            self._next_look = 0.0

    def note_over(self) -> None:
        """Notes that a request that waits here is over: its client has left, or it is answered for another batch."""
        self._over += 1
        if self._over > max(_OVER_MIN, (len(self._waiting) - self._head) // 2):
            self._drop_over()

    def _drop_over(self) -> None:
        left = []
        for each in self._waiting[self._head :]:
            place = each
            if not place.request.is_over:
                left.append(each)
        self._waiting = left
        self._over = self._head = 0

    def _wait_until(self, deadline: float) -> None:
        purgatory = self._owner.purgatory
        if self._entry is not None:
            purgatory.cancel(self._entry)
        left_ms = max(0, ceil(1000.0 * (deadline - self._owner.now())))
        self._entry, self._due = purgatory.wait(self, self._keys, left_ms), deadline

    def _rest(self) -> None:
        """Watches nothing while nobody waits."""
        if not self._waiting and self._entry is not None:
            self._next_look = 0.0
            self._owner.purgatory.pause(self._entry)


def _is_before(place: Place, last: Place) -> bool:
    if place.leading_since != last.leading_since:
        return place.leading_since < last.leading_since
    return place.commit_to < last.commit_to


def _outcome(place: Place, partition: Partition, is_offline: bool) -> ErrorCode:
    """The result of a wait that is over."""
    wait = CommitWait(place.commit_to, 0, LeaderEpoch(place.leading_since))
    code = outcome(wait, partition.state, 0, is_offline=is_offline)
    assert code is not None
    return code


class CommitQueues:
    """The queues of the requests of one API, which partitions have as `commits`."""

    __slots__ = ("_offline", "api_key", "now", "purgatory")

    def __init__(self, services: Services, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        """A partition that has plain requests of one API has none of another: offsets are committed to an internal
        topic, and what is produced to that is not plain."""
        self.purgatory, self.now = services.purgatory, services.loop.time
        self._offline, self.api_key = services.replicas.offline, api_key

    def of(self, partition: Partition) -> CommitQueue:
        """The queue of a partition, made if there is none."""
        queue: CommitQueue | None = partition.commits
        if queue is None:
            queue = partition.commits = CommitQueue(self, partition.key)
        return queue

    def is_offline(self, partition: Partition) -> bool:
        """Whether the partition's disk has failed."""
        if partition.log.failure is not None:
            return True
        return len(self._offline) > 0 and partition.key in self._offline
