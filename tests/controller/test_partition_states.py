"""States that are encoded once have the bytes and the content of the structs that they stand for."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.controller.decisions.control_requests import ControllerIdentity, leader_and_isr, update_metadata
from headrace.controller.decisions.partition_states import (
    LEADER_VERSIONS,
    METADATA_VERSIONS,
    RECOVERY_FROM,
    LeaderState,
    LeaderStates,
    MetadataState,
    MetadataStates,
    in_parts,
    leader_state,
    metadata_state,
)
from headrace.errors import UnsupportedVersion
from headrace.metadata.model import Broker, Endpoint, PartitionLeadership, Replicas
from headrace.protocol import messages as m
from headrace.types import BrokerId, LeaderEpoch
from tests.examples import examples

SENDER = ControllerIdentity(BrokerId(3), 8)
BROKER = Broker(BrokerId(1), (Endpoint("PLAINTEXT", "h", 9092),), "r", 44)
NUMBERS = st.integers(-1, 2**31 - 1)
BROKER_IDS = st.integers(0, 2**31 - 1).map(BrokerId)
IDS = st.lists(BROKER_IDS, max_size=5).map(tuple)
LEADERSHIPS = st.builds(
    PartitionLeadership,
    NUMBERS.map(BrokerId),
    NUMBERS.map(LeaderEpoch),
    IDS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.booleans(),
    IDS,
)
LEADER_STATES = st.builds(leader_state, NUMBERS, LEADERSHIPS, st.builds(Replicas, IDS, IDS, IDS), is_new=st.booleans())
METADATA_STATES = st.builds(metadata_state, NUMBERS, LEADERSHIPS, IDS, IDS, is_deleting=st.booleans())


def topics(states: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, dict[int, Any]]]:
    return st.dictionaries(st.sampled_from(["a", "b", "c"]), st.dictionaries(st.integers(0, 9), states, min_size=1))


def with_structs(request: Any) -> Any:
    """The same request with lists of structs."""
    for topic in request.topic_states:
        topic.partition_states = list(topic.partition_states)
    return request


def both_encodings(request: m.LeaderAndIsrRequest | m.UpdateMetadataRequest, version: int) -> list[bytes] | str:
    """The bytes, and those put together in slices; or why there are none."""
    try:
        sliced = b"".join(bytes(each) for each in _all(request.encode_in_slices(version)))
        return [request.encode(version), sliced]
    except UnsupportedVersion as error:
        return error.message


def _all(slices: Any) -> Any:
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value


@settings(max_examples=examples(40))
@given(topics(LEADER_STATES), st.integers(4, m.LeaderAndIsrRequest.VERSIONS[-1]))
def test_leaders_have_the_bytes_of_their_structs(states: dict[str, dict[int, LeaderState]], version: int) -> None:
    request = leader_and_isr(SENDER, BROKER, states, {"a": b"i" * 16}, {BROKER.id: BROKER})
    encoded = both_encodings(request, version)
    plain = with_structs(request)
    if version < RECOVERY_FROM:
        for each in (state for topic in plain.topic_states for state in topic.partition_states):
            each.leader_recovery_state = 0
    assert encoded == both_encodings(plain, version)
    if version == m.LeaderAndIsrRequest.VERSIONS[-1]:
        assert not isinstance(encoded, str)
        assert m.LeaderAndIsrRequest.decode(version, encoded[0])[0] == request


@pytest.mark.parametrize("version", range(2, 8))
def test_a_recovering_partition_has_a_leader_at_a_broker_that_knows_no_recovery(version: int) -> None:
    leadership = PartitionLeadership(BROKER.id, LeaderEpoch(2), (BROKER.id,), 3, is_recovering=True)
    rows = {0: leader_state(0, leadership, Replicas((BROKER.id,)), is_new=False)}
    request = leader_and_isr(SENDER, BROKER, {"t": rows}, {}, {})
    for encoded in both_encodings(request, version):
        assert not isinstance(encoded, str)
        (state,) = m.LeaderAndIsrRequest.decode(version, encoded)[0].topic_states[0].partition_states
        assert (state.leader, state.isr) == (BROKER.id, [BROKER.id])
        assert state.leader_recovery_state == (1 if version >= 6 else 0)


@settings(max_examples=examples(40))
@given(topics(METADATA_STATES), st.integers(5, m.UpdateMetadataRequest.VERSIONS[-1]), st.booleans())
def test_metadata_have_the_bytes_of_their_structs(
    states: dict[str, dict[int, MetadataState]], version: int, is_full: bool
) -> None:
    request = update_metadata(SENDER, BROKER, states, {"a": b"i" * 16}, [BROKER], is_full=is_full)
    encoded = both_encodings(request, version)
    assert encoded == both_encodings(with_structs(request), version)
    if version == m.UpdateMetadataRequest.VERSIONS[-1]:
        assert not isinstance(encoded, str)
        assert m.UpdateMetadataRequest.decode(version, encoded[0])[0] == request


def test_the_newest_versions_are_encoded_once() -> None:
    assert LEADER_VERSIONS[-1] == m.LeaderAndIsrRequest.VERSIONS[-1]
    assert METADATA_VERSIONS[-1] == m.UpdateMetadataRequest.VERSIONS[-1]


@pytest.mark.parametrize("count", [126, 127, 200])
def test_a_long_isr_is_encoded_as_its_struct_is(count: int) -> None:
    ids = tuple(map(BrokerId, range(count)))
    leadership = PartitionLeadership(BrokerId(1), LeaderEpoch(2), ids, 3)
    rows = [leader_state(0, leadership, Replicas((BrokerId(1),)), is_new=False)]
    more = [metadata_state(0, leadership, (BrokerId(1),), (), is_deleting=False)]
    assert (LeaderStates(rows).encoded(7) is None) is (MetadataStates(more).encoded(8) is None) is (count > 126)
    request = leader_and_isr(SENDER, BROKER, {"t": {0: rows[0]}}, {}, {})
    assert request.encode(7) == with_structs(request).encode(7)
    update = update_metadata(SENDER, BROKER, {"t": {0: more[0]}}, {}, [])
    assert update.encode(8) == with_structs(update).encode(8)


def test_states_are_a_sequence() -> None:
    leadership = PartitionLeadership(BrokerId(1), LeaderEpoch(2), (BrokerId(1),), 3)
    rows = [leader_state(number, leadership, Replicas((BrokerId(1),)), is_new=False) for number in range(4)]
    states = LeaderStates(rows)
    assert [each.partition_index for each in states] == [0, 1, 2, 3]
    assert states[1].partition_index == 1
    assert [each.partition_index for each in states[-2:]] == [2, 3]
    assert (states == list(states), states == list(states)[1:], states == 5) == (True, False, False)


@given(
    st.dictionaries(st.text(max_size=3), st.dictionaries(st.integers(0, 50), st.none(), min_size=1)), st.integers(1, 20)
)
def test_parts_have_every_partition_once_and_not_too_many(states: dict[str, dict[int, None]], size: int) -> None:
    parts = list(in_parts(states, size))
    assert all(sum(map(len, part.values())) <= size for part in parts)
    assert all(part and all(part.values()) for part in parts)
    found = [(topic, number) for part in parts for topic, rows in part.items() for number in rows]
    assert sorted(found) == sorted((topic, number) for topic, rows in states.items() for number in rows)
