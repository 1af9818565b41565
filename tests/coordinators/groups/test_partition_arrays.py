"""The partitions of many topics in a record: the bytes are those of the messages."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.modern.partition_arrays import NO_TAGS, write_owned, write_partitions
from headrace.protocol import messages as m

INT32 = st.integers(-(2**31), 2**31 - 1)
TOPIC_IDS = st.binary(min_size=16, max_size=16)

Target = m.ConsumerGroupTargetAssignmentMemberValue
Current = m.ConsumerGroupCurrentMemberAssignmentValue


@given(st.dictionaries(TOPIC_IDS, st.frozensets(INT32, max_size=130), max_size=4))
def test_a_target_assignment(topics: dict[bytes, frozenset[int]]) -> None:
    parts = [Target.TopicPartition(topic_id=each, partitions=sorted(numbers)) for each, numbers in topics.items()]
    assert write_partitions(topics) + NO_TAGS == Target(topic_partitions=parts).encode(0)


@given(st.dictionaries(TOPIC_IDS, st.dictionaries(INT32, INT32, min_size=1, max_size=130), max_size=4))
def test_owned_partitions_with_their_epochs(topics: dict[bytes, dict[int, int]]) -> None:
    parts = [
        Current.TopicPartitions(topic_id=each, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for each, epochs in topics.items()
    ]
    written = Current(assigned_partitions=parts, partitions_pending_revocation=[]).encode(0)
    head = Current().encode(0)[:9]
    assert head + write_owned(topics) + write_owned({}) + NO_TAGS == written


def test_more_topics_than_one_byte_counts() -> None:
    topics = {number.to_bytes(16, "big"): frozenset({number}) for number in range(200)}
    parts = [Target.TopicPartition(topic_id=each, partitions=sorted(numbers)) for each, numbers in topics.items()]
    assert write_partitions(topics) + NO_TAGS == Target(topic_partitions=parts).encode(0)
