"""What holds of every assignment: each partition has its owners, members are balanced, and little moves."""

import random
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.coordinators.assignors.assignor import (
    AssignorMember,
    PartitionAssignor,
    PartitionAssignorError,
    TopicId,
    is_homogeneous,
)
from headrace.coordinators.assignors.by_name import CONSUMER_ASSIGNORS
from headrace.coordinators.assignors.range_assignor import assign_range
from headrace.coordinators.assignors.simple import assign_simple
from headrace.coordinators.assignors.uniform import assign_uniform
from tests.coordinators.assignors.groups import (
    Group,
    changed,
    drawn,
    kept,
    owners,
    size,
    topic_id,
    with_assignment,
)

RANDOMS = st.randoms(use_true_random=False)
EVERY = pytest.mark.parametrize("assign", [*CONSUMER_ASSIGNORS.values(), assign_simple], ids=lambda each: each.__name__)
ALIKE = pytest.mark.parametrize("alike", [True, False], ids=["same topics", "different topics"])


def subscribed_slots(group: Group) -> set[tuple[TopicId, int]]:
    members, counts = group
    topics = frozenset[TopicId]().union(*(member.topics for member in members.values()))
    return {(topic, partition) for topic in topics for partition in range(counts[topic])}


def after_changes(rng: random.Random, assign: PartitionAssignor, *, alike: bool) -> Group:
    """A group whose present assignment is older than its members and topics."""
    members, counts = drawn(rng, alike=alike)
    for _ in range(rng.randrange(3)):
        members, counts = changed(rng, (with_assignment(members, assign(members, counts)), counts), alike=alike)
    return members, counts


@ALIKE
@pytest.mark.parametrize("assign", CONSUMER_ASSIGNORS.values(), ids=lambda each: each.__name__)
@given(rng=RANDOMS)
def test_each_partition_has_one_owner_that_subscribes_to_it(
    assign: PartitionAssignor, alike: bool, rng: random.Random
) -> None:
    members, counts = after_changes(rng, assign, alike=alike)
    target = assign(members, counts)
    assert target.keys() == members.keys()
    found = owners(target)
    assert set(found) == subscribed_slots((members, counts))
    assert set(found.values()) <= {1}
    for member_id, partitions in target.items():
        assert partitions.keys() <= members[member_id].topics
        assert all(partitions.values()), "a topic has an empty set"


@given(rng=RANDOMS)
def test_uniform_moves_no_more_than_balance_demands(rng: random.Random) -> None:
    members, counts = after_changes(rng, assign_uniform, alike=True)
    target = assign_uniform(members, counts)
    share, extras = divmod(len(subscribed_slots((members, counts))), len(members))
    assert sorted(map(size, target.values())) == [share] * (len(members) - extras) + [share + 1] * extras
    topics = next(iter(members.values())).topics
    present = [
        sum(len(each) for topic, each in member.assignment.items() if topic in topics) for member in members.values()
    ]
    best = sum(min(each, share) for each in present) + min(extras, sum(each > share for each in present))
    assert kept(members, target) == best


@given(rng=RANDOMS)
def test_uniform_balances_the_subscribers_of_each_topic(rng: random.Random) -> None:
    members, counts = after_changes(rng, assign_uniform, alike=False)
    target = assign_uniform(members, counts)
    for one, other in combinations(members, 2):
        for giver, receiver in ((one, other), (other, one)):
            if size(target[giver]) > size(target[receiver]) + 1:
                movable = target[giver].keys() & members[receiver].topics
                assert not movable, f"{giver} has more than {receiver}, which could take some of {movable}"


@ALIKE
@EVERY
@given(rng=RANDOMS)
def test_nothing_moves_where_nothing_changed(assign: PartitionAssignor, alike: bool, rng: random.Random) -> None:
    members, counts = after_changes(rng, assign, alike=alike)
    settled = with_assignment(members, assign(members, counts))
    for _ in range(3):  # the moves of overlapping subscriptions may go on for a few rounds
        settled = with_assignment(settled, assign(settled, counts))
    again = assign(settled, counts)
    assert all(again[member_id] is member.assignment for member_id, member in settled.items())


