import pytest

from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, crc_is_valid, decode_records, encode_batch, read_header
from headrace.records.format2.recompression import recompress
from tests.records.samples import CODECS, golden_batch, golden_records


@pytest.mark.parametrize("before", CODECS)
@pytest.mark.parametrize("after", CODECS)
def test_another_codec_leaves_the_records_as_they_were(before: Codec, after: Codec) -> None:
    batch = golden_batch(before.name.lower())
    changed, header = recompress(batch, read_header(batch), after)
    assert header == read_header(changed)
    assert header.codec is after
    assert header.size_bytes == len(changed)
    assert crc_is_valid(changed, 0, header)
    assert not changed.readonly
    assert decode_records(changed) == golden_records()
    assert header._replace(batch_length=0, crc=0, attributes=0) == read_header(batch)._replace(
        batch_length=0, crc=0, attributes=0
    )


def test_a_bomb_is_not_recompressed() -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(1 << 20))], codec=Codec.ZSTD)
    with pytest.raises(CorruptMessage):
        recompress(bomb, read_header(bomb), Codec.GZIP, max_bytes=1 << 20)
