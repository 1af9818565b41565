"""Reading a metadata log, whole and damaged: what is read is what was written, or there is a reason why not."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.migrate.metadata_image import MetadataImage
from headrace.migrate.metadata_log import MetadataLog
from headrace.migrate.refusal import MigrationRefused
from headrace.protocol import messages as m
from tests.examples import examples
from tests.migrate.quorum import batch, control, framed, of_values, partition, read, setting, snapshot, topic, write

NAME = "00000000000000000004-0000000003.checkpoint"


def kinds(log: MetadataLog) -> list[int]:
    return [each.kind for each in log.records]


def test_records_of_all_segments_are_read_in_order(tmp_path: Path) -> None:
    files = {"0": batch(0, topic()) + batch(1, partition(), epoch=2), "2": batch(2, setting("a", "b"), epoch=5)}
    log = read(write(tmp_path, files))
    assert kinds(log) == [2, 3, 4]
    assert (log.end_offset, log.epoch, log.ignored_bytes) == (3, 5, 0)


def test_what_a_snapshot_holds_is_not_read_from_the_log_again(tmp_path: Path) -> None:
    log = batch(2, topic("old"), topic("older")) + batch(4, setting("a", "b"), epoch=4)
    found = read(write(tmp_path, {NAME: snapshot(topic(), partition()), "2": log}))
    assert kinds(found) == [2, 3, 4]
    assert (found.end_offset, found.epoch) == (5, 4)


def test_the_newest_snapshot_counts_and_unfinished_ones_do_not(tmp_path: Path) -> None:
    files = {
        "00000000000000000002-0000000001.checkpoint": snapshot(topic("old")),
        NAME: snapshot(topic("new")),
        "00000000000000000009-0000000003.checkpoint.part": b"half",
        "00000000000000000002-0000000001.checkpoint.deleted": b"gone",
    }
    found = read(write(tmp_path, files))
    assert MetadataImage().apply(found.records).topics == {bytes(range(16)): "new"}
    assert (found.end_offset, found.epoch) == (4, 3)


def test_transactions_count_when_they_end_and_not_when_they_are_aborted_or_open(tmp_path: Path) -> None:
    begin, end, abort = m.BeginTransactionRecord(), m.EndTransactionRecord(), m.AbortTransactionRecord()
    data = batch(0, begin, topic("kept")) + batch(2, partition(), end)
    data += batch(4, begin, topic("aborted"), abort) + batch(7, begin, topic("open"))
    assert kinds(read(write(tmp_path, {"0": data}))) == [2, 3]


def test_controllers_are_counted_where_it_is_said(tmp_path: Path) -> None:
    voters = m.VotersRecord(voters=[m.VotersRecord.Voter(voter_id=each) for each in (1, 2, 3)])
    assert read(write(tmp_path / "a", {"0": control(0, 6, voters) + batch(1, topic())})).voters == 3
    state = {"0": batch(0, topic()), "quorum-state": b'{"currentVoters":[{"voterId":1},{"voterId":2}]}'}
    assert read(write(tmp_path / "b", state)).voters == 2
    assert read(write(tmp_path / "c", {"0": batch(0, topic()), "quorum-state": b"?"})).voters is None


def test_a_torn_end_is_left_out_and_said(tmp_path: Path) -> None:
    whole = batch(0, topic())
    for size in (1, 60, 61, len(whole) - 1):
        found = read(write(tmp_path, {"0": whole + batch(1, partition())[:size]}))
        assert (kinds(found), found.ignored_bytes) == ([2], size)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "neither a snapshot nor a segment"),
        ({"5": batch(5, topic())}, "offsets 0 to 4 are missing"),
        ({NAME: snapshot(topic()), "9": batch(9, topic())}, "offsets 4 to 8 are missing"),
        ({NAME: snapshot(topic())[:-1]}, "is incomplete"),
        ({NAME: snapshot(topic())[61:]}, "is incomplete"),
        ({NAME: b""}, "is incomplete"),
        ({"0": batch(0, topic())[:-1], "1": batch(1, topic())}, "is damaged at byte 0: it should reach offset 1"),
        ({"0": batch(0, topic())[:-1] + b"!" + batch(1, topic())}, "damaged at byte 0, before valid batches"),
        ({"0": batch(0, topic()) + batch(5, topic())}, "before valid batches"),
        ({"0": of_values(0, [b""])}, "offset 0: the records cannot be read"),
        ({"0": of_values(0, [b"\x02\x02\0"])}, "frame version 2 is not 1"),
        ({"0": of_values(0, [b"\x01\xff\xff\xff"])}, "the records cannot be read"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(MigrationRefused, match=reason):
        read(write(tmp_path, files))


WHOLE = {NAME: snapshot(topic(), partition()), "2": batch(2, topic("x"), topic("y")) + batch(4, setting("a", "b"))}


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_any_damage_gives_a_reason_or_what_was_written_before_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: int, byte: int, cut: bool
) -> None:
    directory = tmp_path_factory.mktemp("damaged")
    data = WHOLE[name]
    at %= len(data)
    damaged = data[:at] if cut else data[:at] + bytes([byte]) + data[at + 1 :]
    try:
        log = read(write(directory, {**WHOLE, name: damaged}))
        image = MetadataImage().apply(log.records)
    except MigrationRefused:
        return
    assert image.topics == {bytes(range(16)): "flights"}
    assert set(image.settings) <= {(2, "flights")}


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60), st.integers(0, 30), st.integers(0, 3))
def test_any_record_is_understood_or_refused(body: bytes, kind: int, version: int) -> None:
    from headrace.migrate.metadata_log import MetadataRecord

    image = MetadataImage()
    image.topics[bytes(16)] = "t"
    try:
        image.apply([MetadataRecord(kind, version, memoryview(body))])
    except MigrationRefused as refused:
        assert f"of kind {kind}, version {version}" in str(refused)


def test_a_record_that_is_not_known_is_refused_by_its_number(tmp_path: Path) -> None:
    log = read(write(tmp_path, {"0": of_values(0, [framed(topic(), kind=99)])}))
    with pytest.raises(MigrationRefused, match="kind 99, version 0 .* newer than 4.3"):
        MetadataImage().apply(log.records)
