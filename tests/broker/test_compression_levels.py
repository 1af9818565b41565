"""The broker compresses with the topic's level, and stores what the producer compressed as it is."""

import asyncio
import random
import threading
from pathlib import Path

import pytest

from headrace.broker.app import running
from headrace.broker.produce.formats import CheckedMessages, RebuiltBatches, checked_records
from headrace.config import TopicConfig, parse_broker
from headrace.config.properties import topic_config
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import InvalidConfig
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2 import recompression
from headrace.records.format2.batch import Record, decode_records, encode_batch, read_header
from headrace.records.legacy.message_set import encode_message_set
from tests.asker import Asker

NOW_MS = 1_700_000_000_000
WORDS = random.Random(13).choices([b"level ", b"codec ", b"broker ", b"record ", b"topic ", b"batch "], k=20_000)
VALUE = b"".join(WORDS)
LEVELS = {"gzip": ("1", "9"), "lz4": ("9", "12"), "zstd": ("-5", "19")}
"""A level that compresses little, and one that compresses much: 9 is lz4's default, which is fast."""


def config(codec: str, level: str | None = None, **more: str) -> TopicConfig:
    """The settings of a topic with this codec; None is the default level."""
    own = {"compression.type": codec, **{name.replace("_", "."): value for name, value in more.items()}}
    return topic_config(TopicConfig(), own if level is None else {**own, f"compression.{codec}.level": level})


def stored(records: bytes, config: TopicConfig, version: int = 9) -> memoryview:
    """What is appended for what a producer sent."""
    checked = checked_records(memoryview(bytearray(records)), config, version, NOW_MS, True)
    if isinstance(checked, RebuiltBatches):
        (batch,) = checked.batches
        return batch.records
    if isinstance(checked, CheckedMessages):
        return memoryview(checked.at(0, config, NOW_MS).data)
    return checked.records


@pytest.mark.parametrize("codec", LEVELS)
def test_a_batch_is_stored_at_the_topics_level(codec: str) -> None:
    sent = bytes(encode_batch([Record(0, NOW_MS, None, VALUE, ())]))
    fast, small = (stored(sent, config(codec, level)) for level in LEVELS[codec])
    assert len(small) < len(fast) < len(sent)
    for each in (fast, small):
        header = read_header(each)
        assert header.codec == Codec[codec.upper()]
        assert [bytes(record.value or b"") for record in decode_records(each, header)] == [VALUE]


@pytest.mark.parametrize("codec", LEVELS)
@pytest.mark.parametrize("stored_format", ["0.10.2", "3.0"])
def test_messages_of_old_clients_are_stored_at_the_topics_level(codec: str, stored_format: str) -> None:
    if codec == "zstd" and stored_format == "0.10.2":
        pytest.skip("messages before format 2 have no zstd")
    sent = bytes(encode_message_set([Record(0, NOW_MS, None, VALUE, ())], magic=1))
    fast, small = (
        stored(sent, config(codec, level, message_format_version=stored_format), version=2) for level in LEVELS[codec]
    )
    assert len(small) < len(fast) < len(sent)


def test_the_default_levels_are_those_of_the_codecs() -> None:
    sent = bytes(encode_batch([Record(0, NOW_MS, None, VALUE, ())]))
    for codec, level in (("gzip", "-1"), ("lz4", "9"), ("zstd", "3")):
        assert stored(sent, config(codec, level)) == stored(sent, config(codec))


def test_what_the_producer_compressed_with_the_topics_codec_stays() -> None:
    sent = encode_batch([Record(0, NOW_MS, None, VALUE, ())], codec=Codec.ZSTD, level=1)
    assert bytes(stored(bytes(sent), config("zstd", "19"))) == bytes(sent)


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", "0"), ("gzip", "10"), ("gzip", "-2"), ("lz4", "0"), ("lz4", "18"), ("zstd", "23"), ("zstd", "-131073")],
)
def test_a_level_that_the_codec_does_not_have_is_refused(codec: str, level: str) -> None:
    with pytest.raises(
        InvalidConfig, match=rf"compression\.{codec}\.level={level}|compression\.{codec}\.level='{level}'"
    ):
        config(codec, level)


@pytest.mark.parametrize(
    ("sent", "size", "is_on_thread"),
    [
        (Codec.NONE, 1_000, False),
        (Codec.NONE, 100_000, True),
        (Codec.LZ4, 1_000, False),
        (Codec.LZ4, 100_000, True),
        (Codec.ZSTD, 100_000, None),
    ],
)
async def test_large_batches_are_compressed_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: Codec, size: int, is_on_thread: bool | None
) -> None:
    threads = []

    def compress_and_tell(codec: Codec, data: bytes | memoryview, level: int | None = None) -> bytes:
        threads.append((codec, level, threading.current_thread() is not threading.main_thread()))
        return compress(codec, data, level)

    monkeypatch.setattr(recompression, "compress", compress_and_tell)
    records = bytes(encode_batch([Record(0, NOW_MS, None, VALUE[:size], ())], codec=sent))
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    request = m.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])]
    )
    settings = {"listeners": "127.0.0.1:0", "log.dirs": str(tmp_path / "data"), "compression.zstd.level": "7"}
    async with running(parse_broker(settings)) as (services, listeners):
        await services.controller.create_topics([RequestedTopic("t", configs={"compression.type": "zstd"})])
        with Asker(f"127.0.0.1:{listeners[0].port}") as asker:
            answer = await asyncio.to_thread(asker.ask, request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert threads == ([] if is_on_thread is None else [(Codec.ZSTD, 7, is_on_thread)])
