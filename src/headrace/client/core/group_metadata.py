"""What a group keeps: the membership of a consumer, which a producer names when it commits, and committed offsets."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """The membership of a consumer, with which offsets are committed inside a transaction."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A committed offset (of the next record to read), with the text that was committed beside it."""

    offset: int
    metadata: str = ""
