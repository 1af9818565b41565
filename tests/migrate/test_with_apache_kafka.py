"""There and back with the real ones: Kafka 4.3 (KRaft) -> headrace -> Kafka 3.9 (ZooKeeper) -> headrace.

There are two chains, one each day. In one Kafka 4.3 and headrace are stopped, in the other they are killed; Kafka 3.9
is left the other way round. After each step a client must see what it saw before.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.cli.main import main as headrace
from headrace.log.files import LocalFiles
from headrace.migrate.metadata_log import read_metadata_log
from headrace.offline.dump import dump
from tests import rotation
from tests.broker.acl_requests import AUTHORIZED
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.migrate.facts import Facts, facts, fill, write_more
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("migrate"),
]

STOPS = [("stopped", "killed")[rotation.day() % 2]]
SUPER = "super.users=User:ANONYMOUS\n"
AUTHORIZER = f"{SUPER}authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
KRAFT_AUTHORIZER = f"{SUPER}authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
OFTEN = "log.flush.start.offset.checkpoint.interval.ms=200\n"
SOON = "log.cleaner.backoff.ms=100\nmetadata.log.max.record.bytes.between.snapshots=100\n"
NOT_FROM_ZERO = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")
FAULTS = re.compile(r"ismatch|Index offset|Non-consecutive|out of order|isvalid: false|not found in log|Exception")
KAFKAS_FAULTS = re.compile(r" ERROR |-stray|corrupt|Recovering unflushed", re.I)


class Step(NamedTuple):
    """What a client saw when the broker had started on migrated files, and when it had written to them; the files."""

    seen: Facts
    left: Facts
    directories: list[Path]


@dataclass
class Server(HeadraceServer):
    """`headrace serve` on migrated directories, as broker 1."""

    directories: list[Path] = field(default_factory=list)

    def command(self) -> list[str]:
        """As the migration said: all directories, first the one with the tree."""
        return [*super().command(), "--data", ",".join(map(str, self.directories)), "--broker-id", "1"]


def served(directories: list[Path]) -> Server:
    server = Server(directories[0], AUTHORIZED, directories=directories)
    server.start()
    return server


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("chain")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def kraft(home: Path) -> tuple[Facts, dict[str, list[Path]]]:
    """Kafka 4.3 with two directories: what a client sees, and copies of the files after both endings."""
    settings = OFTEN + SOON + KRAFT_AUTHORIZER
    node = KafkaNode(home / "kraft", log_dirs=[home / "kraft/a", home / "kraft/b"], settings=settings)
    copies = {}
    with node:
        fill(node.bootstrap)
        wait_for_checkpoint(node.log_dirs, "compacted 0 ", "cleaner-offset-checkpoint")
        wait_for_checkpoint(node.log_dirs, "trimmed 0 42")
        seen = facts(node.bootstrap)
        assert headrace(["migrate", "from-kafka", *map(str, node.log_dirs), "--to", str(home / "never")]) == 1
        assert not (home / "never").exists(), "a directory that a running broker holds"
        node.kill()
        copies["killed"] = copy_all(node.log_dirs, home / "kraft-killed")
        node.start()
        node.stop()
        copies["stopped"] = copy_all(node.log_dirs, home / "kraft-stopped")
    return seen, copies


def wait_for_checkpoint(directories: list[Path], line: str, name: str = "log-start-offset-checkpoint") -> None:
    """Until Kafka has written down where a log begins, which a kill would make it forget; or that one is compacted."""
    paths = [each / name for each in directories]
    eventually(lambda: any(line in path.read_text() for path in paths if path.exists()), f"{line!r} in {name}")


def copy_all(directories: list[Path], target: Path) -> list[Path]:
    return [Path(shutil.copytree(each, target / each.name)) for each in directories]


@pytest.fixture(scope="module")
def ours(home: Path, kraft: tuple[Facts, dict[str, list[Path]]]) -> dict[str, Step]:
    """headrace on what Kafka 4.3 left: after the clean stop in one directory, after the kill in two."""
    steps = {}
    for stop, sources in kraft[1].items():
        targets = [home / f"ours-{stop}"] if stop == "stopped" else [home / f"ours-{stop}-{n}" for n in "ab"]
        run("from-kafka", *sources, *to(targets))
        server = served(targets)
        try:
            seen = facts(server.bootstrap)
            write_more(server.bootstrap, b"ours " + stop.encode())
            left = facts(server.bootstrap)
        finally:
            server.stop() if stop == "stopped" else server.kill()
        steps[stop] = Step(seen, left, targets)
    return steps


def run(*arguments: object) -> None:
    assert headrace(["migrate", *map(str, arguments)]) == 0


def to(targets: list[Path]) -> list[object]:
    return [part for target in targets for part in ("--to", target)]


class Back(NamedTuple):
    """Kafka 3.9's part of the chains."""

    steps: dict[str, Step]
    as_exported: dict[str, Path]
    logs: dict[str, str]
    ours_again: dict[str, Path]


