"""A broker that is killed, or refused by its disk, at the n-th system call, again and again on the same data directory.

strace stops it at a write, a sync, a rename, an opening, a truncation or a removal, of any thread, from the first
instruction of its start to the last of its stop: with SIGKILL, or with EIO or ENOSPC once, now and then, or from then
on. The next broker goes on with what it finds: it is first asked for everything that was acknowledged before
(`crash_story`), then written to until it dies. After every few points one is started without faults, which must have
everything; at the end of a chain, after a clean stop, the files are verified.

`make test` runs CHAINS chains of POINTS points, other ones each time (a failure prints the seed, which
HEADRACE_CRASH_SEED repeats); `make soak` a thousand points. A fault that no thread gets as far as is an ordinary end
by a signal. Short writes are in `test_full_disk`: what strace could have a write return would be a disk that lies.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from headrace.offline.verify import BadIndex, Damage, verify
from tests import rotation
from tests.broker.crash_story import Story
from tests.broker.forked_brokers import ForkedBroker, ForkedBrokers, missing_strace
from tests.harness import tail

CHAINS, POINTS = 5, 30
SOAK_CHAINS, SOAK_POINTS = 20, 50
REQUESTS = 25
CALLS = {"pwrite64": 45, "fdatasync": 10, "rename": 14, "openat": 110, "ftruncate": 6, "unlink": 6}
"""System calls, and up to the how manieth a thread makes of them in its life."""

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "2000",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


_chains = count()


def new_seed() -> int:
    """The seed of one chain: another at each call, a second try's too, unless HEADRACE_CRASH_SEED names it."""
    return int(os.environ.get("HEADRACE_CRASH_SEED", "0")) or rotation.drawn("crash points", next(_chains))


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ForkedBrokers]:
    """The process that forks brokers."""
    if reason := missing_strace():
        pytest.skip(reason)
    with ForkedBrokers(tmp_path) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("chain", range(CHAINS))
def test_what_was_acknowledged_survives_every_crash(brokers: ForkedBrokers, tmp_path: Path, chain: int) -> None:
    fired = Chain(brokers, tmp_path / "data", new_seed()).run(POINTS)
    assert sum(fired.values()) >= POINTS // 2, fired


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("chain", range(SOAK_CHAINS))
def test_what_was_acknowledged_survives_a_thousand_crashes(brokers: ForkedBrokers, tmp_path: Path, chain: int) -> None:
    fired = Chain(brokers, tmp_path / "data", new_seed()).run(SOAK_POINTS)
    assert sum(fired.values()) >= SOAK_POINTS // 2, fired


class Chain:
    """Brokers one after the other on one data directory."""

    def __init__(self, brokers: ForkedBrokers, data: Path, seed: int) -> None:
        self.brokers = brokers
        self.data = data
        self.chance = random.Random(seed)
        self.story = Story(random.Random(seed + 1))
        self.fired: Counter[str] = Counter()
        self.history: list[str] = []
        self.seed = seed

    def run(self, points: int) -> Counter[str]:
        """A chain; how often each kind of fault came about."""
        broker = self._start([])
        self.story.begin(broker.bootstrap)
        broker.end(signal.SIGKILL)
        try:
            for number in range(points):
                self._point(self._fault())
                if number % 8 == 7:
                    self._in_peace(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
            self._in_peace(signal.SIGTERM)
            self._in_peace(signal.SIGTERM)
        except BaseException:
            print(f"HEADRACE_CRASH_SEED={self.seed}")
            print("\n".join(self.history))
            print(tail(self.brokers.stderr_file, 8000))
            raise
        findings = [found for found in verify(self.data, deep=True) if isinstance(found, Damage | BadIndex)]
        assert not findings
        print(f"seed {self.seed}:", ", ".join(f"{kind} x {times}" for kind, times in sorted(self.fired.items())))
        return self.fired

    def _fault(self) -> str:
        call = self.chance.choice(list(CALLS))
        at = self.chance.randint(1, CALLS[call])
        if self.chance.random() < 0.6:
            return f"{call}:signal=SIGKILL:when={at}"
        error = "EIO" if call == "fdatasync" else self.chance.choice(["EIO", "ENOSPC"])
        return f"{call}:error={error}:when={at}{self.chance.choice(['', '', '+', '+3'])}"

    def _point(self, fault: str) -> None:
        """One broker with a fault, or none where no thread gets as far as that."""
        is_kill = "SIGKILL" in fault
        broker = self._start([fault])
        is_gone = not broker.bootstrap
        try:
            if broker.bootstrap:
                self.story.is_disk_failing = not is_kill
                self.story.check(broker.bootstrap)
                self.story.write(broker.bootstrap, REQUESTS)
        except ConnectionError:
            is_gone = True
        ending = self.chance.choice([signal.SIGKILL, signal.SIGTERM])
        has_lost_disk = bool(broker.bootstrap) and is_gone and not is_kill  # then it ends by itself
        status = broker.end(signal.SIGCONT if has_lost_disk else ending)
        has_fired = broker.faults_seen() > 0
        if is_kill:
            has_fired = status == signal.SIGKILL and (is_gone or ending == signal.SIGTERM)
        self.fired[fault.partition(":when")[0]] += has_fired
        how = "did not start" if not broker.bootstrap else "died" if is_gone else f"ended by {ending.name}"
        self.history.append(f"{fault}: {'came' if has_fired else 'did not come'}; {how}, status {status}")
        if has_lost_disk:  # a full disk is no failure
            assert "EIO" in fault and os.waitstatus_to_exitcode(status) == 1, f"the broker ended, or hung up: {fault}"

    def _in_peace(self, ending: signal.Signals) -> None:
        """A broker without faults: all is as it was, and goes on."""
        self.history.append("in peace")
        broker = self._start([])
        assert broker.bootstrap, "the broker did not start"
        self.story.is_disk_failing = False
        self.story.check(broker.bootstrap)
        self.story.finish(broker.bootstrap)
        self.story.write(broker.bootstrap, 5)
        self.story.check(broker.bootstrap)
        status = broker.end(ending)
        assert status == (0 if ending == signal.SIGTERM else signal.SIGKILL)

    def _start(self, faults: Sequence[str]) -> ForkedBroker:
        broker = self.brokers.start(self.data, SETTINGS, faults)
        broker.wait_until_ready()
        return broker
