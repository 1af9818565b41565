"""Measures the assignors of groups. `python benchmarks/coordination/assignors.py [MEMBERS] [PARTITIONS]`

For each assignor and kind of subscription, in milliseconds (the median of several runs): the first assignment of the
group, the one after a member has joined, and the one after a member has left. `different topics`: each member
subscribes to half of the topics. Default: 1,000 members and 10,000 partitions of 100 topics.
"""

import random
import statistics
import sys
import time
from collections.abc import Mapping

from headrace.coordinators.assignors.assignor import AssignorMember, PartitionAssignor, TopicId
from headrace.coordinators.assignors.by_name import CONSUMER_ASSIGNORS
from headrace.coordinators.assignors.simple import assign_simple

TOPICS = 100
RUNS = 5


def milliseconds(
    assign: PartitionAssignor, members: Mapping[str, AssignorMember], counts: Mapping[TopicId, int]
) -> float:
    """The median duration of one assignment."""
    durations = []
    for _ in range(RUNS):
        start = time.perf_counter()
        assign(members, counts)
        durations.append(time.perf_counter() - start)
    return 1000 * statistics.median(durations)


def measure(
    assign: PartitionAssignor, members: dict[str, AssignorMember], counts: Mapping[TopicId, int]
) -> list[float]:
    """First assignment, a member joins, a member leaves."""
    target = assign(members, counts)
    settled = {key: member._replace(assignment=target[key]) for key, member in members.items()}
    some = next(iter(members))
    joined = settled | {"member-new": members[some]}
    left = {key: member for key, member in settled.items() if key != some}
    return [milliseconds(assign, each, counts) for each in (members, joined, left)]


def main() -> None:
    """Print one line for each assignor and kind of subscription."""
    members_count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    partitions = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    rng = random.Random(1)
    topics = [number.to_bytes(16, "big") for number in range(TOPICS)]
    counts = dict.fromkeys(topics, partitions // TOPICS)
    everything = frozenset(topics)
    print(f"{members_count:,} members, {partitions:,} partitions of {TOPICS} topics; milliseconds")
    print(f"{'':34}{'first':>10}{'joined':>10}{'left':>10}")
    for name, assign in {**CONSUMER_ASSIGNORS, "simple": assign_simple}.items():
        for kind in ("same topics", "different topics"):
            members = {
                f"member-{number:05}": AssignorMember(
                    everything if kind == "same topics" else frozenset(rng.sample(topics, TOPICS // 2))
                )
                for number in range(members_count)
            }
            times = measure(assign, members, counts)
            print(f"{name + ', ' + kind:34}" + "".join(f"{each:10.1f}" for each in times))


if __name__ == "__main__":
    main()
