"""Our conversions beside Apache Kafka's own: downConvert and LogValidator of 3.9, the last line that has them."""

import random
import subprocess
from pathlib import Path

import pytest

from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import encode_batch
from headrace.records.format2.header import BatchHeader
from headrace.records.legacy.conversion import convert_batches
from tests.peers import kafka
from tests.records.conversion_samples import OLD_CODECS, Piece, random_pieces
from tests.records.decoding import decode_any
from tests.records.test_conversion import log_of, rows

VERSION = "3.9.2"
SOURCE = Path(__file__).parent / "java" / "Convert.java"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools())),
]


def java(requests: list[tuple[str, int, int, bytes]]) -> list[bytes | str]:
    """What Kafka makes of each (direction, magic, first offset, records); a text is the exception it ends with."""
    lines = "".join(f"{way} {magic} {offset} {data.hex()}\n" for way, magic, offset, data in requests)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars(VERSION)}/*", str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    answers = done.stdout.split("\n")[: len(requests)]
    return [line[2:] if line.startswith("! ") else bytes.fromhex(line) for line in answers]


def without_codec(data: bytes | bytearray) -> list[BatchHeader]:
    """The headers, their CRCs too, less what depends on how well a codec packs."""
    return [
        header if header.codec is Codec.NONE else header._replace(batch_length=0, crc=0)
        for _, header in iter_any_headers(data)
    ]


def test_down_is_what_kafka_makes_of_it() -> None:
    rng = random.Random(1)
    logs = [random_pieces(rng, rng.randrange(1, 10)) for _ in range(150)]
    requests = []
    for parts in logs:
        first = parts[0]  # a read begins with the batch that holds its offset, of plain messages with the very one
        is_message = first.magic < 2 and first.codec is Codec.NONE
        first_offset = first.records[0].offset if is_message else rng.choice(first.records).offset
        requests.append(("down", rng.choice((0, 1)), first_offset, log_of(parts)))
    for (_, magic, first_offset, source), theirs in zip(requests, java(requests), strict=True):
        assert isinstance(theirs, bytes), theirs
        ours = convert_batches(source, magic, from_offset=first_offset, upwards=False)
        assert decode_any(ours.data) == decode_any(theirs)
        assert without_codec(ours.data) == without_codec(theirs)


def test_zstd_down_is_refused_by_both() -> None:
    source = bytes(encode_batch(rows(3), codec=Codec.ZSTD))
    assert str(java([("down", 1, 0, source)])[0]).startswith("UnsupportedCompressionTypeException")


def test_up_is_what_a_broker_of_kafka_appends() -> None:
    requests, expected = [], []
    for magic in (0, 1):
        for codec in OLD_CODECS:
            for count in (1, 2, 30):
                piece = Piece(magic, codec, tuple(rows(count)))
                requests.append(("up", 2, 0, piece.data))
                expected.append(convert_batches(piece.data, 2).data)
    for request, ours, theirs in zip(requests, expected, java(requests), strict=True):
        assert isinstance(theirs, bytes), theirs
        assert decode_any(ours) == decode_any(theirs), request
        assert without_codec(ours) == without_codec(theirs), request
        if request[3][17] & 7 == 0:
            assert ours == theirs
