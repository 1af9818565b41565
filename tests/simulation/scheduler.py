"""Virtual time for several processes in one thread: what runs next is decided by a seed, and by nothing else.

    Scheduler          the clock, and every timer of everybody
      Process          one simulated process: its own event loop, its own order of ready callbacks
        SimLoop        `asyncio.AbstractEventLoop` as the code inside a process sees it (`loop.py`)

Inside a process callbacks run in the order in which they became ready, which is what asyncio promises and code relies
on; between processes a seeded choice decides. Time passes only when nobody has anything to do, and by a microsecond
for each callback, so that no two are quite at one moment.

    crash     what the process had to do is dropped; its tasks never run again, not even their `finally`
    pause     (SIGSTOP) timers come due and messages arrive, but nothing runs until it goes on
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import count
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop
    from tests.simulation.sockets import Sockets

EPOCH_MS = 1_700_000_000_000
"""The time of day at which every simulation begins."""

_TURN_MAX = 6
_CANCELLATIONS_MAX = 20
_CALLBACKS_AT_THE_END_MAX = 10_000


class Handle:
    """A callback that will run, unless it is cancelled or its process dies."""

    __slots__ = ("_args", "_callback", "_context", "is_cancelled", "process", "when_us")

    def __init__(self, process: "Process", callback, args, context, when_us: int = 0) -> None:  # type: ignore[no-untyped-def]
        self.process, self._callback, self._args, self._context = process, callback, args, context
        self.when_us = when_us
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._callback = self._args = self._context = None

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_us / 1e6

    @property
    def tells_a_result(self) -> bool:
        """Whether it is called since a future or task is done."""
        return bool(self._args) and isinstance(self._args[0], asyncio.Future)

    def run(self) -> None:
        try:
            if self._context is None:
                self._callback(*self._args)
            else:
                self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.process.loop.call_exception_handler({"message": "a callback failed", "exception": error})


class Life(Enum):
    """How a simulated process is."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One simulated process. A restart is another one of the same name."""

    def __init__(self, scheduler: "Scheduler", name: str) -> None:
        from tests.simulation.loop import SimLoop as Loop

        self.scheduler, self.name = scheduler, name
        self.life = Life.RUNNING
        self.ready: deque[Handle] = deque()
        self.random = Random(f"{scheduler.seed}/{name}/{len(scheduler.processes)}")
        self.clock_skew_ms = 0
        self.tasks: list[asyncio.Task[object]] = []
        self.sockets: Sockets | None = None
        self.loop: SimLoop = Loop(self)  # type: ignore[abstract]  # what a broker does not use is not there

    @property
    def is_alive(self) -> bool:
        return self.life is not Life.DEAD

    def now_ms(self) -> int:
        """The time of day, as this process believes it to be."""
        return EPOCH_MS + self.scheduler.now_us // 1000 + self.clock_skew_ms

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        self.life = Life.DEAD
        self.ready.clear()
        if self.sockets is not None:
            self.sockets.end()

    def pause(self) -> None:
        """Stops it as SIGSTOP does."""
        if self.life is Life.RUNNING:
            self.life = Life.PAUSED

    def resume(self) -> None:
        """Lets it go on as SIGCONT does."""
        if self.life is Life.PAUSED:
            self.life = Life.RUNNING

    def call(self, callback: Callable[..., object], *args: object) -> None:
        """Puts a callback behind what is ready."""
        if self.life is not Life.DEAD:
            self.ready.append(Handle(self, callback, args, None))

    def call_in(self, delay_us: int, callback: Callable[..., object], *args: object) -> Handle:
        """Calls back in this process after a while."""
        return self.scheduler.add_timer(Handle(self, callback, args, None, self.scheduler.now_us + max(0, delay_us)))


class Exhausted(AssertionError):
    """The simulation did more than it is allowed to: somebody is busy without end."""


