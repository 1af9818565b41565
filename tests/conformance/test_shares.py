"""Real clients take records as members of share groups (KIP-932)."""

from collections.abc import Callable, Iterable

from tests.conformance.cases import case
from tests.conformance.checks import other_writer
from tests.conformance.model import SHARE, SHARE_AGAIN, Client, Message, Writing
from tests.conformance.sharing import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    SharingClient,
    begin_at_the_first_record,
)
from tests.eventually import eventually
from tests.peers.share_consumers import Taken

RECORDS = 5
RELEASED, REJECTED = (1, 3), (2,)
Choice = Callable[[Taken], str]


@case(SHARE)
def test_a_share_group_gets_each_record_and_accepts_it(bootstrap: str, topic: str, client: Client) -> None:
    group = SharedTopic(client, bootstrap, topic)
    group.write(range(RECORDS))
    assert group.take(RECORDS) == [Taken(offset, f"r{offset}", 1) for offset in range(RECORDS)]
    group.write([RECORDS])
    assert group.take(1) == [Taken(RECORDS, f"r{RECORDS}", 1)]


@case(SHARE_AGAIN)
def test_a_released_record_comes_again_and_a_rejected_one_does_not(bootstrap: str, topic: str, client: Client) -> None:
    def choice(taken: Taken) -> str:
        if taken.offset in REJECTED:
            return REJECT
        return RELEASE if taken.offset in RELEASED and taken.delivery_count == 1 else ACCEPT

    group = SharedTopic(client, bootstrap, topic)
    group.write(range(RECORDS))
    first = [Taken(offset, f"r{offset}", 1) for offset in range(RECORDS)]
    again = [Taken(offset, f"r{offset}", 2) for offset in RELEASED]
    assert group.take(RECORDS + len(RELEASED), choice) == sorted(first + again)
    group.write([RECORDS])
    assert group.take(1, choice) == [Taken(RECORDS, f"r{RECORDS}", 1)]


class SharedTopic:
    """A topic of one partition, and the members of one client that come to its share group one after the other."""

    def __init__(self, client: Client, bootstrap: str, topic: str) -> None:
        self.client, self.bootstrap, self.topic, self.group = client, bootstrap, topic, f"share-of-{topic}"
        begin_at_the_first_record(bootstrap, self.group)

    def write(self, numbers: Iterable[int]) -> None:
        """Write a record for each number."""
        records = [Message(None, b"r%d" % number) for number in numbers]
        other_writer().produce(self.bootstrap, self.topic, records, Writing())

    def take(self, count: int, choice: Choice | None = None) -> list[Taken]:
        """What a new member gets until it has `count` records, by offset. It leaves afterwards.

        Without a choice it acknowledges implicitly, by its commits.
        """
        assert isinstance(self.client, SharingClient)
        member = self.client.share(self.bootstrap, self.topic, self.group, choice is not None)
        found: list[Taken] = []
        try:
            eventually(lambda: _polled(member, found, choice) >= count, f"{count} records", state=lambda: str(found))
        finally:
            member.close()
        return sorted(found)


def _polled(member: ShareMember, found: list[Taken], choice: Choice | None) -> int:
    """How many records there are after one more poll, whose records are acknowledged."""
    polled = member.poll()
    if choice is not None:
        for each in polled:
            member.acknowledge(each, choice(each))
    if polled:
        member.commit()
    found += polled
    return len(found)
