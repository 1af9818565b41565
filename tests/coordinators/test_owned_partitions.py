"""Which partitions a coordinator serves, and which reading of one counts."""

from headrace.coordinators.groups.kinds import replay_of
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.runtime import OwnedPartitions
from headrace.errors import ErrorCode

LOADING, UNKNOWN, ACTIVE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE


def loading(partition: int) -> GroupLoading:
    return GroupLoading(partition, replay_of)


def begun(owned: OwnedPartitions[GroupLoading]) -> GroupLoading:
    replay = owned.begin(0, 1)
    assert replay is not None
    return replay


def test_a_partition_is_loading_until_it_is_read_and_served_until_it_is_released() -> None:
    owned = OwnedPartitions(loading)
    seen = [owned.availability(0)]
    replay = begun(owned)
    seen.append(owned.availability(0))
    assert owned.finish(0, replay)
    seen.append(owned.availability(0))
    owned.release(0)
    assert [*seen, owned.availability(0)] == [UNKNOWN, LOADING, ACTIVE, UNKNOWN]
    assert owned.availability(1) is UNKNOWN


def test_a_partition_that_is_read_or_served_is_not_read_again() -> None:
    owned = OwnedPartitions(loading)
    replay = begun(owned)
    assert owned.begin(0, 1) is None
    owned.finish(0, replay)
    assert owned.begin(0, 1) is None


def test_a_partition_that_cannot_be_read_may_be_read_again() -> None:
    owned = OwnedPartitions(loading)
    assert owned.fail(0, begun(owned))
    assert owned.availability(0) is UNKNOWN
    assert owned.finish(0, begun(owned))


def test_an_older_reading_changes_nothing_however_it_ends() -> None:
    owned = OwnedPartitions(loading)
    older = begun(owned)
    owned.release(0)
    assert not owned.finish(0, older)
    assert owned.availability(0) is UNKNOWN
    newer = begun(owned)
    assert not owned.finish(0, older)
    assert not owned.fail(0, older)
    assert owned.availability(0) is LOADING
    assert owned.finish(0, newer)
    assert not owned.fail(0, older)
    assert owned.availability(0) is ACTIVE
