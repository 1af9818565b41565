"""Frames out of whatever pieces the network makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol.conversation.frames import FrameReader


def frames_of(pieces: list[bytes], scratch_bytes: int = 64, frame_bytes_max: int = 1 << 20) -> list[bytes]:
    """What a `FrameReader` makes of these reads; a piece that does not fit the target takes several."""
    scratch = memoryview(bytearray(scratch_bytes))
    inbound = FrameReader(scratch, frame_bytes_max)
    found = []
    for piece in pieces:
        while piece:
            target = inbound.target()
            count = min(len(target), len(piece))
            target[:count] = piece[:count]
            piece = piece[count:]
            found += [bytes(frame) for frame in inbound.received(count)]
    return found


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=12), st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert frames_of(pieces) == payloads


def test_small_frames_are_not_copied() -> None:
    scratch = bytearray(64)
    inbound = FrameReader(memoryview(scratch), 1 << 20)
    inbound.target()[:6] = framed(b"ab")
    (frame,) = inbound.received(6)
    assert frame.obj is scratch


@pytest.mark.parametrize("size", [-1, 0, 101, 0x47455420, -(1 << 31)])
@pytest.mark.parametrize("cut", [4, 1, 3])
def test_an_impossible_size_is_refused_before_anything_is_kept(size: int, cut: int) -> None:
    field = size.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRequest, match=str(size)):
        frames_of([field[:cut], field[cut:]], frame_bytes_max=100)


@pytest.mark.parametrize("cut", range(5))
def test_an_empty_frame_is_one_where_it_may_be(cut: int) -> None:
    scratch = bytearray(64)
    inbound = FrameReader(memoryview(scratch), 100)
    inbound.limit(100, 0)
    found = []
    for piece in (b"\0\0\0\0\0\0\0\1x"[:cut], b"\0\0\0\0\0\0\0\1x"[cut:]):
        while piece:
            target = inbound.target()
            taken = min(len(target), len(piece))
            target[:taken], piece = piece[:taken], piece[taken:]
            found += [bytes(frame) for frame in inbound.received(taken)]
    assert found == [b"", b"x"]


def test_a_large_frame_gets_its_memory_as_it_comes() -> None:
    inbound = FrameReader(memoryview(bytearray(64)), 1 << 20)
    size = 1_000_000
    inbound.target()[:4] = size.to_bytes(4, "big")
    frames = inbound.received(4)
    given = 0
    while not frames:
        target = inbound.target()
        assert len(target) <= max(4096, 16 * given)
        given += len(target)
        frames = inbound.received(len(target))
    assert (given, len(frames[0])) == (size, size)
