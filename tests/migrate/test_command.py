"""`headrace migrate` on directories of stopped brokers: what it does and refuses. No Kafka is needed."""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.cli.main import main
from headrace.instances.definition import Instance
from headrace.log.directories.data_directory import CLEAN_SHUTDOWN
from headrace.log.directories.meta_properties import MetaProperties
from headrace.log.files import DiskSpace, LocalFiles, LogFile, PathText
from headrace.log.manager import LogManager
from headrace.metadata import znodes
from headrace.metadata.acl_nodes import decode_entries
from headrace.metadata.stored_instances import StoredInstances
from headrace.metastore.embedded import EmbeddedStore
from headrace.migrate import zookeeper
from headrace.migrate.embedded import read_embedded
from headrace.migrate.from_kafka import from_kafka
from headrace.migrate.move import Migration
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.tree_file import read_tree, write_tree
from headrace.offline.dump import dump
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.control import ABORT, COMMIT
from headrace.security.access import Operation
from headrace.security.acls.model import Permission
from headrace.types import TopicPartition
from tests.harness import HeadraceServer, free_ports
from tests.log.support import NOW_MS, append, append_batch, append_marker, config
from tests.migrate.facts import seen
from tests.migrate.quorum import OTHER_ID, TOPIC_ID, partition, setting, topic
from tests.migrate.stopped import CLUSTER, FLIGHTS, MESSAGES, kafkas, logs, ours, remember, tree

