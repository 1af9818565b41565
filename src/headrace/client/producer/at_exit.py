"""Sends what is left when a process ends without closing its producers, and says what was lost.

The sender's thread does not keep a process alive, so records that were not yet sent would vanish without a word. At the
end of the process each sender that was not stopped gets a share of `EXIT_FLUSH_MS`. What is not acknowledged by then,
or was refused, is counted in one line of the log. Processes that end by `os._exit` or a signal skip this, as they skip
everything; the workers of multiprocessing do, too.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Sequence
from typing import Protocol

from headrace.client.core.timing import Deadline
from headrace.client.producer.delivery import Batch
from headrace.client.producer.lost_records import LOST

EXIT_FLUSH_MS = 5_000

_log = logging.getLogger(__name__)


class Unstopped(Protocol):
    """What a sender does at the end of the process."""

    def forked(self) -> None:
        """Nothing of it can be sent in this process."""

    def flush_at_exit(self, deadline: Deadline) -> Sequence[Batch]:
        """Sends what waits until the deadline; the batches that waited."""


_unstopped: list[Unstopped] = []
"""Strong references: a thread sends on when nobody holds its producer any more."""


def remember(sender: Unstopped) -> None:
    """The sender was started."""
    _unstopped.append(sender)


def forget(sender: Unstopped) -> None:
    """The sender was stopped, or this process is a fork of its own."""
    if sender in _unstopped:
        _unstopped.remove(sender)


def flush_all(timeout_ms: float = EXIT_FLUSH_MS) -> int:
    """Flush every sender that was not stopped, within one time-out for all. Returns the number of lost records."""
    LOST.tell(now=True)
    deadline = Deadline.after_ms(timeout_ms)
    waited = [batch for sender in list(_unstopped) for batch in sender.flush_at_exit(deadline)]
    lost = [batch for batch in waited if not batch.is_done or batch.error is not None]
    count = sum(batch.count for batch in lost)
    if count:
        why = next(
            (str(batch.error) for batch in lost if batch.error is not None), "the brokers did not answer in time"
        )
        _log.warning(
            "%d records were lost: the process ended before a producer was closed (%s). Call close(), or use `with`",
            count,
            why,
        )
    return count


atexit.register(flush_all)
