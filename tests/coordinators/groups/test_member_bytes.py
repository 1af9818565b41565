"""What a member of a group takes in memory: about, and never less than half."""

import sys
import uuid

from headrace.coordinators.groups.consumer.members import ConsumerMember
from headrace.coordinators.groups.member_bytes import bytes_of


def size_of(value: object) -> int:
    """The bytes of an object and of what it holds."""
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, tuple | frozenset | set):
        inner = [*value]
    return sys.getsizeof(value) + sum(map(size_of, inner))


def test_an_assignment_counts() -> None:
    few = ConsumerMember("m")
    assigned = {uuid.uuid4().bytes: dict.fromkeys(range(1000, 1100), 3) for _ in range(100)}
    many = few._replace(assigned=assigned, revoking=assigned)
    told = bytes_of(many) - bytes_of(few)
    assert size_of(assigned) / 2 <= told / 2 <= 3 * size_of(assigned)


def test_names_count() -> None:
    named = ConsumerMember("m", topics=frozenset(f"topic-{number}" for number in range(1000)), regex="x" * 5000)
    assert bytes_of(named) - bytes_of(ConsumerMember("m")) >= size_of(named.topics) / 2 + 5000
