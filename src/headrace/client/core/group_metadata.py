"""The membership of a consumer in its group, which a producer names when it commits the group's offsets."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """The membership of a consumer, with which offsets are committed inside a transaction."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
