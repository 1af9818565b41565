"""Frames come out whole, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.inbound import SCRATCH_BYTES, FrameBuffer
from headrace.errors import InvalidRequest


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def feed(frames: FrameBuffer, data: bytes, sizes: list[int]) -> list[bytes]:
    """Give `data` in pieces of `sizes` (repeated), as a socket would; the frames that come out."""
    out, pos, turn = [], 0, 0
    while pos < len(data):
        room = frames.writable()
        take = min(len(room), sizes[turn % len(sizes)], len(data) - pos)
        room[:take] = data[pos : pos + take]
        frames.wrote(take)
        pos, turn = pos + take, turn + 1
        while (frame := frames.next_frame()) is not None:
            out.append(bytes(frame))
    return out


BODIES = st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 3 * SCRATCH_BYTES).map(bytes)), max_size=6)


@given(BODIES, st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1, max_size=5))
def test_any_division_gives_the_same_frames(bodies: list[bytes], sizes: list[int]) -> None:
    assert feed(FrameBuffer(), framed(*bodies), sizes) == bodies


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES])
def test_frames_around_the_size_of_the_scratch_buffer_are_whole(size: int) -> None:
    bodies = [b"x" * size, b"next"]
    assert feed(FrameBuffer(), framed(*bodies), [1000]) == bodies


def test_a_small_frame_does_not_change_when_the_next_one_arrives() -> None:
    frames = FrameBuffer()
    room = frames.writable()
    room[:7] = framed(b"abc")
    frames.wrote(7)
    first = frames.next_frame()
    feed(frames, framed(b"xyz"), [100])
    assert first == b"abc"


def test_a_large_frame_that_is_still_looked_at_is_not_written_over() -> None:
    frames = FrameBuffer()
    size, held = 2 * SCRATCH_BYTES, []
    for number in range(5):
        room = frames.writable()
        data = framed(bytes([number]) * size)
        room[: len(room)] = data[: len(room)]
        frames.wrote(len(room))
        assert frames.next_frame() is None
        rest = frames.writable()
        rest[:] = data[len(room) :]
        frames.wrote(len(rest))
        frame = frames.next_frame()
        assert frame is not None
        held.append(frame)
        if number == 2:
            del held[0], frame
    assert [(len(frame), set(frame)) for frame in held] == [(size, {number}) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x01\x01"])
def test_a_negative_or_too_large_size_is_refused(size: bytes) -> None:
    frames = FrameBuffer(max_bytes=256)
    with pytest.raises(InvalidRequest, match="not a Kafka broker"):
        feed(frames, size, [4])
