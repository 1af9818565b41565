"""Real clients share a topic in a group."""

import itertools
from collections.abc import Callable
from time import monotonic

from tests.conformance.cases import case
from tests.conformance.conftest import new_topic
from tests.conformance.model import Client, Joining, Member, Message, Writing
from tests.eventually import WITHIN_SECONDS

ALL = {0, 1, 2, 3}


@case("group", slow=True)
def test_two_members_share_commit_leave_and_resume_without_duplicates(bootstrap: str, client: Client) -> None:
    _share_and_resume(bootstrap, client, Joining())


@case("new group", slow=True)
def test_members_of_the_new_protocol_do_too(bootstrap: str, client: Client) -> None:
    _share_and_resume(bootstrap, client, Joining(protocol="consumer"))


@case("new regex", slow=True)
def test_a_member_reads_the_topics_that_its_expression_matches(bootstrap: str, client: Client) -> None:
    with GroupScenario(client, bootstrap) as group:
        regex = group.topic.replace("grid-", "gr[a-i]d.")
        member = group.join(Joining(protocol="consumer", regex=regex))
        group.poll_until(lambda: member.assignment() == ALL, "the topic that the expression matches")
        group.write_and_read()
        other = group.join(Joining(protocol="consumer", regex=regex))
        group.poll_until(group.is_shared, "two partitions each")
        group.leave(member)
        group.poll_until(lambda: other.assignment() == ALL, "the one who stays has all four")
        group.write_and_read()


def _share_and_resume(bootstrap: str, client: Client, how: Joining) -> None:
    with GroupScenario(client, bootstrap, how) as group:
        first = group.join()
        group.poll_until(lambda: first.assignment() == ALL, "the first to come has all four")
        second = group.join()
        group.poll_until(group.is_shared, "two partitions each")
        group.write_and_read()
        group.leave(second)
        group.poll_until(lambda: first.assignment() == ALL, "the one who stays has all four")
        group.write_and_read()
        group.leave(first)
        third = group.join()
        group.poll_until(lambda: third.assignment() == ALL, "the one who resumes has all four")
        group.write_and_read()


@case("cooperative", slow=True)
def test_a_cooperative_rebalance_takes_only_what_moves(bootstrap: str, client: Client) -> None:
    with GroupScenario(client, bootstrap) as group:
        first = group.join(Joining("cooperative-sticky"))
        group.poll_until(lambda: first.assignment() == ALL, "the first to come has all four")
        held: list[set[int]] = []
        second = group.join(Joining("cooperative-sticky"))

        def is_shared() -> bool:
            held.append(first.assignment())
            return group.is_shared()

        group.poll_until(is_shared, "two partitions each")
        assert set.intersection(*held) == first.assignment(), f"what stayed was taken away for a while: {held}"
        group.write_and_read()
        group.leave(second)
        group.poll_until(lambda: first.assignment() == ALL, "the one who stays has all four")


@case("static", slow=True)
def test_a_static_member_returns_to_what_it_had(bootstrap: str, client: Client) -> None:
    _leave_and_return(bootstrap, client, Joining())


@case("new static", slow=True)
def test_a_static_member_of_the_new_protocol_does_too(bootstrap: str, client: Client) -> None:
    _leave_and_return(bootstrap, client, Joining(protocol="consumer"))


def _leave_and_return(bootstrap: str, client: Client, how: Joining) -> None:
    with GroupScenario(client, bootstrap) as group:
        first = group.join(how._replace(instance="one"))
        second = group.join(how._replace(instance="two"))
        group.poll_until(group.is_shared, "two partitions each")
        group.write_and_read()
        stays, returns = first.assignment(), second.assignment()
        group.leave(second)
        again = group.join(how._replace(instance="two"))
        group.poll_until(lambda: again.assignment() != set(), "the one who returns has something")
        assert (first.assignment(), again.assignment()) == (stays, returns)
        group.write_and_read()


class GroupScenario:
    """A group of one client's members on a topic of four partitions. Every record is seen once."""

    def __init__(self, client: Client, bootstrap: str, how: Joining = Joining()) -> None:  # noqa: B008
        self.client, self.bootstrap, self.how = client, bootstrap, how
        self.topic = new_topic(bootstrap, partitions=len(ALL))
        self.group = f"group-of-{self.topic}"
        self.members: list[Member] = []
        self.seen: list[tuple[int, int]] = []
        self.written = 0

    def __enter__(self) -> "GroupScenario":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()

    def join(self, how: Joining | None = None) -> Member:
        """A new member of the group."""
        member = self.client.join(self.bootstrap, self.topic, self.group, how or self.how)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """It goes, in order."""
        self.members.remove(member)
        member.close()

    def is_shared(self) -> bool:
        """Whether two members have two partitions each."""
        first, second = (each.assignment() for each in self.members)
        return len(first) == len(second) == 2 and first | second == ALL

    def write_and_read(self) -> None:
        """Some records to each partition; all are seen, once, and committed."""
        for partition in ALL:
            values = [Message(None, b"%d" % number) for number in range(2 if self.client.name == "kcat" else 10)]
            self.client.produce(self.bootstrap, self.topic, values, Writing(partition=partition))
            self.written += len(values)
        self.poll_until(lambda: len(self.seen) >= self.written, "everything that was written")
        for member in self.members:
            member.commit()
        assert len(self.seen) == len(set(self.seen)) == self.written

    def poll_until(self, done: Callable[[], bool], what: str) -> None:
        """Poll all members in turn until something holds."""
        deadline = monotonic() + WITHIN_SECONDS
        for member in itertools.cycle(self.members):
            self.seen += [(each.partition, each.offset) for each in member.poll(0.1)]
            if done():
                return
            assignments = [sorted(each.assignment()) for each in self.members]
            assert monotonic() < deadline, f"no {what}; assigned {assignments}; seen {len(self.seen)} of {self.written}"
