"""Messages of Kafka 0.7: bytes written out by hand from the format's description, and what is refused."""

import gzip
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptMessage, InvalidRecord, KafkaError, UnsupportedCompressionType
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import (
    NESTING_MAX,
    Message07,
    RoomOf07,
    column_of_set,
    encode_entry,
    encode_set,
    has_wrapper,
    iter_entries,
    iter_messages,
    payloads_of,
    read_entry,
)

CRC_OF_VALUE = 0x1D775834
VALUE_V0 = bytes.fromhex("0000000a001d775834") + b"value"
VALUE_V1 = bytes.fromhex("0000000b01001d775834") + b"value"


def payloads(data: bytes, base_offset: int = 0) -> list[bytes]:
    return [message.payload for message in iter_messages(data, base_offset)]


def test_a_message_of_magic_0_is_its_length_5_and_the_payload() -> None:
    assert zlib.crc32(b"value") == CRC_OF_VALUE
    assert encode_entry(b"value", magic=0) == VALUE_V0
    entry = read_entry(VALUE_V0)
    assert (entry.magic, entry.size_bytes, entry.crc, bytes(entry.payload)) == (0, 14, CRC_OF_VALUE, b"value")
    assert entry.codec is Codec.NONE and entry.crc_is_valid


def test_a_message_of_magic_1_has_an_attributes_byte_more() -> None:
    assert encode_entry(b"value") == VALUE_V1
    entry = read_entry(VALUE_V1)
    assert (entry.magic, entry.size_bytes, entry.attributes, entry.crc) == (1, 15, 0, CRC_OF_VALUE)


def test_an_empty_payload_is_a_message() -> None:
    assert encode_entry(b"", magic=0) == bytes.fromhex("000000050000000000")
    assert encode_entry(b"", magic=1) == bytes.fromhex("00000006010000000000")
    assert payloads(encode_set([b"", b"x", b""])) == [b"", b"x", b""]


def test_offsets_are_byte_positions() -> None:
    assert list(iter_messages(VALUE_V0 + VALUE_V1 + VALUE_V0, 1000)) == [
        Message07(1000, 1014, b"value"),
        Message07(1014, 1029, b"value"),
        Message07(1029, 1043, b"value"),
    ]


def wrapped_by_hand(inner: bytes, attributes: int, packed: bytes) -> bytes:
    body = bytes([1, attributes]) + zlib.crc32(packed).to_bytes(4, "big") + packed
    return len(body).to_bytes(4, "big") + body


def test_a_gzip_wrapper_holds_a_set() -> None:
    inner = VALUE_V0 + VALUE_V1
    wrapper = wrapped_by_hand(inner, 1, gzip.compress(inner))
    assert list(iter_messages(wrapper, 7)) == [Message07(7, 7 + len(wrapper), b"value")] * 2
    ours = encode_set([b"value"] * 2, codec=Codec.GZIP)
    entry = read_entry(ours)
    assert (entry.magic, entry.attributes, gzip.decompress(entry.payload)) == (1, 1, VALUE_V1 * 2)


def test_a_snappy_wrapper_is_framed_as_java_frames_it() -> None:
    block = bytes(cramjam.snappy.compress_raw(VALUE_V1))
    framed = b"\x82SNAPPY\0" + bytes.fromhex("00000001 00000001") + len(block).to_bytes(4, "big") + block
    assert payloads(wrapped_by_hand(VALUE_V1, 2, framed)) == [b"value"]
    assert encode_set([b"value"], codec=Codec.SNAPPY) == wrapped_by_hand(VALUE_V1, 2, framed)


def test_wrappers_lie_in_wrappers_down_to_a_limit() -> None:
    """A 0.7 mirror that read wrappers unopened and wrapped what it sent."""
    data = encode_set([b"a", b"b"], codec=Codec.GZIP)
    for depth in range(1, NESTING_MAX + 1):
        assert payloads(data) == [b"a", b"b"], depth
        data = wrapped_by_hand(data, 1, gzip.compress(data))
    with pytest.raises(CorruptMessage, match="nested"):
        payloads(data)


def test_sets_share_the_room_of_their_request() -> None:
    wrapper = encode_set([bytes(990)], codec=Codec.GZIP)
    room = RoomOf07(2_500, 10)
    for left in (1_500, 500):
        column_of_set(wrapper, room)
        assert room.bytes_left == left
    with pytest.raises(CorruptMessage):
        column_of_set(wrapper, room)
    assert room.bytes_left == 0, "what does not decompress costs as much"
    column_of_set(encode_set([b""] * 8), room)
    with pytest.raises(InvalidRecord, match="too many messages"):
        column_of_set(encode_set([b""]), room)


