import pytest

from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.records.format2.control import ABORT, COMMIT, Marker, encode_marker, read_marker
from tests.records.samples import golden_batch


@pytest.mark.parametrize(("name", "kind"), [("abort", ABORT), ("commit", COMMIT)])
def test_markers_are_the_very_bytes_of_apache_kafkas(name: str, kind: int) -> None:
    golden = golden_batch(name)
    marker = read_marker(golden)
    assert marker == Marker(kind, 9)
    assert (marker.is_abort, marker.is_commit) == (kind == ABORT, kind == COMMIT)
    ours = encode_marker(
        marker, producer_id=42, producer_epoch=3, timestamp_ms=1_700_000_000_000, base_offset=77, leader_epoch=4
    )
    assert ours == golden
    assert read_header(ours).is_control and read_header(ours).is_transactional


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"", b""), (b"\x00\x00\x00", b"\x00" * 6), (b"\x00" * 4, None), (b"\x00" * 4, b"\x00" * 5)],
)
def test_a_marker_cut_short_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        read_marker(encode_batch([Record(0, 0, key, value)], is_control=True))


def test_records_are_no_marker() -> None:
    with pytest.raises(CorruptMessage, match="not a control batch"):
        read_marker(encode_batch([Record(0, 0, b"\x00" * 4, b"\x00" * 6)], codec=Codec.GZIP))


def test_other_kinds_and_later_versions_are_recognised() -> None:
    leader_change = encode_batch([Record(0, 0, b"\x00\x00\x00\x02", b"anything")], is_control=True)
    assert read_marker(leader_change) == Marker(2, -1)
    longer = encode_batch([Record(0, 0, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x05more")], is_control=True)
    assert read_marker(longer) == Marker(COMMIT, 5)