class Scheduler:
    """The clock and the choice of who is next."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/scheduler")
        self.now_us = 0
        self.steps = 0
        self.steps_max = 20_000_000
        self.processes: list[Process] = []
        self.failures: list[str] = []
        self._timers: list[tuple[int, int, Handle]] = []
        self._order = count()
        self.is_over = False
        self.running: Process | None = None

    def process(self, name: str) -> Process:
        """A new process."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def add_timer(self, handle: Handle) -> Handle:
        """Has `handle` run when its time comes."""
        if handle.process.life is not Life.DEAD and not self.is_over:
            heapq.heappush(self._timers, (handle.when_us, next(self._order), handle))
        return handle

    def run(self, until: Callable[[], bool], timeout_us: int) -> bool:
        """Runs everybody until `until()`; whether that came true within `timeout_us` of virtual time."""
        deadline = self.now_us + timeout_us
        timers, choose = self._timers, self.random
        while not until():
            while timers and timers[0][0] <= self.now_us:
                self._make_ready(heapq.heappop(timers)[2])
            able = [each for each in self.processes if each.ready and each.life is Life.RUNNING]
            if not able:
                if not timers or timers[0][0] > deadline:
                    self.now_us = max(self.now_us, deadline)
                    return until()
                self.now_us = timers[0][0]
                continue
            if self.now_us > deadline:
                return False
            process = able[0] if len(able) == 1 else able[int(choose.random() * len(able))]
            self._turn(process, 1 + int(choose.random() * _TURN_MAX))
        return True

    def run_for(self, duration_us: int) -> None:
        """Lets virtual time pass."""
        self.run(lambda: False, duration_us)

    def _make_ready(self, handle: Handle) -> None:
        if not handle.is_cancelled and handle.process.life is not Life.DEAD:
            handle.process.ready.append(handle)

    def _turn(self, process: Process, callbacks: int) -> None:
        """Runs a few callbacks of one process, as one turn of its event loop would."""
        asyncio._set_running_loop(process.loop)
        self.running = process
        try:
            ready = process.ready
            while callbacks and ready and process.life is Life.RUNNING:
                callbacks -= 1
                self.steps += 1
                self.now_us += 1
                handle = ready.popleft()
                if not handle.is_cancelled:
                    handle.run()
                    if process.sockets is not None:
                        process.sockets.settle()
        finally:
            self.running = None
            asyncio._set_running_loop(None)
        if self.steps > self.steps_max:
            raise Exhausted(f"seed {self.seed}: {self.steps} callbacks by {self.now_us / 1e6:.3f} s")

    def urandom(self, size: int) -> bytes:
        """Chance for code that asks the operating system for it."""
        return (self.random if self.running is None else self.running.random).randbytes(size)

    def fail(self, process: Process, text: str) -> None:
        """Notes what must not happen in a process that lives."""
        if process.life is not Life.DEAD and not self.is_over:
            self.failures.append(f"{self.now_us / 1e6:.6f} {process.name}: {text}")

    def unretrieved(self) -> list[str]:
        """Tasks that failed without anybody noticing."""
        return [
            f"{process.name}: a task failed and nobody asked: {task.exception()!r}"
            for process in self.processes
            for task in (process.tasks if process.is_alive else ())
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False)
        ]

    def dispose(self) -> None:
        """Ends everything without a trace: tasks are cancelled until they end, in processes that are dead to disk and
        network. Left to the garbage collector they would do the same at some other time."""
        for process in self.processes:
            results = [each for each in process.ready if each.tells_a_result]  # else who waits for them never ends
            process.kill()
            process.ready.extend(results)
        self.is_over = True
        self._timers.clear()
        for _ in range(_CANCELLATIONS_MAX):
            left = [task for process in self.processes for task in process.tasks if not task.done()]
            for task in left:
                task.cancel()
            for process in self.processes:
                self._run_out(process)
            if not left:
                break
        for process in self.processes:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if task.done() and not task.cancelled():
                    task.exception()
            process.tasks.clear()
            process.ready.clear()
            if process.sockets is not None:
                process.sockets.dispose()

    def _run_out(self, process: Process) -> None:
        asyncio._set_running_loop(process.loop)
        try:
            for _ in range(_CALLBACKS_AT_THE_END_MAX):
                if not process.ready:
                    break
                handle = process.ready.popleft()
                if not handle.is_cancelled:
                    handle.run()
        finally:
            asyncio._set_running_loop(None)