@pytest.fixture(scope="module")
def old(home: Path, ours: dict[str, Step]) -> Back:
    """Kafka 3.9 on what headrace left, and its files migrated again, through the live tree and through a saved one."""
    back = Back({}, {}, {}, {})
    with ZooKeeper(home / "zookeeper") as zookeeper:
        for stop, step in ours.items():
            where, target = f"{zookeeper.address}/{stop}", home / f"old-{stop}"
            tree = home / f"{stop}.json"
            if stop == "stopped":
                run("to-kafka", *step.directories, "--to", target, "--zookeeper", where)
            else:
                run("to-kafka", *step.directories, "--to", target, "--tree", tree)
                run("load-tree", tree, "--zookeeper", where)
            back.as_exported[stop] = Path(shutil.copytree(target, home / f"exported-{stop}"))
            node = KafkaNode(home / f"node-{stop}", zookeeper=where, log_dirs=[target], settings=OFTEN + AUTHORIZER)
            with node:
                seen = facts(node.bootstrap)
                back.logs[stop] = (node.directory / "broker.log").read_text()
                write_more(node.bootstrap, b"old " + stop.encode())
                left = facts(node.bootstrap)
                wait_for_checkpoint(node.log_dirs, "trimmed 0 42")
                node.kill() if stop == "stopped" else node.stop()
            back.steps[stop] = Step(seen, left, [target])
            again = back.ours_again[stop] = home / f"again-{stop}"
            if stop == "stopped":
                run("from-kafka", target, "--to", again, "--zookeeper", where)
            else:
                run("save-tree", home / "saved.json", "--zookeeper", where)
                run("from-kafka", target, "--to", again, "--tree", home / "saved.json")
    return back


@pytest.mark.parametrize("stop", STOPS)
def test_a_client_sees_in_headrace_what_it_saw_in_kafka_with_kraft(
    kraft: tuple[Facts, dict[str, list[Path]]], ours: dict[str, Step], stop: str
) -> None:
    assert ours[stop].seen == kraft[0]


def test_the_metadata_was_in_a_snapshot_and_the_compacted_topic_has_gaps(
    kraft: tuple[Facts, dict[str, list[Path]]],
) -> None:
    seen, copies = kraft
    for directories in copies.values():
        log = read_metadata_log(LocalFiles(), directories[0] / "__cluster_metadata-0")
        snapshots = sorted((directories[0] / "__cluster_metadata-0").glob("*.checkpoint"))
        assert len(log.records) > 20
        assert int(snapshots[-1].name[:20]) > 20
    compacted = seen.partitions["compacted", 0]
    assert len(compacted.records) < compacted.end - compacted.start


@pytest.mark.parametrize("stop", STOPS)
def test_a_client_sees_in_kafka_with_zookeeper_what_it_saw_in_headrace(
    ours: dict[str, Step], old: Back, stop: str
) -> None:
    assert old.steps[stop].seen == ours[stop].left
    assert KAFKAS_FAULTS.findall(old.logs[stop]) == []
    assert "Skipping recovery of 11 logs" in old.logs[stop]


@pytest.mark.parametrize("stop", STOPS)
def test_a_client_sees_in_headrace_what_it_saw_in_kafka_with_zookeeper(old: Back, stop: str) -> None:
    server = served([old.ours_again[stop]])
    try:
        assert facts(server.bootstrap) == old.steps[stop].left
    finally:
        server.stop()


def test_kafkas_dump_tool_finds_no_fault_with_what_we_wrote_and_exported(old: Back, tmp_path: Path) -> None:
    files = [path for root in old.as_exported.values() for path in root.rglob("0*") if path.is_file()]
    kinds = {path.suffix for path in files}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    tool = "org.apache.kafka.tools.DumpLogSegments"
    names = ",".join(sorted(map(str, files)))
    said = kafka.run_tool(tool, "--deep-iteration", "--files", names, logs=tmp_path, with_stderr=True)
    assert FAULTS.findall(NOT_FROM_ZERO.sub("", said)) == []
    indexes = ",".join(sorted(str(path) for path in files if path.suffix in (".index", ".timeindex")))
    said = kafka.run_tool(tool, "--index-sanity-check", "--files", indexes, logs=tmp_path, with_stderr=True)
    assert said.count("passed sanity check") > 20
    assert said.count("passed sanity check") + said.count(" is empty") == indexes.count(",") + 1


def test_our_dump_finds_no_fault_with_what_was_migrated_twice(old: Back) -> None:
    for directory in old.ours_again.values():
        rows = list(dump(directory, deep=True))
        assert [row for row in rows if row["kind"] == "damage" or row.get("is_valid") is False] == []
        assert {"record", "offset_entry", "time_entry", "aborted_transaction", "producer", "leader_epoch"} <= {
            row["kind"] for row in rows
        }
