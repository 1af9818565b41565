"""Few records for a follower, read into its response.

A range of a file takes three system calls of a response: what is before it, the range, and what is behind it; and the
follower may wake up for each part. As bytes it is one, and the read. Only what the page cache has is read: the event
loop does not wait for the disk.
"""

import os

from headrace.log.files import plain_fd_of
from headrace.log.segment_list import SegmentRange

READ_AT_ONCE_BYTES_MAX = 64 << 10
"""Of one response. To copy more takes longer than the system calls."""

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def read_if_cached(found: SegmentRange) -> bytes | None:
    """The bytes of a range of a file on the disk; None unless the page cache is known to have all of them."""
    fd = plain_fd_of(found.file)
    if fd < 0 or not _RWF_NOWAIT:
        return None
    buffer = bytearray(found.size)
    try:
        count = os.preadv(fd, [buffer], found.position, _RWF_NOWAIT)
    except OSError:  # it is on the disk, the file system cannot tell, or an error that the sending reports
        return None
    return bytes(buffer) if count == found.size else None
