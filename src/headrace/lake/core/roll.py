"""Where a row group and a file end: a pure function of what is buffered and written.

A row group is the least that a reader skips, so its rows should be near each other; a file is the least that a table
adds or drops. A round with little data makes one file of one group, whatever the number of partitions.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

_GROUP_SHARE_MIN: Final = 4
"""A group of less than a quarter goes on with the next partition: many tiny groups cost more than they skip."""


class Sizes(NamedTuple):
    """The target sizes of groups and files. A batch is never divided, so both may be exceeded by one batch."""

    group_rows: int = 131_072
    group_bytes: int = 64 << 20
    """Of the columns in memory. The writer holds one group, so this bounds its memory."""
    file_bytes: int = 128 << 20
    """On the disk."""


class Roll(Enum):
    """What ends after a batch."""

    NOTHING = auto()
    GROUP = auto()
    FILE = auto()


def roll(sizes: Sizes, rows: int, size: int, written: int, *, partition_ends: bool) -> Roll:
    """What ends with `rows` rows of `size` bytes buffered, and `written` bytes in the file already.

    The bytes of the buffered group are not compressed, so they are no part of the file's size before they are written:
    ask again after a group, whether its file ends, too.
    """
    if written >= sizes.file_bytes:
        return Roll.FILE
    if rows >= sizes.group_rows or size >= sizes.group_bytes:
        return Roll.GROUP
    if partition_ends and rows * _GROUP_SHARE_MIN >= sizes.group_rows:
        return Roll.GROUP
    return Roll.NOTHING
