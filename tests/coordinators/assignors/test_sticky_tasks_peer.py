"""Our assignor of tasks beside Apache Kafka's own, over drawn groups and over what follows from each assignment.

Kafka takes equally loaded processes and members in the order of its hash maps. The letters that name them here lie in
those maps in alphabetical order, so that both begin with the same one and the results are equal, task by task.
"""

import random
import subprocess
from pathlib import Path

import pytest

from headrace.coordinators.assignors.sticky_tasks import (
    MemberTasks,
    SubtopologyTasks,
    TaskMember,
    TaskSets,
    assign_tasks,
)
from tests.peers import kafka

SOURCE = Path(__file__).parent / "java" / "AssignTasks.java"
LETTERS = "abcdefghijkl"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools())),
]

Group = tuple[dict[str, TaskMember], list[SubtopologyTasks], int]


def test_assigns_as_apache_kafka_does() -> None:
    rng = random.Random(11)
    groups = [each for _ in range(250) for each in generations(rng)]
    for (members, subtopologies, replicas), theirs in zip(groups, java(groups), strict=True):
        ours = assign_tasks(members, subtopologies, replicas)
        assert written(ours) == theirs, (members, subtopologies, replicas)


def generations(rng: random.Random) -> list[Group]:
    """A group that begins, and some changes of it: each has the tasks that the last assignment gave."""
    subtopologies = [
        SubtopologyTasks(str(each), rng.choice((1, 2, 3, 7, 12)), rng.random() < 0.6)
        for each in range(rng.randrange(1, 4))
    ]
    replicas = rng.choice((0, 0, 1, 1, 2, 5))
    members = drawn_members(rng, rng.randrange(1, 11))
    found: list[Group] = []
    for _ in range(4):
        found.append((members, subtopologies, replicas))
        had = assign_tasks(members, subtopologies, replicas)
        if rng.random() < 0.2:
            subtopologies = [each._replace(task_count=each.task_count + rng.randrange(3)) for each in subtopologies]
        if rng.random() < 0.2:
            replicas = rng.randrange(3)
        members = {
            name: member._replace(active=had[name].active, standby=had[name].standby) if name in had else member
            for name, member in drawn_members(rng, rng.randrange(1, 11)).items()
        }
        if rng.random() < 0.3:
            members = {name: scrambled(rng, member, subtopologies) for name, member in members.items()}
    return found


def drawn_members(rng: random.Random, count: int) -> dict[str, TaskMember]:
    process_count = rng.randrange(1, count + 1)
    return {
        name: TaskMember(LETTERS[number if number < process_count else rng.randrange(process_count)], {}, {})
        for number, name in enumerate(LETTERS[:count])
    }


def scrambled(rng: random.Random, member: TaskMember, subtopologies: list[SubtopologyTasks]) -> TaskMember:
    """Tasks that no assignment gave, some of which several members had, and some of which are gone."""

    def some() -> TaskSets:
        drawn = {each.subtopology_id: frozenset(rng.sample(range(14), rng.randrange(4))) for each in subtopologies}
        return {name: tasks for name, tasks in drawn.items() if tasks}

    return member._replace(active=some(), standby=some())


def java(groups: list[Group]) -> list[str]:
    """Apache Kafka's assignment of each group."""
    lines = "".join(f"{asked(*each)}\n" for each in groups)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka.jars('4.3.1')}/*", str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def asked(members: dict[str, TaskMember], subtopologies: list[SubtopologyTasks], replicas: int) -> str:
    topology = " ".join(f"{each.subtopology_id}/{each.task_count}/{int(each.is_stateful)}" for each in subtopologies)
    group = " ".join(
        f"{name}/{member.process_id}/{text(member.active)}/{text(member.standby)}" for name, member in members.items()
    )
    return f"{replicas};{topology};{group}"


def written(assignment: dict[str, MemberTasks]) -> str:
    return " ".join(f"{name}/{text(assignment[name].active)}/{text(assignment[name].standby)}" for name in assignment)


def text(tasks: TaskSets) -> str:
    return ",".join(f"{name}-{each}" for name in sorted(tasks) for each in sorted(tasks[name]))
