"""What the tests of bad input share: a client that must not notice anything, and the broker's memory from outside."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import HeadraceServer, tail
from tests.wire import Wire, batch

MIB = 1 << 20


class Bystander:
    """Produces a record, fetches it back, and again, until the end of the `with`; any wrong answer fails the test."""

    def __init__(self, bootstrap: str, topic: str = "bystander", *, server: HeadraceServer | None = None) -> None:
        self.exchanges = 0
        self.most_loop_seconds = 0.0
        """The most processor time of the broker's event loop during one exchange; 0 without `server`."""
        self._wire = Wire(bootstrap)
        self._topic = topic
        self._server = server
        self._wire.create_topic(topic)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bystander")

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._wire.socket.close()
        if self._failure is not None:
            raise AssertionError(f"after {self.exchanges} exchanges the bystander was harmed") from self._failure
        assert self.exchanges > 0

    def _run(self) -> None:
        try:
            start = self._wire.list_offset(self._topic, -1)[2]
            while not self.exchanges or not self._stop.wait(0.005):
                began = self._loop_seconds()
                self._exchange(start + self.exchanges)
                self.exchanges += 1
                self.most_loop_seconds = max(self.most_loop_seconds, self._loop_seconds() - began)
        except BaseException as failure:  # told by the test's own thread
            self._failure = failure

    def _loop_seconds(self) -> float:
        return 0.0 if self._server is None else loop_seconds(self._server)

    def _exchange(self, offset: int) -> None:
        value = b"value %d" % offset
        assert self._wire.produce(self._topic, batch([value])) == (0, offset)
        fetched = self._wire.fetch(self._topic, offset, max_wait_ms=0)
        assert (fetched.error_code, fetched.high_watermark) == (0, offset + 1)
        assert value in fetched.records


def loop_seconds(server: HeadraceServer) -> float:
    """The processor time of the broker's first thread, which runs the event loop. Needs /proc/PID/schedstat."""
    assert server.process is not None
    pid = server.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_bytes(server: HeadraceServer, field: str = "VmRSS") -> int:
    """A field of the broker's /proc/PID/status: VmRSS (resident now) or VmHWM (the most since the last reset)."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(field + ":"))


@contextmanager
def growing_at_most(server: HeadraceServer, bound_bytes: int) -> Iterator[None]:
    """Fails when the broker's resident memory was ever so much larger than before."""
    assert server.process is not None
    before = memory_bytes(server)
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak is the present
    yield
    grown = memory_bytes(server, "VmHWM") - before
    print(f"memory: {before / MIB:.0f} MiB before, {grown / MIB:+.1f} MiB at most")
    assert grown <= bound_bytes, f"{grown / MIB:.1f} MiB more, allowed are {bound_bytes / MIB:.0f}"


def assert_unharmed(server: HeadraceServer) -> None:
    """The broker answers, ends cleanly, and its log tells of no bug."""
    with Wire(server.bootstrap) as wire:
        assert wire.list_offset("bystander", -1)[0] in (0, 3)
    assert server.stop() == 0, tail(server.stderr_file)
    assert "Traceback" not in tail(server.stderr_file, 1 << 24), tail(server.stderr_file, 20_000)
