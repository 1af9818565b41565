"""Threads that sync one directory share what they can, and fail together."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.log.files import LocalFiles
from headrace.log.shared_syncs import OpenRefused, SharedSyncs, _Directory
from tests.eventually import WITHIN_SECONDS
from tests.log.support import no_descriptors

HERE = "/data"


class SlowDirectory:
    """Each sync says that it has begun, and ends when the test lets it."""

    def __init__(self) -> None:
        self.syncs = SharedSyncs(self.sync)
        self.begun = 0
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.error: OSError | None = None

    def sync(self, path: str) -> None:
        self.begun += 1
        self.has_begun.release()
        assert self.may_end.acquire(timeout=WITHIN_SECONDS)
        if self.error is not None:
            raise self.error

    def waiting(self) -> int:
        """How many threads are inside `SharedSyncs.sync`."""
        found = self.syncs._directories.get(HERE)
        return found.waiting if found else 0


def ask(pool: ThreadPoolExecutor, directory: SlowDirectory, count: int) -> list[Future[None]]:
    """That many threads want a sync, and all have said so."""
    before = directory.waiting()
    asked = [pool.submit(directory.syncs.sync, HERE) for _ in range(count)]
    while directory.waiting() < before + count:
        threading.Event().wait(0.001)
    return asked


def test_whoever_asks_during_a_sync_shares_the_next() -> None:
    directory = SlowDirectory()
    with ThreadPoolExecutor(8) as pool:
        first = ask(pool, directory, 1)
        assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        others = ask(pool, directory, 5)
        assert not any(each.done() for each in others), "the sync that was under way is not good for them"
        directory.may_end.release()
        first[0].result(WITHIN_SECONDS)
        assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        directory.may_end.release()
        for each in others:
            each.result(WITHIN_SECONDS)
    assert directory.begun == 2
    assert not directory.syncs._directories, "nothing is kept of a directory that nobody syncs"


def test_a_failed_sync_fails_for_all_whom_it_was_to_be_good_for() -> None:
    directory = SlowDirectory()
    with ThreadPoolExecutor(8) as pool:
        first = ask(pool, directory, 1)
        assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        others = ask(pool, directory, 4)
        directory.may_end.release()
        first[0].result(WITHIN_SECONDS)
        assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        directory.error = OSError(5, "Input/output error")
        directory.may_end.release()
        for each in others:
            with pytest.raises(OSError, match="Input/output error"):
                each.result(WITHIN_SECONDS)
    assert directory.begun == 2, "nobody tried again and hoped"


def test_a_directory_that_could_not_be_opened_is_refused_to_all_and_no_sync_failed() -> None:
    directory = SlowDirectory()
    directory.error = OpenRefused(24, "Too many open files", HERE)
    with ThreadPoolExecutor(8) as pool:
        first = ask(pool, directory, 1)
        assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        others = ask(pool, directory, 3)
        directory.may_end.release(2)
        for each in (*first, *others):
            with pytest.raises(OpenRefused, match="Too many open files: '/data'"):
                each.result(WITHIN_SECONDS)
    assert directory.begun == 2


class Gates:
    """A lock that lets each thread in when the test says so."""

    def __init__(self) -> None:
        self.gates: dict[str, threading.Event] = {}

    def __enter__(self) -> None:
        assert self.gates[threading.current_thread().name].wait(WITHIN_SECONDS)

    def __exit__(self, *_: object) -> None:
        pass


def test_a_refusal_does_not_hide_a_failed_sync_from_those_who_have_not_heard_of_it() -> None:
    """A lock is not fair: who asks later may get it before those whom the failed sync was to serve."""
    errors = [None, OSError(28, "No space left on device"), OpenRefused(24, "Too many open files")]

    def sync(path: str) -> None:
        error = errors.pop(0)
        if error is not None:
            raise error

    syncs, gates, found, threads = SharedSyncs(sync), Gates(), {}, {}

    def asks(name: str) -> None:
        def run() -> None:
            try:
                syncs.sync(HERE)
            except OSError as error:
                found[name] = type(error), error.errno

        gates.gates[name] = threading.Event()
        before = syncs._directories[HERE].waiting
        threads[name] = threading.Thread(target=run, name=name)
        threads[name].start()
        while syncs._directories[HERE].waiting == before:
            threading.Event().wait(0.001)

    def goes_on(name: str) -> None:
        gates.gates[name].set()
        threads[name].join(WITHIN_SECONDS)

    shared = syncs._directories[HERE] = _Directory()
    shared.waiting, shared.lock = 1, gates  # type: ignore[assignment]
    asks("first")
    goes_on("first")
    asks("second")
    asks("late")
    goes_on("second")
    asks("third")
    goes_on("third")
    goes_on("late")
    assert found == {"second": (OSError, 28), "third": (OpenRefused, 24), "late": (OSError, 28)}


def test_different_directories_do_not_wait_for_each_other() -> None:
    directory = SlowDirectory()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(directory.syncs.sync, name) for name in ("/a", "/b")]
        for _ in both:
            assert directory.has_begun.acquire(timeout=WITHIN_SECONDS)
        for _ in both:
            directory.may_end.release()
        for each in both:
            each.result(WITHIN_SECONDS)


def test_the_real_disk_syncs_directories_and_says_which_is_not_there(tmp_path: Path) -> None:
    LocalFiles().sync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        LocalFiles().sync_directory(tmp_path / "gone")
    with pytest.raises(OSError, match="Invalid argument: '/proc'") as failed:
        LocalFiles().sync_directory("/proc")
    assert not isinstance(failed.value, OpenRefused)
    with no_descriptors(), pytest.raises(OpenRefused, match="Too many open files"):
        LocalFiles().sync_directory(tmp_path)
