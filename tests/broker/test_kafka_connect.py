"""An exactly-once source of Kafka Connect writes each line of a file once, though its workers freeze and are killed."""

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import rotation
from tests.conftest import StartHeadrace
from tests.eventually import eventually, eventually_equal
from tests.peers import kafka, kafka_connect
from tests.peers.kafka_connect import OFFSET_PARTITIONS, ConnectWorker
from tests.topic_reader import TopicReader
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {**kafka.SHARED_SETTINGS, "group.min.session.timeout.ms": "1000"}
BOUNDARIES = {"poll": {}, "interval": {"transaction.boundary.interval.ms": "1000"}}
LINES = 40
FENCING_LOGGER = "org.apache.kafka.connect.runtime.Worker"


@pytest.fixture(scope="module")
def connect() -> None:
    """The jars, downloaded before the time of a test begins."""
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    kafka.jars()
    kafka_connect.connector_jars()


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.usefixtures("connect")
@pytest.mark.xdist_group("java-programs")
@rotation.on_its_day(1, of=3)
def test_a_file_source_writes_each_line_once_though_its_workers_freeze_and_die(
    headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    bootstrap = headrace_server(settings=SETTINGS).bootstrap
    group = f"connect-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        first, second = (ConnectWorker(bootstrap, group, tmp_path / name) for name in ("first", "second"))
        for worker in (first, second):
            stack.callback(worker.kill)
        first.start()
        sources = {boundary: Source(stack, bootstrap, f"{group}-{boundary}", tmp_path) for boundary in BOUNDARIES}
        for boundary, settings in BOUNDARIES.items():
            sources[boundary].create(first, {"transaction.boundary": boundary, **settings})

        def all_arrive(worker: ConnectWorker) -> None:
            for source in sources.values():
                source.append(LINES)
            for source in sources.values():
                source.arrives(worker)

        all_arrive(first)
        for source in sources.values():
            source.append(LINES)
        interval = sources["interval"]
        eventually(lambda: freezes_in_a_transaction(first, interval), "an open transaction", state=first.log)
        second.start()
        all_arrive(second)
        first.resume()  # it does not know yet that its tasks have moved, and tries to go on with its transaction
        all_arrive(second)
        second.kill()
        all_arrive(first)
        assert len(interval.written.read()) > len(interval.committed.read())  # what the frozen worker did not commit
        for source in sources.values():
            source.stored_offsets_are_those_of_its_transactions()
        sources["poll"].starts_again_without_offsets(first)


def freezes_in_a_transaction(worker: ConnectWorker, source: "Source") -> bool:
    """Pauses the worker; whether a transaction of the source is open then. If not, the worker goes on."""
    source.append(1)
    worker.pause()
    if len(source.written.read()) > len(source.committed.read()):
        return True
    worker.resume()
    return False


@dataclass
class Source:
    """A connector, the file that it reads, and readers of the topics that it writes."""

    stack: ExitStack
    bootstrap: str
    name: str
    directory: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = self.directory / f"{self.name}.txt"
        self.file.touch()
        with Wire(self.bootstrap) as wire:
            assert wire.create_topic(self.name, 1, {}) == 0
        self.written = self._reader(self.name, 1, "read_uncommitted")
        self.committed = self._reader(self.name, 1, "read_committed")

    def _reader(self, topic: str, partitions: int, isolation_level: str) -> TopicReader:
        return self.stack.enter_context(TopicReader(self.bootstrap, topic, partitions, isolation_level))

    def create(self, worker: ConnectWorker, settings: dict[str, str]) -> None:
        """Have the worker run it."""
        own = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "exactly.once.support": "required",
            "tasks.max": "1",
            "file": str(self.file),
            "topic": self.name,
        }
        worker.ask_until_served("PUT", f"/connectors/{self.name}/config", {**own, **settings})

    def append(self, count: int) -> None:
        """More lines for the file."""
        more = [f"line {len(self.lines) + number}" for number in range(count)]
        with self.file.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        self.lines.extend(more)

    def arrives(self, worker: ConnectWorker) -> None:
        """Returns once a reader of committed records has as many as the file has lines; they are the same, in order."""
        eventually(
            lambda: len(self.committed.read()) >= len(self.lines),
            f"{len(self.lines)} committed lines of {self.name}",
            state=lambda: f"{len(self.committed.records)} came\n{worker.log()}",
        )
        assert self.committed.values() == self.lines

    def stored_offsets_are_those_of_its_transactions(self) -> None:
        """The positions that Connect stored grow, by whole polls or more, to the end of the file."""
        positions = self._stored_positions()
        assert positions == sorted(set(positions))
        assert positions[-1] == self.file.stat().st_size
        assert len(positions) > 1

    def _stored_positions(self) -> list[int]:
        group = self.name.rpartition("-")[0]
        offsets = self._reader(f"{group}-offsets", OFFSET_PARTITIONS, "read_committed")
        own = [each for each in offsets.read() if json.loads(each.key or b"")[0] == self.name]
        return [json.loads(each.value or b"")["position"] for each in own]

    def starts_again_without_offsets(self, worker: ConnectWorker) -> None:
        """Connect fences the producers of a stopped connector before it forgets its offsets."""
        path = f"/connectors/{self.name}"
        worker.ask_until_served("PUT", f"{path}/stop")
        eventually_equal(lambda: worker.state_of(self.name), ["STOPPED"])
        assert worker.ask("PUT", f"/admin/loggers/{FENCING_LOGGER}", {"level": "DEBUG"})[0] == 200
        worker.ask_until_served("DELETE", f"{path}/offsets")
        assert worker.logged(f"Finished fencing out 1 task producers for source connector {self.name}")
        assert worker.ask_until_served("GET", f"{path}/offsets") == {"offsets": []}
        worker.ask_until_served("PUT", f"{path}/resume")
        self.lines *= 2
        self.arrives(worker)