def test_a_wrapper_is_found_behind_messages_that_are_not_compressed() -> None:
    plain = encode_set([b"a", b"b"], magic=0) + encode_set([b"c"])
    assert not has_wrapper(plain) and not has_wrapper(plain + b"\0\0\0\x01\0")
    assert has_wrapper(plain + encode_set([b"d"], codec=Codec.SNAPPY))


def test_no_message_in_no_payloads() -> None:
    assert encode_set([]) == encode_set([], codec=Codec.GZIP) == b""


@pytest.mark.parametrize(("magic", "codec"), [(0, Codec.GZIP), (2, Codec.NONE), (1, Codec.LZ4), (1, Codec.ZSTD)])
def test_what_0_7_did_not_have_is_not_written(magic: int, codec: Codec) -> None:
    with pytest.raises(ValueError, match=f"magic {magic}|{codec.name.lower()}"):
        encode_entry(b"x", magic=magic, codec=codec)
    with pytest.raises(ValueError):
        encode_set([b"x"], magic=magic, codec=codec if codec is not Codec.GZIP else Codec.LZ4)


def test_a_message_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    for cut in range(1, len(VALUE_V1)):
        data = VALUE_V0 + VALUE_V1[:cut]
        assert payloads(data) == [b"value"]
        assert [entry.position for entry in iter_entries(data)] == [0]
        with pytest.raises(CorruptMessage, match="cut off"):
            read_entry(data, len(VALUE_V0))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("00000004 00 1d7758", "minimum"),
        ("ffffffff 00 1d775834", "minimum"),
        ("80000000 00 1d775834", "minimum"),
        ("00000005 01 00 000000", "magic 1 has 5 bytes"),
        ("0000000a 02 1d775834 76616c7565", "magic 2"),
        ("0000000a ff 1d775834 76616c7565", "magic 255"),
        ("0000000a 00 1d775835 76616c7565", "CRC"),
        ("0000000a 00 1d775834 76616c7566", "CRC"),
    ],
)
def test_damage_is_named(data: str, reason: str) -> None:
    with pytest.raises(CorruptMessage, match=reason):
        payloads(bytes.fromhex(data))


def test_a_codec_that_0_7_does_not_know_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionType, match="codec 3"):
        payloads(wrapped_by_hand(b"", 3, b"some bytes"))


def test_a_wrapper_that_ends_inside_a_message_is_damaged() -> None:
    inner = VALUE_V0 + VALUE_V1[:-1]
    with pytest.raises(CorruptMessage, match="cut off"):
        payloads(wrapped_by_hand(inner, 1, gzip.compress(inner)))


def test_a_bomb_is_stopped_at_the_bound_however_it_is_wrapped() -> None:
    half = encode_set([bytes(1 << 20)] * 2, codec=Codec.GZIP)
    assert len(payloads_of(read_entry(half), 3 << 20)) == 2
    whole = encode_set([bytes(1 << 20)] * 4, codec=Codec.GZIP)
    in_one = wrapped_by_hand(whole, 1, gzip.compress(whole))
    in_two = wrapped_by_hand(half * 2, 1, gzip.compress(half * 2))
    for bomb in (whole, in_one, in_two):
        with pytest.raises(CorruptMessage, match="at most"):
            payloads_of(read_entry(bomb), 3 << 20)


sets = st.lists(st.binary(max_size=50), min_size=1, max_size=10)


@given(sets, st.sampled_from([(0, Codec.NONE), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.SNAPPY), (0, Codec.NONE)]))
def test_what_is_written_is_read(rows: list[bytes], how: tuple[int, Codec]) -> None:
    data = encode_set(rows, magic=how[0], codec=how[1])
    assert payloads(data) == rows
    messages = list(iter_messages(data, 50))
    assert messages[-1].next_offset == 50 + len(data)


@given(sets, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY]), st.data())
def test_any_flipped_bit_gives_a_typed_error_or_other_messages(
    rows: list[bytes], codec: Codec, data: st.DataObject
) -> None:
    mutated = bytearray(encode_set(rows, codec=codec))
    bit = data.draw(st.integers(0, len(mutated) * 8 - 1))
    mutated[bit >> 3] ^= 1 << (bit & 7)
    try:
        found = [message.payload for message in iter_messages(mutated, max_bytes=1 << 20)]
    except KafkaError:
        return
    # what no checksum covers: a length (what follows is then cut off), magic, or the bits of the codec
    assert found == rows or len(found) <= len(rows) + 1


@given(st.binary(max_size=200))
def test_random_bytes_give_a_typed_error_or_messages(data: bytes) -> None:
    try:
        for message in iter_messages(data, max_bytes=1 << 20):
            assert len(message.payload) <= len(data)
    except KafkaError:
        pass
