"""The simulated event loop keeps asyncio's promises, and a process dies, stops and goes on as processes do."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulation.scheduler import EPOCH_MS, Exhausted, Process, Scheduler

SECOND_US = 1_000_000


def start(process: Process, work) -> "list[asyncio.Task[object]]":  # type: ignore[no-untyped-def]
    """Runs a coroutine function in a process."""
    tasks: list[asyncio.Task[object]] = []
    process.call(lambda: tasks.append(process.loop.create_task(work())))
    return tasks


def test_callbacks_of_one_process_run_in_the_order_in_which_they_became_ready() -> None:
    scheduler = Scheduler(1)
    process = scheduler.process("one")
    seen: list[int] = []
    for number in range(50):
        process.loop.call_soon(seen.append, number)
    scheduler.run_for(SECOND_US)
    assert seen == list(range(50))


def test_a_seed_decides_what_happens_between_processes() -> None:
    def order(seed: int) -> list[str]:
        scheduler = Scheduler(seed)
        seen: list[str] = []
        for name in ("one", "two", "three"):
            process = scheduler.process(name)
            for number in range(20):
                process.loop.call_soon(seen.append, f"{name} {number}")
        scheduler.run_for(SECOND_US)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


def test_sleeping_takes_virtual_time_only() -> None:
    scheduler = Scheduler(1)
    process = scheduler.process("one")

    async def work() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - began

    tasks = start(process, work)
    assert scheduler.run(lambda: bool(tasks) and tasks[0].done(), 3601 * SECOND_US)
    assert 3600 <= tasks[0].result() < 3600.001  # type: ignore[operator]
    assert process.now_ms() == EPOCH_MS + scheduler.now_us // 1000


def test_time_outs_queues_locks_and_task_groups_work() -> None:
    scheduler = Scheduler(1)
    seen: list[object] = []

    async def work() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()
        lock = asyncio.Lock()

        async def produce() -> None:
            for number in range(3):
                await asyncio.sleep(0.1)
                async with lock:
                    queue.put_nowait(number)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce())
            seen.extend([await queue.get() for _ in range(3)])
        try:
            async with asyncio.timeout(0.5):
                await queue.get()
        except TimeoutError:
            seen.append("time-out")

    start(scheduler.process("one"), work)
    scheduler.run_for(SECOND_US)
    assert seen == [0, 1, 2, "time-out"]


def test_work_for_an_executor_is_done_later_and_a_single_thread_keeps_its_order() -> None:
    scheduler = Scheduler(1)
    process = scheduler.process("one")
    done: list[int] = []
    alone = ThreadPoolExecutor(1)

    async def work() -> list[int]:
        loop = asyncio.get_running_loop()
        return list(await asyncio.gather(*(loop.run_in_executor(alone, _noted, done, number) for number in range(30))))

    tasks = start(process, work)
    scheduler.run_for(SECOND_US)
    assert tasks[0].result() == list(range(30))
    assert done == list(range(30))
    assert scheduler.now_us > 1000


def _noted(done: list[int], number: int) -> int:
    done.append(number)
    return number


def test_an_error_on_an_executor_reaches_who_waits() -> None:
    scheduler = Scheduler(1)

    async def work() -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: 1 // 0)

    tasks = start(scheduler.process("one"), work)
    scheduler.run_for(SECOND_US)
    assert isinstance(tasks[0].exception(), ZeroDivisionError)


def test_a_killed_process_does_nothing_more_not_even_what_is_in_a_finally() -> None:
    scheduler = Scheduler(1)
    process = scheduler.process("one")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("slept")
        finally:
            seen.append("finally")

    start(process, work)
    process.call_in(2 * SECOND_US, seen.append, "timer")
    scheduler.run_for(SECOND_US // 2)
    process.kill()
    process.call(seen.append, "called")
    scheduler.run_for(5 * SECOND_US)
    assert seen == []


def test_a_paused_process_goes_on_where_it_stood_with_everything_that_came_meanwhile() -> None:
    scheduler = Scheduler(1)
    process = scheduler.process("one")
    seen: list[str] = []
    process.call_in(SECOND_US, seen.append, "timer")
    process.pause()
    process.call(seen.append, "message")
    scheduler.run_for(3 * SECOND_US)
    assert seen == []
    process.resume()
    scheduler.run_for(1)
    assert seen == ["message", "timer"]


def test_what_nobody_catches_is_a_failure_of_the_run() -> None:
    scheduler = Scheduler(1)
    alive, dead = scheduler.process("alive"), scheduler.process("dead")
    alive.call(lambda: 1 // 0)
    dead.kill()
    dead.loop.call_exception_handler({"message": "of a dead process"})

    async def fail() -> None:
        raise ValueError("nobody waits for me")

    start(alive, fail)
    scheduler.run_for(SECOND_US)
    assert len(scheduler.failures) == 1
    assert "ZeroDivisionError" in scheduler.failures[0]
    assert any("nobody waits for me" in each for each in scheduler.unretrieved())
    scheduler.dispose()


def test_a_loop_without_end_is_found_out() -> None:
    scheduler = Scheduler(1)
    scheduler.steps_max = 10_000
    process = scheduler.process("one")

    def again() -> None:
        process.loop.call_soon(again)

    again()
    with pytest.raises(Exhausted):
        scheduler.run_for(1000 * SECOND_US)