Said = pytest.CaptureFixture[str]


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def content(directory: Path) -> dict[str, str]:
    """Every file's digest."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def values(directory: Path) -> list[object]:
    """What the records of a directory are, by partition and offset."""
    rows = list(dump(directory, deep=True))
    assert [row for row in rows if row["kind"] == "damage" or row.get("is_valid") is False] == []
    return [
        (Path(str(row["file"])).parent.name, row["offset"], row["timestamp_ms"], row.get("value"))
        for row in rows
        if row["kind"] == "record"
    ]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_there_and_back_and_there_again_every_record_and_node_is_as_it_was(tmp_path: Path, is_clean: bool) -> None:
    source = kafkas(tmp_path / "kafka", is_clean=is_clean)
    before = content(source)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    assert content(source) == before, "a source is not changed"
    first = read_embedded(LocalFiles(), tmp_path / "ours")
    assert migrate("to-kafka", tmp_path / "ours", "--to", tmp_path / "old", "--tree", tmp_path / "tree") == 0
    assert migrate("from-kafka", tmp_path / "old", "--to", tmp_path / "again", "--tree", tmp_path / "tree") == 0
    assert read_embedded(LocalFiles(), tmp_path / "again") == first
    assert len(values(source / "flights-0")) == 50
    for name in ("flights-0", "flights-1"):
        expected = values(source / name)
        assert values(tmp_path / "ours" / name) == values(tmp_path / "again" / name) == expected
    assert (tmp_path / "old" / CLEAN_SHUTDOWN).exists()
    assert not (tmp_path / "old" / "headrace-tree.sqlite").exists()
    assert "broker.id=1" in (tmp_path / "old" / "meta.properties").read_text()


def test_access_control_lists_go_along_both_ways(tmp_path: Path, capsys: Said) -> None:
    """Kafka 3.9 could not start with an operation that it does not know."""
    path = "/kafka-acl/TransactionalId/x"
    rule = m.AccessControlEntryRecord(
        id=TOPIC_ID, resource_type=5, resource_name="x", pattern_type=3, principal="User:u", host="*", operation=4,
        permission_type=2,
    )  # fmt: skip
    newer = copy(rule)
    newer.id, newer.operation = b"n" * 16, 15
    source = kafkas(tmp_path / "kafka", *MESSAGES, rule, newer)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    assert "set authorizer.class.name" in capsys.readouterr().out
    first = read_embedded(LocalFiles(), tmp_path / "ours")
    assert len(decode_entries(first[path])) == 2
    assert migrate("to-kafka", tmp_path / "ours", "--to", tmp_path / "old", "--tree", tmp_path / "tree") == 0
    said = capsys.readouterr().out
    assert "not carried over: ACLs with operation TwoPhaseCommit (1 entry)" in said
    assert "server.properties: authorizer.class.name=kafka.security.authorizer.AclAuthorizer" in said
    written = read_tree(LocalFiles(), tmp_path / "tree")
    [left] = decode_entries(written[path])
    assert (left.operation, left.permission) == (Operation.WRITE, Permission.DENY)


def test_damaged_access_control_lists_are_refused(tmp_path: Path, capsys: Said) -> None:
    nodes = tree(*MESSAGES)
    nodes |= {"/kafka-acl": b"", "/kafka-acl/Topic": b"", "/kafka-acl/Topic/t": b"{"}
    write_tree(LocalFiles(), tmp_path / "tree", nodes)
    source = kafkas(tmp_path / "kafka")
    assert migrate("from-kafka", source, "--to", tmp_path / "ours", "--tree", tmp_path / "tree") == 1
    assert "node /kafka-acl/Topic/t" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()


def test_nothing_is_linked(tmp_path: Path) -> None:
    source = kafkas(tmp_path / "kafka")
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    inodes = {path.stat().st_ino for path in source.rglob("*") if path.is_file()}
    assert not inodes & {path.stat().st_ino for path in (tmp_path / "ours").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_broker_serves_what_was_migrated(tmp_path: Path) -> None:
    assert migrate("from-kafka", kafkas(tmp_path / "kafka"), "--to", tmp_path / "ours") == 0
    with pytest.raises(RuntimeError, match="belongs to broker 1, not to 0"):
        HeadraceServer(tmp_path / "ours").start()
    server = HeadraceServer(tmp_path / "ours", arguments=("--broker-id", "1")).start()
    try:
        assert main(["topic", "describe", "flights", "--bootstrap", server.bootstrap, "--json"]) == 0
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_a_reader_of_committed_records_is_spared_the_aborted_ones(tmp_path: Path) -> None:
    source = kafkas(tmp_path / "kafka")
    manager = LogManager([source], broker_id=1, topic_config=lambda _: config(segment_bytes=400))
    manager.load(NOW_MS)
    for number in range(6):
        append(manager.logs[FLIGHTS], b"tx %d" % number, producer_id=9, sequence=number, is_transactional=True)
        append_marker(manager.logs[FLIGHTS], ABORT if number % 2 else COMMIT, 9)
    manager.close(NOW_MS)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    server = HeadraceServer(tmp_path / "ours", arguments=("--broker-id", "1")).start()
    try:
        found = seen(server.bootstrap, AdminClient({"bootstrap.servers": server.bootstrap}), *FLIGHTS)
    finally:
        server.stop()
    assert [record[3] for record in found.records][50:] == [b"tx 0", b"tx 2", b"tx 4"]
    assert found.end == 62


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    assert migrate("from-kafka", source, "--to", tmp_path / "ours", "--dry-run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster_id"], said["broker_id"], said["topics"], said["is_dry_run"]) == (CLUSTER, 1, 1, True)
    assert said["directories"] == [{"from": str(source), "to": str(tmp_path / "ours")}]
    assert [each["partition"] for each in said["partitions"]] == [0, 1]
    assert said["next_steps"] == [f"headrace serve --data {tmp_path / 'ours'} --broker-id 1"]
    assert os.listdir(tmp_path) == ["kafka"]
    assert migrate("to-kafka", ours(tmp_path / "h"), "--to", tmp_path / "k", "--tree", tmp_path / "t", "--dry-run") == 0
    assert sorted(os.listdir(tmp_path)) == ["h", "kafka"]


def test_several_directories_go_into_as_many_or_into_one(tmp_path: Path, capsys: Said) -> None:
    logs(tmp_path / "b", TopicPartition("flights", 2))
    more = [*MESSAGES, partition(2)]
    source = kafkas(tmp_path / "a", *more)
    targets = ("--to", tmp_path / "x", "--to", tmp_path / "y")
    assert migrate("from-kafka", source, tmp_path / "b", *targets) == 0
    assert (tmp_path / "y" / "flights-2").is_dir()
    assert migrate("from-kafka", source, tmp_path / "b", "--to", tmp_path / "z", "--json") == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(each["partition"], each["log_end_offset"]) for each in said["partitions"]] == [(0, 50), (1, 50), (2, 50)]
    assert migrate("from-kafka", source, tmp_path / "b", *targets, "--to", tmp_path / "w") == 1


def test_what_is_not_carried_over_is_said(tmp_path: Path, capsys: Said) -> None:
    extra = [
        m.AccessControlEntryRecord(
            id=TOPIC_ID,
            resource_type=3,
            resource_name="a/b",
            pattern_type=3,
            principal="User:u",
            host="*",
            operation=3,
            permission_type=3,
        ),
        m.UserScramCredentialRecord(name="u", mechanism=1),
        setting("log.cleaner.threads", "2", kind=4, owner=""),
        setting("log.retention.ms", "5", kind=4, owner=""),
        setting("log.retention.ms", "-1", kind=4, owner="1"),
        setting("unheard.of", "1", kind=4, owner="1"),
        setting("errors.deadletterqueue.x", "1"),
    ]
    source = kafkas(tmp_path / "kafka", *MESSAGES, *extra)
    (source / "flights-0" / "notes.txt").write_text("mine")
    (source / "gone-0.5f00000000000000000000000000000a-delete").mkdir()
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    said = capsys.readouterr().out
    assert "not carried over: ACLs whose name has a / (1 entry)" in said
    assert "not carried over: SCRAM credentials (1 credential)" in said
    assert "not carried over: effect of brokers' dynamic settings that are not dynamic here (unheard.of:" in said
    assert f"next: headrace serve --data {tmp_path / 'ours'} --broker-id 1\n" in said
    assert "log.retention.ms" not in said
    assert "not carried over: effect of topics' settings that headrace does not have (errors.deadletterqueue.x" in said
    assert "files that are no part of a log were not taken" in said
    assert "not taken: gone-0.5f00000000000000000000000000000a-delete/" in said
    assert znodes.config("brokers", "<default>") in read_embedded(LocalFiles(), tmp_path / "ours")


def leave_transactional_id(source: Path, state: int) -> None:
    """Leave a transactional id behind, in this state."""
    key = b"\0\0" + m.TransactionLogKey(transactional_id="mine").encode(0)
    value = m.TransactionLogValue(
        producer_id=5, producer_epoch=0, transaction_timeout_ms=1, transaction_status=state, transaction_partitions=None
    )
    internal(source, "__transaction_state", (key, b"\0\0" + value.encode(0)))


def open_transaction(source: Path, *, is_clean: bool) -> None:
    manager = LogManager([source], broker_id=1, topic_config=lambda _: config())
    manager.load(NOW_MS)
    append(manager.logs[FLIGHTS], b"tx", producer_id=88, sequence=0, is_transactional=True)
    manager.close(NOW_MS) if is_clean else manager.release()


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no metadata": (
        lambda source: (source / "__cluster_metadata-0").rename(source.parent / "elsewhere"),
        "without metadata every partition is a stray, which Apache Kafka renames and deletes",
    ),
    "stray": (lambda source: (source / "other-0").mkdir(), "other-0: in the directories, but not in the metadata"),
    "missing": (
        lambda source: remember(source, *MESSAGES, partition(2)),
        "flights-2: in the metadata, but not in the directories",
    ),
    "another topic": (
        lambda source: remember(
            source, topic(topic_id=OTHER_ID), *(partition(number, topic_id=OTHER_ID) for number in (0, 1))
        ),
        "of another topic of the same name",
    ),
    "older metadata": (
        lambda source: remember(source, topic(), partition(leader_epoch=-1), partition(1)),
        "flights-0: the metadata is older than the log",
    ),
    "replicas": (
        lambda source: remember(source, topic(), partition(), partition(1, replicas=[1, 2])),
        "flights-1: replicas are not on broker 1 alone. Bring every partition to this broker, and to no other, with",
    ),
    "reassignment": (
        lambda source: remember(source, topic(), partition(), partition(1, adding_replicas=[1])),
        "flights-1: being reassigned",
    ),
    "remote": (
        lambda source: remember(source, *MESSAGES, setting("remote.storage.enable", "true")),
        "tiered storage keeps a part of the records elsewhere",
    ),
    "migration": (
        lambda source: remember(source, *MESSAGES, m.ZkMigrationStateRecord(zk_migration_state=1)),
        "is migrating from ZooKeeper to KRaft",
    ),
    "open transaction": (
        lambda source: open_transaction(source, is_clean=True),
        "transactions are in flight: flights-0 (producer 88 since offset 50)",
    ),
    "open transaction, killed": (
        lambda source: open_transaction(source, is_clean=False),
        "transactions are in flight: flights-0 (producer 88 since offset 50)",
    ),
    "undecided": (lambda source: leave_transactional_id(source, 1), "transactional ids are undecided: mine (Ongoing)"),
    "no identity": (lambda source: (source / "meta.properties").unlink(), "has no meta.properties"),
    "bad identity": (lambda source: (source / "meta.properties").write_text("version=1\n"), "node.id is missing"),
    "ours": (lambda source: (source / "headrace-tree.sqlite").touch(), "is already a data directory of headrace"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_directory_that_would_lose_something_is_refused(tmp_path: Path, capsys: Said, case: str) -> None:
    spoil, reason = REFUSED[case]
    source = kafkas(tmp_path / "kafka")
    spoil(source)
    before = content(source)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()
    assert content(source) == before


def test_transactions_that_have_ended_are_in_nobodys_way(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    leave_transactional_id(source, 4)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    assert "transactional ids" not in capsys.readouterr().out


def internal(source: Path, name: str, *records: tuple[bytes, bytes | None]) -> None:
    """Give a directory of Kafka an internal topic with these records."""
    manager = LogManager([source], broker_id=1, topic_config=lambda _: config())
    manager.load(NOW_MS)
    log = manager.create(TopicPartition(name, 0), OTHER_ID, NOW_MS)
    append_batch(log, encode_batch([Record(0, NOW_MS, key, value) for key, value in records]))
    manager.close(NOW_MS)
    remember(source, *MESSAGES, topic(name, OTHER_ID), partition(topic_id=OTHER_ID))


def test_groups_that_only_newer_coordinators_know_are_counted(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    keys = [
        *(b"\0\3" + m.ConsumerGroupMetadataKey(group_id=name).encode(3) for name in ("a", "b")),
        b"\0\x0b" + m.ShareGroupMetadataKey(group_id="s").encode(11),
        b"\0\2" + m.GroupMetadataKey(group="classic").encode(2),
    ]
    gone = (b"\0\3" + m.ConsumerGroupMetadataKey(group_id="b").encode(3), None)
    internal(source, "__consumer_offsets", *((key, b"\0\0") for key in keys), gone)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 0
    said = capsys.readouterr().out
    assert "membership of groups of the consumer protocol (1; their committed offsets are kept)" in said
    assert "membership of groups of the share protocol (1; " in said


def test_a_transactional_id_that_cannot_be_read_is_refused(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    key = b"\0\0" + m.TransactionLogKey(transactional_id="mine").encode(0)
    internal(source, "__transaction_state", (key, b"\0\1\5"))
    assert migrate("from-kafka", source, "--to", tmp_path / "ours") == 1
    assert "a transactional id's state cannot be read" in capsys.readouterr().err


def test_a_directory_that_a_broker_holds_is_refused_both_ways(tmp_path: Path, capsys: Said) -> None:
    kafka, headrace = kafkas(tmp_path / "kafka"), ours(tmp_path / "ours")
    holders = [LogManager([each], broker_id=1, topic_config=lambda _: config()) for each in (kafka, headrace)]
    assert migrate("from-kafka", kafka, "--to", tmp_path / "x") == 1
    assert migrate("to-kafka", headrace, "--to", tmp_path / "x", "--tree", tmp_path / "t") == 1
    assert capsys.readouterr().err.count("is in use by a running broker: stop the broker first") == 2
    for each in holders:
        each.release()
    assert migrate("to-kafka", headrace, "--to", tmp_path / "x", "--tree", tmp_path / "t") == 0


def test_a_destination_must_be_empty_and_apart(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    assert migrate("from-kafka", source, "--to", tmp_path / "full") == 1
    assert "full is not empty" in capsys.readouterr().err
    assert migrate("from-kafka", source, "--to", source / "below") == 1
    assert "contains the other" in capsys.readouterr().err
    assert migrate("from-kafka", source, source, "--to", tmp_path / "x") == 1
    assert "a directory is given twice" in capsys.readouterr().err
    assert migrate("from-kafka", tmp_path / "nowhere", "--to", tmp_path / "x") == 1
    assert "is not a directory" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert migrate("from-kafka", source, "--to", tmp_path / "empty") == 0


def test_the_directories_of_two_brokers_are_refused(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    logs(tmp_path / "other", TopicPartition("flights", 0))
    assert migrate("from-kafka", source, tmp_path / "other", "--to", tmp_path / "x") == 1
    assert "flights-0 is in" in capsys.readouterr().err
    text = (tmp_path / "other" / "meta.properties").read_text().replace("broker.id=1", "broker.id=2")
    (tmp_path / "other" / "meta.properties").write_text(text)
    assert migrate("from-kafka", source, tmp_path / "other", "--to", tmp_path / "x") == 1
    assert "name the directories of one broker" in capsys.readouterr().err


def test_a_tree_of_another_cluster_or_one_that_is_busy_is_refused(tmp_path: Path, capsys: Said) -> None:
    source = kafkas(tmp_path / "kafka")
    file = tmp_path / "tree"
    for nodes, reason in (
        ({**tree(), znodes.CLUSTER_ID: znodes.encode_cluster_id("other")}, "every partition would be a stray"),
        ({"/brokers": b""}, "is not that of a Kafka cluster: check the chroot"),
        ({**tree(), znodes.delete_topic("flights"): b""}, "topics are being deleted (flights)"),
        ({**tree(), "/admin/reassign_partitions": b"{}"}, "a reassignment of partitions is not finished"),
        ({**tree(), "/migration": b"{}"}, "is migrating from ZooKeeper to KRaft"),
        ({**tree(), znodes.topic("flights"): b"{"}, "node /brokers/topics/flights: the data is not JSON"),
    ):
        write_tree(LocalFiles(), file, nodes)
        assert migrate("from-kafka", source, "--to", tmp_path / "x", "--tree", file) == 1
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "headrace tree", "version": 2, "nodes": []}',
             '{"format": "headrace tree", "version": 1}', '{"format": "headrace tree", "version": 1, "nodes": [1]}',
             '{"format": "headrace tree", "version": 1, "nodes": [{"path": "x", "data": ""}]}',
             '{"format": "headrace tree", "version": 1, "nodes": [{"path": "/x", "data_base64": "?"}]}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_tree_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tree").write_text(text)
    with pytest.raises(MigrationRefused, match="is not a readable tree file"):
        read_tree(LocalFiles(), tmp_path / "tree")


def test_a_tree_file_keeps_every_value(tmp_path: Path) -> None:
    nodes = {"/a": b"", "/a/b": "größe".encode(), "/c": b"\xff\0"}
    write_tree(LocalFiles(), tmp_path / "tree", nodes)
    assert read_tree(LocalFiles(), tmp_path / "tree") == nodes


def test_to_kafka_wants_a_place_for_the_tree_and_the_tree_of_ours(tmp_path: Path, capsys: Said) -> None:
    source = ours(tmp_path / "ours")
    assert migrate("to-kafka", source, "--to", tmp_path / "x") == 2
    assert "treats every partition as stray and deletes it" in capsys.readouterr().err
    (tmp_path / "there").touch()
    assert migrate("to-kafka", source, "--to", tmp_path / "x", "--tree", tmp_path / "there") == 2
    (source / "headrace-tree.sqlite").unlink()
    assert migrate("to-kafka", source, "--to", tmp_path / "x", "--tree", tmp_path / "t") == 1
    assert "has no headrace metadata" in capsys.readouterr().err


def test_settings_of_ours_alone_are_left_out_for_kafka(tmp_path: Path, capsys: Said) -> None:
    source = ours(tmp_path / "ours", *MESSAGES, setting("headrace.x", "1"), setting("retention.ms", "9"))
    assert migrate("to-kafka", source, "--to", tmp_path / "x", "--tree", tmp_path / "t") == 0
    assert "settings of flights that Apache Kafka does not have (headrace.x)" in capsys.readouterr().out
    kept = znodes.decode_config(read_tree(LocalFiles(), tmp_path / "t")[znodes.config("topics", "flights")])
    assert kept == {"segment.bytes": "2000", "retention.ms": "9"}


def test_topics_from_before_there_were_ids_get_one(tmp_path: Path) -> None:
    source = kafkas(tmp_path / "kafka")
    nodes = tree()
    value = json.loads(nodes[znodes.topic("flights")])
    del value["topic_id"]
    nodes[znodes.topic("flights")] = json.dumps(value | {"version": 1}).encode()
    for directory in source.glob("flights-*"):
        (directory / "partition.metadata").unlink()
    write_tree(LocalFiles(), tmp_path / "tree", nodes)
    assert migrate("from-kafka", source, "--to", tmp_path / "ours", "--tree", tmp_path / "tree") == 0
    found = read_embedded(LocalFiles(), tmp_path / "ours")
    assert znodes.decode_topic("flights", found[znodes.topic("flights")]).id != bytes(16)


class Faulty(LocalFiles):
    """A disk that is full, or becomes so."""

    def __init__(self, *, usable_bytes: int | None = None, opens: int | None = None) -> None:
        self._usable_bytes, self._opens = usable_bytes, opens

    def space(self, directory: PathText) -> DiskSpace:
        found = super().space(directory)
        return found if self._usable_bytes is None else DiskSpace(found.total_bytes, self._usable_bytes)

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        if self._opens is not None and create:
            self._opens -= 1
            if self._opens < 0:
                raise OSError(28, "No space left on device", str(path))
        return super().open(path, create=create)


def test_a_disk_without_room_is_seen_before_anything_is_copied(tmp_path: Path) -> None:
    source = kafkas(tmp_path / "kafka")
    migration = Migration([source], [tmp_path / "ours"], NOW_MS, files=Faulty(usable_bytes=5000))
    with pytest.raises(MigrationRefused, match="has 5000 bytes left, but"):
        from_kafka(migration)


@pytest.mark.parametrize("existed", [True, False])
def test_a_copy_that_fails_half_way_leaves_nothing_behind(tmp_path: Path, existed: bool) -> None:
    source = kafkas(tmp_path / "kafka")
    if existed:
        (tmp_path / "ours").mkdir()
    with pytest.raises(OSError, match="No space left"):
        from_kafka(Migration([source], [tmp_path / "ours"], NOW_MS, files=Faulty(opens=5)))
    assert list((tmp_path / "ours").iterdir()) == [] if existed else not (tmp_path / "ours").exists()


def test_holes_stay_holes_and_times_stay(tmp_path: Path) -> None:
    source = kafkas(tmp_path / "kafka")
    index = source / "flights-0" / "00000000000000000000.index"
    os.truncate(index, 10 << 20)
    segment = source / "flights-0" / "00000000000000000000.log"
    os.utime(segment, (1_500_000_000, 1_500_000_000))
    migration = Migration([source], [tmp_path / "ours"], NOW_MS)
    outcome = from_kafka(migration)
    assert outcome.size_bytes < 1 << 20
    assert int((tmp_path / "ours" / "flights-0" / segment.name).stat().st_mtime) == 1_500_000_000


def test_kafkas_older_and_newer_identities_are_both_read(tmp_path: Path) -> None:
    for version, line in ((0, "broker.id=1"), (1, "node.id=1")):
        source = kafkas(tmp_path / f"kafka-{version}")
        (source / "meta.properties").write_text(f"#\nversion={version}\n{line}\ncluster.id={CLUSTER}\n")
        assert migrate("from-kafka", source, "--to", tmp_path / f"ours-{version}") == 0
        assert MetaProperties(1, CLUSTER).cluster_id in (tmp_path / f"ours-{version}" / "meta.properties").read_text()


def test_a_zookeeper_that_is_not_there_or_cannot_be_spoken_to_is_said(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    source = kafkas(tmp_path / "kafka")
    monkeypatch.setattr(zookeeper, "CONNECT_SECONDS", 0.5)
    arguments = ("from-kafka", source, "--to", tmp_path / "ours", "--zookeeper", f"127.0.0.1:{port}/kafka")
    assert migrate(*arguments) == 1
    said = capsys.readouterr().err
    assert f"ZooKeeper 127.0.0.1:{port}/kafka: no server answered within 0.5 s; " in said and said.count("\n") == 1
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.delitem(sys.modules, "headrace.metastore.zookeeper.secured_client")
    assert migrate(*arguments) == 1
    assert "pip install 'headrace[zookeeper]'" in capsys.readouterr().err
    assert migrate(*arguments, "--tree", tmp_path / "t") == 2


def test_instances_are_not_carried_over_to_apache_kafka(tmp_path: Path, capsys: Said) -> None:
    directory = ours(tmp_path / "h")

    async def create() -> None:
        store = await EmbeddedStore.open(directory)
        await StoredInstances(store).create(Instance("acme", "I"))
        await store.close()

    asyncio.run(create())
    assert migrate("to-kafka", directory, "--to", tmp_path / "k", "--tree", tmp_path / "t") == 0
    assert "not carried over: instances (1 definition)" in capsys.readouterr().out
