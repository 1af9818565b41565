"""Large messages in slices: the same messages and bytes as at once, and never many elements in one slice."""

from collections.abc import Generator
from typing import TypeVar

import pytest

from headrace.errors import InvalidRequest
from headrace.limits import ELEMENTS_PER_REQUEST_MAX, ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.codec.message import has_more_elements
from tests.protocol.random_messages import INITIALS, SCHEMAS, message_class, named, random_message, seeds

T = TypeVar("T")


def run(slices: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and the number of slices before the last one."""
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value, count
        count += 1


def topics(count: int) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=f"t{each}") for each in range(count)])


@pytest.mark.parametrize("initial", INITIALS)
def test_slices_give_what_the_whole_gives(initial: str) -> None:
    for name, seed in seeds("slices", 1, SCHEMAS, initial):
        version = SCHEMAS[name].versions[-1]
        with named(name, version, seed):
            message = random_message(name, version, seed)
            data = message.encode(version)
            assert b"".join(run(message.encode_in_slices(version))[0]) == data  # type: ignore[arg-type]
            padded = b"head" + data + b"tail"
            decoded, _ = run(message_class(name).decode_in_slices(version, padded, 4))
            assert decoded == (message, 4 + len(data))


def test_no_slice_has_more_elements_than_the_limit() -> None:
    count = 4 * ELEMENTS_PER_SLICE
    data = topics(count).encode(9)
    assert run(m.MetadataRequest.decode_in_slices(9, data))[1] == 4
    assert run(topics(count).encode_in_slices(9))[1] == 4


def test_elements_of_nested_arrays_count_together() -> None:
    """Each topic has one partition, so that no array of partitions alone would fill a slice."""
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    request = m.ListOffsetsRequest(replica_id=-1, topics=[topic] * ELEMENTS_PER_SLICE)
    assert run(m.ListOffsetsRequest.decode_in_slices(6, request.encode(6)))[1] == 2
    assert run(request.encode_in_slices(6))[1] == 2
    assert has_more_elements(request, 2 * ELEMENTS_PER_SLICE - 1)
    assert not has_more_elements(request, 2 * ELEMENTS_PER_SLICE)


def test_slices_refuse_what_the_whole_refuses() -> None:
    whole = topics(3).encode(9)
    with pytest.raises(InvalidRequest):
        run(m.MetadataRequest.decode_in_slices(9, whole[:-4]))
    with pytest.raises(InvalidRequest, match="more elements"):
        run(m.MetadataRequest.decode_in_slices(9, topics(ELEMENTS_PER_REQUEST_MAX + 1).encode(9)))
    with pytest.raises(ValueError, match="MetadataRequest v9"):
        run(m.MetadataRequest(topics=[None]).encode_in_slices(9))  # type: ignore[list-item]