@ALIKE
@given(rng=RANDOMS)
def test_range_is_consecutive_and_co_partitioned(alike: bool, rng: random.Random) -> None:
    members, counts = after_changes(rng, assign_range, alike=alike)
    target = assign_range(members, counts)
    for topic, count in counts.items():
        subscribers = {member_id: member for member_id, member in members.items() if topic in member.topics}
        static = sorted((each.instance_id, key) for key, each in subscribers.items() if each.instance_id is not None)
        order = [key for _, key in static]
        order += sorted(key for key, each in subscribers.items() if each.instance_id is None)
        dealt = [partition for member_id in order for partition in sorted(target[member_id].get(topic, ()))]
        assert dealt == (list(range(count)) if order else [])
        shares = [len(target[member_id].get(topic, ())) for member_id in order]
        assert shares == sorted(shares, reverse=True)
        assert not shares or shares[0] - shares[-1] <= 1
    if alike:
        for one, other in combinations(next(iter(members.values())).topics, 2):
            if counts[one] == counts[other]:
                assert all(
                    (one in each) == (other in each) and each.get(one) == each.get(other) for each in target.values()
                )


@given(rng=RANDOMS, unready=st.booleans())
def test_simple_shares_the_partitions_evenly(rng: random.Random, unready: bool) -> None:
    members, counts = after_changes(rng, assign_simple, alike=True)
    ready = {
        topic: frozenset(each for each in range(count) if not unready or rng.random() < 0.7)
        for topic, count in counts.items()
    }
    target = assign_simple(members, counts, ready if unready else None)
    topics = next(iter(members.values())).topics
    expected = {(topic, partition) for topic in topics for partition in ready[topic]}
    found = owners(target)
    assert set(found) == expected
    if expected:
        sharing = -(-len(members) // len(expected))
        assert max(found.values()) <= sharing
        if sharing == 1:
            assert max(map(size, target.values())) - min(map(size, target.values())) <= 1
        else:
            assert all(partitions for partitions in target.values())


@given(rng=RANDOMS)
def test_simple_balances_each_topic_by_itself(rng: random.Random) -> None:
    members, counts = after_changes(rng, assign_simple, alike=False)
    assume(not is_homogeneous(members))  # their topics are balanced together
    target = assign_simple(members, counts)
    assert set(owners(target)) == subscribed_slots((members, counts))
    for member_id, partitions in target.items():
        assert partitions.keys() <= members[member_id].topics
    for topic, count in counts.items():
        shares = [len(target[key].get(topic, ())) for key, member in members.items() if topic in member.topics]
        if shares and len(shares) <= count:
            assert sum(shares) == count
            assert max(shares) - min(shares) <= 1


@given(rng=RANDOMS)
def test_simple_moves_nothing_of_the_others_when_a_member_leaves(rng: random.Random) -> None:
    """With as many partitions as members or more, each has one user, and the rest only grow."""
    members, counts = drawn(rng, alike=True)
    members = with_assignment(members, assign_simple(members, counts))
    departing = rng.choice(sorted(members))
    rest = {member_id: member for member_id, member in members.items() if member_id != departing}
    if not rest or len(subscribed_slots((members, counts))) < len(members):
        return
    target = assign_simple(rest, counts)
    present = sum(size(member.assignment) for member in rest.values())
    # Which members have one more than the others depends on their place, so each may pass one on.
    assert present - kept(rest, target) <= len(rest) // 2


@EVERY
def test_a_topic_that_is_unknown_is_refused(assign: PartitionAssignor) -> None:
    members = {
        "a": AssignorMember(frozenset({topic_id(1), topic_id(2)})),
        "b": AssignorMember(frozenset({topic_id(1)})),
    }
    with pytest.raises(PartitionAssignorError, match=topic_id(2).hex()):
        assign(members, {topic_id(1): 3})


@EVERY
def test_a_group_without_members_or_topics_owns_nothing(assign: PartitionAssignor) -> None:
    assert assign({}, {}) == {}
    assert assign({"a": AssignorMember(frozenset())}, {}) == {"a": {}}


def test_uniform_repairs_a_present_assignment_that_overlaps() -> None:
    """Two members that own one partition, or an unknown one, cannot come from us; a record may say anything."""
    both = {topic_id(1): frozenset({0, 1, 9})}
    for other in (frozenset({topic_id(1)}), frozenset({topic_id(1), topic_id(2)})):
        members = {"a": AssignorMember(frozenset({topic_id(1)}), both), "b": AssignorMember(other, both)}
        target = assign_uniform(members, {topic_id(1): 4, topic_id(2): 0})
        assert owners(target) == {(topic_id(1), partition): 1 for partition in range(4)}
        assert sorted(map(size, target.values())) == [2, 2]


def test_range_keeps_the_share_of_a_restarted_static_member() -> None:
    topics = frozenset({topic_id(1)})
    before = {"x": AssignorMember(topics, instance_id="1"), "y": AssignorMember(topics, instance_id="2")}
    after = {"a": AssignorMember(topics, instance_id="2"), "z": AssignorMember(topics, instance_id="1")}
    counts = {topic_id(1): 5}
    assert assign_range(before, counts)["x"] == assign_range(after, counts)["z"]
