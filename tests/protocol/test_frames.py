"""Frames out of a byte stream, however it is cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol.frames import FrameReader, frame_head


def _drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1), st.booleans())
def test_frames_come_out_whole_and_in_order_however_the_stream_is_cut(
    frames: list[bytes], cuts: list[int], lazy: bool
) -> None:
    stream = b"".join(frame_head(len(frame)) + frame for frame in frames)
    reader, out, pos, turn = FrameReader(100), [], 0, 0
    while pos < len(stream):
        size = cuts[turn % len(cuts)]
        reader.feed(stream[pos : pos + size])
        if not lazy or turn % 3 == 0:
            out += _drain(reader)
        pos, turn = pos + size, turn + 1
    out += _drain(reader)
    assert out == frames
    assert reader.buffered == 0


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_size_that_is_negative_or_over_the_limit_is_refused_before_its_bytes_come(size: int, step: int) -> None:
    reader = FrameReader(100)
    data = struct.pack(">i", size) + b"more"
    with pytest.raises(InvalidRequest):
        for pos in range(0, len(data), step):
            reader.feed(data[pos : pos + step])
            reader.next_frame()


def test_a_frame_of_exactly_the_limit_and_an_empty_one_are_taken() -> None:
    reader = FrameReader(5)
    reader.feed(frame_head(5) + b"12345" + frame_head(0))
    assert _drain(reader) == [b"12345", b""]


def test_a_frame_in_one_piece_is_not_copied_and_is_writable_where_the_piece_is() -> None:
    piece = bytearray(frame_head(3) + b"abc")
    reader = FrameReader(5)
    reader.feed(piece)
    frame = reader.next_frame()
    assert frame is not None
    frame[0] = ord("X")
    assert piece == frame_head(3) + b"Xbc"


def test_a_frame_keeps_its_bytes_when_later_ones_arrive() -> None:
    reader = FrameReader(5)
    reader.feed(frame_head(3) + b"a")
    assert reader.next_frame() is None
    reader.feed(b"bc" + frame_head(1) + b"d")
    first = reader.next_frame()
    second = reader.next_frame()
    reader.feed(frame_head(2) + b"ef")
    assert (first, second, reader.next_frame()) == (b"abc", b"d", b"ef")


def test_half_a_large_frame_holds_no_more_than_what_came() -> None:
    reader = FrameReader(1 << 30)
    reader.feed(frame_head(1 << 29) + b"x" * 100)
    assert reader.next_frame() is None
    assert reader.buffered == 104
