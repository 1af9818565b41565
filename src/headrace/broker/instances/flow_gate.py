"""The gate of one direction of an instance on a broker: its token bucket, and the connections that wait for it.

    produce   answered, then paid for: a connection that overdraws the bucket is held until it is its turn again. While
              others wait, or there is a debt, the first request of a connection waits for a turn as well (`postpone`):
              a client gains nothing by a new connection for each request
    fetch     answered without records while they are not paid for, and held until there is enough for them

A held connection is released by the gate, not by a time: the rate may change at any moment, and the debt with it. The
wait that its client is told is only a hint, at most `TOLD_MAX_S`, so that a client that keeps to it comes back soon
after the rate was raised; one that comes back too early finds its connection held, which is not read meanwhile.

Turns are fair by bytes: the connection goes first to which the fewest bytes were given while others waited
(`_passed`; start-time fair queueing). A turn reserves what the connection needs, so that nobody else takes it while its
next request is on the way, and ends when it was used, or a little after the client was told to come back. Only the
first in the order may take, so a large fetch is not overtaken for ever by small ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.broker.instances.flow_tops import Tops
from headrace.instances.flow.meter import BucketMeter
from headrace.network.connection import Connection
from headrace.network.held import Held
from headrace.quotas.client_quotas import Throttled
from headrace.quotas.token_bucket import TokenBucket

TOLD_MAX_S = 1.0
"""The most that a client is told to wait, while its wait is shorter than `PATIENCE_S`."""
PATIENCE_S = 15.0
"""A client that sends while it is held waits for its answer. Clients give up after 30 seconds, so those that have to
wait for long are told to be silent for some of it."""
TOLD_LONG_S = 10.0

FETCHED_SHARE = 0.5
"""The share of the burst that one fetch may take."""
GRACE_S = 0.1
"""How long a turn stays reserved after its client may come back."""
PAUSE_S = 0.001
"""The shortest time between two looks at the queue."""
RELEASED_AT_ONCE_MAX = 64
PARTITIONS_NOTED_MAX = 8
"""Partitions of one request for which its wait is noted."""
POSTPONED_S = 30.0
POSTPONED_BYTES_MIN, POSTPONED_BYTES_MAX = 16 << 20, 64 << 20
"""Requests that wait for their turn lie in memory: as many as are paid for until their clients give up, within
bounds."""
SWEPT_FROM = 256
"""How many connections wait before those are looked for that their peers have left."""
SWEPT_EVERY_S = 1.0
"""How often they are looked for when requests of too many bytes wait: clients that are refused come back at once."""


class Who(NamedTuple):
    """For the record of who was throttled."""

    client: str
    partitions: Iterable[str]


class _Waiting:
    """A held connection."""

    __slots__ = ("client", "connection", "needs", "partitions", "postponed", "reserves", "since", "told_until")

    def __init__(
        self, connection: Connection, needs: float, reserves: float, who: Who, now: float, *, postponed: int = 0
    ) -> None:
        """`postponed`: the size of the request that the connection keeps until its turn."""
        self.connection, self.postponed = connection, postponed
        self.needs, self.reserves = needs, reserves
        self.since = self.told_until = now
        self.client = who.client
        self.partitions = [each for each, _ in zip(who.partitions, range(PARTITIONS_NOTED_MAX), strict=False)]


class _Turn(NamedTuple):
    """A connection that was released and has not come back yet."""

    reserved: float
    ends_at: float


class FlowGate:
    """One direction of one instance. Rates in bytes/s, above 0 and finite."""

    def __init__(
        self, held: Held, rate: float, burst: float, loop: asyncio.AbstractEventLoop, *, metered_since: float
    ) -> None:
        """`held`: the reason for which this gate holds connections. `metered_since`: the time of the last report."""
        self.bucket = TokenBucket(rate, burst, loop.time())
        self.meter = BucketMeter(metered_since)
        self.throttled = Throttled()
        """What clients were told."""
        self.held_s = 0.0
        """How long connections were held, of those that are released again."""
        self.clients, self.partitions = Tops(), Tops()
        """Seconds by client id and by partition."""
        self._held, self._loop = held, loop
        self._waiting: dict[Connection, _Waiting] = {}
        self._order: list[tuple[float, int, _Waiting]] = []
        self._turns: dict[Connection, _Turn] = {}
        self._reserved = 0.0
        self._passed: dict[Connection, float] = {}
        self._passed_first = 0.0
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_releasing = False
        self._postponed_bytes = 0
        self._swept_at, self._swept_s = SWEPT_FROM, -SWEPT_EVERY_S

    @property
    def waiting_count(self) -> int:
        """How many connections are held."""
        return len(self._waiting)

    @property
    def fetch_bytes_max(self) -> float:
        """What a fetch should take at most, and must have paid for: not the whole burst, since a full bucket loses what
        comes until the client is back."""
        return self.bucket.burst * FETCHED_SHARE

    def is_open_to(self, connection: Connection) -> bool:
        """Whether a request that is paid for afterwards may be handled now."""
        if connection in self._turns:
            return True
        return not self._waiting and self.bucket.fill(self._loop.time()) >= self._reserved

    def postpone(self, connection: Connection, size: int, who: Who) -> None:
        """Keeps a request, of `size` bytes, until its connection's turn, or closes the connection if requests of too
        many bytes wait already."""
        now, bucket = self._loop.time(), self.bucket
        most = min(max(bucket.rate * POSTPONED_S, POSTPONED_BYTES_MIN), POSTPONED_BYTES_MAX)
        if self._postponed_bytes and self._postponed_bytes + size > most:
            if now >= self._swept_s + SWEPT_EVERY_S:
                self._sweep()
            if self._postponed_bytes and self._postponed_bytes + size > most:
                connection.close(
                    f"the instance is over its rate of {bucket.rate:.0f} bytes/s on this broker, and requests of "
                    f"{self._postponed_bytes} bytes wait already"
                )
                return
        self.meter.count(0, max(-bucket.fill(now) / bucket.rate, PAUSE_S), now)
        self._postponed_bytes += size
        self._hold(_Waiting(connection, 0.0, size, who, now, postponed=size))
        connection.postpone(self._held)

    def spend(self, connection: Connection, size: int, who: Who) -> int:
        """Counts what was served. Returns 0, or the time for which the client is told to wait, in ms; the connection is
        then held."""
        now = self._loop.time()
        if self._turns:
            self._end_turn(connection)
        wait = self.bucket.spend(size, now)
        self.meter.count(size, wait, now)
        if not wait and not self._waiting:
            return 0
        self._pass(connection, size)
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = _Waiting(connection, 0.0, size, who, now)
            self._hold(waiting)
        return self._tell(waiting, wait, now)

    def ask(self, connection: Connection, size: int, who: Who) -> int:
        """Counts a fetch of `size` bytes, if they are there and nobody waits before it: returns 0. Otherwise the time
        for which the client is told to wait, in ms; the connection is held, and the fetch costs nothing."""
        now, bucket = self._loop.time(), self.bucket
        turn = self._end_turn(connection) if self._turns else None
        needs = min(size, self.fetch_bytes_max)
        if turn is not None:
            needs = min(needs, turn.reserved)
        there = bucket.fill(now) - self._reserved
        if there >= needs and (turn is not None or not self._waiting):
            self.meter.count(size, bucket.spend(size, now), now)
            if self._waiting or turn is not None:
                self._pass(connection, size)
            return 0
        wait = max((needs - there) / bucket.rate, PAUSE_S)
        self.meter.count(0, wait, now)
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = _Waiting(connection, needs, needs, who, now)
            self._hold(waiting)
        return self._tell(waiting, wait, now)

    def take_back(self, size: int) -> None:
        """Undoes an `ask` that was let through: the fetch is not answered with its records after all."""
        self.bucket.refund(size)
        self.meter.count(-size, 0.0, self._loop.time())

    def retune(self, rate: float, burst: float) -> None:
        """Another rate is in force: debts are paid at it, and turns come sooner or later."""
        bucket, now = self.bucket, self._loop.time()
        if (rate, burst) == (bucket.rate, bucket.burst):
            return
        bucket.retune(rate, burst, now)
        self.meter.hold_until(now + bucket.wait_s(now), now)
        for waiting in self._waiting.values():
            waiting.needs = min(waiting.needs, self.fetch_bytes_max)
        self._schedule(now)

    def close(self) -> None:
        """Releases every connection: there is no limit any more. What they have sent already is handled within this
        call, and must not find this gate."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._postponed_bytes = 0
        self._order.clear()
        self._turns.clear()
        self._reserved = 0.0
        for each in waiting.values():
            each.connection.release(self._held)

    # ---- waiting

    def _hold(self, waiting: _Waiting) -> None:
        connection = waiting.connection
        self._waiting[connection] = waiting
        self._number += 1
        passed = max(self._passed.get(connection, 0.0), self._passed_first)
        heappush(self._order, (passed, self._number, waiting))
        connection.hold(self._held)
        if len(self._order) > self._swept_at:
            self._sweep()
        if self._timer is None:
            self._schedule(self._loop.time())

    def _sweep(self) -> None:
        """Forgets the connections that were closed, and closes those that their peers have left. Each costs a system
        call, so it is done when the number of those that wait has doubled, and for room at most every
        `SWEPT_EVERY_S`."""
        now = self._swept_s = self._loop.time()
        gone = [each for each in self._waiting.values() if each.connection.is_left]
        for each in gone:
            self._forget(each, now)
            self._passed.pop(each.connection, None)
            each.connection.close("closed by the client while its instance was over its rate")
        if gone:
            self._order = [each for each in self._order if each[2].connection in self._waiting]
            heapify(self._order)
        self._swept_at = max(SWEPT_FROM, 2 * len(self._order))

    def _tell(self, waiting: _Waiting, wait: float, now: float) -> int:
        told = max(min(wait, TOLD_MAX_S) if wait <= PATIENCE_S else TOLD_LONG_S, PAUSE_S)
        waiting.told_until = max(waiting.told_until, now + told)
        told_ms = int(told * 1000 + 0.5)
        self.throttled.add(told_ms)
        return told_ms

    def _pass(self, connection: Connection, size: int) -> None:
        self._passed[connection] = max(self._passed.get(connection, 0.0), self._passed_first) + size

    def _schedule(self, now: float) -> None:
        """Sets the timer for the next turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_releasing or not (self._order or self._turns):
            return
        pause, bucket = TOLD_LONG_S, self.bucket
        if self._order:
            pause = min((self._order[0][2].needs - bucket.fill(now) + self._reserved) / bucket.rate, TOLD_MAX_S)
        if self._turns:
            pause = min(pause, min(each.ends_at for each in self._turns.values()) - now)
        self._timer = self._loop.call_later(max(pause, PAUSE_S), self._release_some)

    def _release_some(self) -> None:
        """Gives turns to those who wait, as long as there are tokens for them."""
        now = self._loop.time()
        self._end_late_turns(now)
        self._is_releasing = True
        try:
            self._release_first(now)
        finally:
            self._is_releasing = False
        self._schedule(self._loop.time())
        if not self._order and not self._turns:
            self._passed.clear()
            self._passed_first = 0.0

    def _release_first(self, now: float) -> None:
        released = 0
        while self._order and released < RELEASED_AT_ONCE_MAX:
            passed, _, first = self._order[0]
            if not first.connection.is_closed:
                # A request that is paid for afterwards needs no tokens, but no debt either.
                if self.bucket.fill(now) - self._reserved < first.needs:
                    break
                released += 1
            heappop(self._order)
            self._forget(first, now)
            if first.connection.is_closed:
                self._passed.pop(first.connection, None)
                continue
            self._passed_first = max(self._passed_first, passed)
            self._turns[first.connection] = _Turn(first.reserves, max(now, first.told_until) + GRACE_S)
            self._reserved += first.reserves
            first.connection.release(self._held)  # what it has sent already is handled within this call

    def _forget(self, waiting: _Waiting, now: float) -> None:
        """The connection does not wait any more; notes for how long it has."""
        del self._waiting[waiting.connection]
        self._postponed_bytes -= waiting.postponed
        seconds = now - waiting.since
        self.held_s += seconds
        self.clients.add(waiting.client, seconds)
        for each in waiting.partitions:
            self.partitions.add(each, seconds)

    def _end_turn(self, connection: Connection) -> _Turn | None:
        turn = self._turns.pop(connection, None)
        if turn is not None:
            self._reserved = self._reserved - turn.reserved if self._turns else 0.0
        return turn

    def _end_late_turns(self, now: float) -> None:
        late = [each for each, turn in self._turns.items() if now >= turn.ends_at or each.is_closed]
        for connection in late:
            self._end_turn(connection)
        if len(self._passed) > 4 * (len(self._waiting) + len(self._turns)) + RELEASED_AT_ONCE_MAX:
            here = self._waiting.keys() | self._turns.keys()
            self._passed = {each: passed for each, passed in self._passed.items() if each in here}
