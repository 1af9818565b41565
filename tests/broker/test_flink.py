"""Apache Flink's exactly-once sink copies each record once, though its process is killed and continues a checkpoint."""

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.producer.producer import Producer
from tests import rotation
from tests.conftest import StartHeadrace
from tests.eventually import EVERY_SECONDS, eventually
from tests.peers import flink_job, kafka
from tests.peers.flink_job import NAMINGS, CopyJob
from tests.topic_reader import TopicReader
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

PARTITIONS = 2
NUMBERS_AT_A_TIME = 20
KILLS_MAX = 6


@pytest.fixture(scope="module")
def flink() -> None:
    """Flink's jars and the job, downloaded and built before the time of a test begins."""
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    flink_job.built()


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.usefixtures("flink")
@pytest.mark.xdist_group("java-programs")
@rotation.on_its_day(0, of=3)
def test_a_job_that_is_killed_and_continued_copies_each_number_once(
    headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    """In this run with one of Flink's two ways to name transactions."""
    naming = NAMINGS[rotation.drawn("flink", 0) % len(NAMINGS)]
    bootstrap = headrace_server(settings=kafka.SHARED_SETTINGS).bootstrap
    copies_each_number_once(bootstrap, naming, tmp_path, kills=2)


@pytest.mark.soak
@pytest.mark.peer
@pytest.mark.usefixtures("flink")
@pytest.mark.parametrize("naming", NAMINGS)
def test_a_job_that_is_killed_again_and_again_copies_each_number_once(
    headrace_server: StartHeadrace, tmp_path: Path, naming: str
) -> None:
    bootstrap = headrace_server(settings=kafka.SHARED_SETTINGS).bootstrap
    copies_each_number_once(bootstrap, naming, tmp_path, kills=KILLS_MAX)


def copies_each_number_once(bootstrap: str, naming: str, directory: Path, *, kills: int) -> None:
    """Kills the job so many times, inside transactions and behind a checkpoint in turn.

    It kills more often if no job has resumed a transaction until then, but KILLS_MAX times at most.
    """
    with ExitStack() as stack:
        copying = Copying(stack, bootstrap, naming, directory)
        copying.job.start()
        copying.send(PARTITIONS)
        copying.copies_all()
        for kill in range(KILLS_MAX):
            if kill >= kills and copying.job.resumed_transactions():
                break
            if kill % 2 == 0 and kill < kills:
                copying.kill_inside_transactions()
                # With one writer fewer nobody uses the other one's id again: the job has to find and fence it.
                copying.job.start(parallelism=1)
            else:
                copying.kill_behind_a_checkpoint()
                copying.job.start(parallelism=2)
            copying.copies_all()
        copying.send(PARTITIONS)
        copying.copies_all()  # a second copy of the numbers before would have been committed before these
        assert sorted(copying.committed.values(), key=int) == [str(number) for number in range(copying.sent)]
        assert copying.job.resumed_transactions(), "no kill came between a checkpoint and the commit behind it"
        assert copying.aborted, "no kill came inside a transaction"


class Copying:
    """A job that copies 0, 1, 2, …, and readers of the copies."""

    def __init__(self, stack: ExitStack, bootstrap: str, naming: str, directory: Path) -> None:
        name = uuid.uuid4().hex[:8]
        self.source, target = f"numbers-{name}", f"copies-{name}"
        with Wire(bootstrap) as wire:
            for topic in (self.source, target):
                assert wire.create_topic(topic, PARTITIONS, {}) == 0
        self.producer = stack.enter_context(Producer(bootstrap))
        self.written, self.committed = (
            stack.enter_context(TopicReader(bootstrap, target, PARTITIONS, isolation_level))
            for isolation_level in ("read_uncommitted", "read_committed")
        )
        self.job = CopyJob(bootstrap, self.source, target, naming, directory)
        stack.callback(self.job.kill)
        self.sent = 0
        self.aborted = 0
        """Copies that will never be committed."""

    def send(self, count: int) -> None:
        """The next `count` numbers, to the source's partitions in turn."""
        for number in range(self.sent, self.sent + count):
            self.producer.send(self.source, str(number).encode(), partition=number % PARTITIONS)
        self.sent += count
        self.producer.flush()

    def copies_all(self) -> None:
        """Returns once there are as many committed copies as numbers."""
        self._eventually(lambda: len(self.committed.read()) >= self.sent, f"{self.sent} committed copies")
        self.aborted = len(self.written.read()) - len(self.committed.read())

    def kill_behind_a_checkpoint(self) -> None:
        """While a transaction is open that the last checkpoint may have prepared."""
        self._eventually(self._freezes_behind_a_checkpoint, "an open transaction behind a checkpoint")
        self.job.kill()

    def kill_inside_transactions(self) -> None:
        """While each writer has a transaction open that no checkpoint knows."""
        self._eventually(self._freezes_inside_transactions, "open transactions")
        self.job.kill()

    def _freezes_behind_a_checkpoint(self) -> bool:
        self.send(NUMBERS_AT_A_TIME)
        before = self.job.checkpoints()
        self._eventually(lambda: self.job.checkpoints() - before, "a checkpoint", every_s=0.001)
        return self._is_paused_if(lambda: len(self.written.read()) - len(self.committed.read()) > self.aborted)

    def _freezes_inside_transactions(self) -> bool:
        before, already = self.job.checkpoints(), len(self.written.read())

        def both_have_written() -> bool:
            self.send(PARTITIONS)
            return len({int(value) % PARTITIONS for value in self.written.values()[already:]}) == PARTITIONS

        self._eventually(both_have_written, "copies of both writers")
        return self._is_paused_if(lambda: self.job.checkpoints() == before)

    def _is_paused_if(self, holds: Callable[[], bool]) -> bool:
        """Pauses the job; it goes on if `holds` is false."""
        self.job.pause()
        if holds():
            return True
        self.job.resume()
        return False

    def _eventually(self, holds: Callable[[], object], what: str, *, every_s: float = EVERY_SECONDS) -> None:
        def holds_or_has_ended() -> bool:
            assert self.job.runs(), self.job.log()
            return bool(holds())

        eventually(holds_or_has_ended, what, every_s=every_s, state=self.job.log)
