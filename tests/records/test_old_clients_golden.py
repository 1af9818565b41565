"""What old clients sent, and what Apache Kafka stored of it; `golden.capture_old_clients` made the files."""

import base64
import json
from pathlib import Path

import pytest

from headrace.records.any_format import any_crc_is_valid, iter_any_headers, scan_any
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.batch import Record
from headrace.records.legacy.produced_sets import check_produced_set, place_set
from tests.conformance.old.crowd import kept
from tests.conformance.old.old_clients import FIRST_CODECS, OLD_CLIENTS
from tests.records.decoding import decode_any
from tests.records.golden.capture_old_clients import RECORDS

FILES = Path(__file__).parent / "golden" / "old-clients"
SENT = json.loads((FILES / "sent.json").read_text())
STORED = json.loads((FILES / "stored.json").read_text())


def test_every_client_and_codec_that_the_conformance_grid_runs_is_there() -> None:
    codecs = [f"{each.name}/{codec}" for each in OLD_CLIENTS for codec in FIRST_CODECS if codec not in each.gaps]
    assert list(SENT) == codecs
    assert list(STORED) == [f"format-{magic}-{codec}" for magic in range(3) for codec in FIRST_CODECS]


@pytest.mark.parametrize("name", SENT)
def test_what_a_client_sent_is_what_it_was_told_to_send(name: str) -> None:
    client_name, _, codec = name.rpartition("/")
    magic = next(each.knows.magic for each in OLD_CLIENTS if each.name == client_name)
    records = []
    for each in SENT[name]["sets"]:
        data = base64.b64decode(each)
        headers = list(iter_any_headers(data))
        assert sum(header.size_bytes for _, header in headers) == len(data)
        assert {(header.magic, header.codec.name.lower()) for _, header in headers} == {(magic, codec)}
        records += decode_any(_placed(data) if magic < 2 else data)
    expected = [kept(each, magic) for each in RECORDS]
    assert [(each.key, each.value) for each in records] == [(each.key, each.value) for each in expected]
    assert [each.timestamp_ms for each in records] == [each.timestamp_ms for each in expected]


@pytest.mark.parametrize("name", STORED)
def test_a_segment_of_apache_kafka_is_read_as_its_own_client_reads_it(name: str) -> None:
    data = (FILES / f"{name}.log").read_bytes()
    _, magic, codec = name.split("-")
    headers = list(iter_any_headers(data))
    assert sum(header.size_bytes for _, header in headers) == len(data)
    assert all(any_crc_is_valid(data, position, header) for position, header in headers)
    assert {(header.magic, header.codec.name.lower()) for _, header in headers} == {(int(magic), codec)}
    expected = [Record(offset, time_ms, _bytes(key), _bytes(value)) for offset, time_ms, key, value in STORED[name]]
    assert [each._replace(headers=()) for each in decode_any(data)] == expected
    columns = scan_any(data, headers=True)
    assert list(columns.offsets) == [each.offset for each in expected]
    assert list(columns.timestamps_ms) == [each.timestamp_ms for each in expected]
    assert columns.keys is not None
    assert columns.values is not None
    read = [(columns.keys.value(row), columns.values.value(row)) for row in range(columns.count)]
    assert read == [(each.key, each.value) for each in expected]


def _placed(data: bytes) -> Bytes:
    """A set as the broker stores it: some clients give all inner messages of a wrapper offset 0."""
    buf = memoryview(bytearray(data))
    checked = check_produced_set(buf, max_message_bytes=1 << 20)
    placed = place_set(buf, checked, base_offset=1000)
    assert placed.last_offset == 1000 + checked.record_count - 1
    assert [each.offset for each in decode_any(placed.data)] == list(range(1000, placed.last_offset + 1))
    return placed.data


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
