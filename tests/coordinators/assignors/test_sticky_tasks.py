"""What every assignment of tasks must be, whatever the group: each task once, even, and sticky."""

import random
from collections import Counter

import pytest

from headrace.coordinators.assignors.load_queue import LoadQueue
from headrace.coordinators.assignors.sticky_tasks import MemberTasks, SubtopologyTasks, TaskMember, assign_tasks


def members_of(processes: dict[str, int]) -> dict[str, TaskMember]:
    """Members named by process and number."""
    return {f"{name}{each}": TaskMember(name, {}, {}) for name, count in processes.items() for each in range(count)}


def after(members: dict[str, TaskMember], had: dict[str, MemberTasks]) -> dict[str, TaskMember]:
    return {name: each._replace(active=had[name].active, standby=had[name].standby) if name in had else each
            for name, each in members.items()}  # fmt: skip


def tasks_in(assignment: dict[str, MemberTasks], role: int) -> Counter[tuple[str, int]]:
    return Counter((name, each) for tasks in assignment.values() for name, some in tasks[role].items() for each in some)


@pytest.mark.parametrize("seed", range(20))
def test_each_task_is_active_once_and_never_twice_in_a_process(seed: int) -> None:
    rng = random.Random(seed)
    subtopologies = [SubtopologyTasks(str(each), rng.randrange(1, 9), rng.random() < 0.5) for each in range(3)]
    members = members_of({name: rng.randrange(1, 4) for name in "abc"})
    replicas = rng.randrange(3)
    assignment = assign_tasks(members, subtopologies, replicas)
    every = {(each.subtopology_id, number) for each in subtopologies for number in range(each.task_count)}
    assert tasks_in(assignment, 0) == Counter(every)
    stateful = {each.subtopology_id for each in subtopologies if each.is_stateful}
    assert tasks_in(assignment, 1) == Counter({task: replicas for task in every if task[0] in stateful and replicas})
    for process in "abc":
        copies = Counter(
            (name, each)
            for member, tasks in assignment.items()
            if member.startswith(process)
            for role in tasks
            for name, some in role.items()
            for each in some
        )
        assert set(copies.values()) <= {1}


def test_a_new_member_takes_only_its_share() -> None:
    subtopologies = [SubtopologyTasks("0", 12, False)]
    had = assign_tasks(members_of({"a": 1, "b": 1}), subtopologies, 0)
    found = assign_tasks(after(members_of({"a": 1, "b": 1, "c": 1}), had), subtopologies, 0)
    assert {name: len(each.active["0"]) for name, each in found.items()} == {"a0": 4, "b0": 4, "c0": 4}
    assert all(found[name].active["0"] <= had[name].active["0"] for name in ("a0", "b0"))


def test_a_standby_takes_over_the_tasks_of_a_member_that_left() -> None:
    subtopologies = [SubtopologyTasks("0", 4, True)]
    had = assign_tasks(members_of({"a": 1, "b": 1}), subtopologies, 1)
    assert had["a0"].active == had["b0"].standby
    found = assign_tasks(after(members_of({"b": 1}), had), subtopologies, 1)
    assert found["b0"].active == {"0": frozenset(range(4))}
    assert found["b0"].standby == {}, "one process has no room for a second copy"


def test_nothing_is_assigned_without_members() -> None:
    assert assign_tasks({}, [SubtopologyTasks("0", 4, True)], 1) == {}


def test_the_queue_gives_the_least_loaded_first() -> None:
    rng = random.Random(3)
    loads = [rng.randrange(9) for _ in range(200)]
    queue = LoadQueue(range(200), loads.__getitem__)
    assert [loads[queue.take()] for _ in range(200)] == sorted(loads)
    with pytest.raises(IndexError):
        queue.take()
