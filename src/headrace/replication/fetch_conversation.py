"""A follower's half of a fetch session (KIP-227): what has to be said, so that the rest need not be said again.

    no session yet, or it broke      everything, epoch 0, and the old session's id so that it ends
    the leader gave a session        what changed, and what is not wanted any more; epoch 1, 2, ...
    the leader gave none (id 0)      everything, each time

The leader's half is `broker.fetch_sessions`. Source: Kafka's FetchSessionHandler.
"""

from headrace.errors import ErrorCode
from headrace.limits import INT32_MAX

NO_SESSION, INITIAL_EPOCH = 0, 0


class FetchConversation:
    """One fetcher's session with one leader."""

    __slots__ = ("_epoch", "_id")

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name everything."""
        return self._epoch == INITIAL_EPOCH

    @property
    def session(self) -> tuple[int, int]:
        """Id and epoch of the next request."""
        return self._id, self._epoch

    def answered(self, error_code: int, session_id: int) -> bool:
        """An answer has come; whether it holds anything. The next request follows from it."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return False
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif self.is_full or session_id == self._id:
            self._id, self._epoch = session_id, 1 if self._epoch >= INT32_MAX else self._epoch + 1
        else:
            self._epoch = INITIAL_EPOCH
            return False
        return True

    def broke(self) -> None:
        """There was no answer: nobody knows what the leader has heard. The session, if it is there yet, is to end."""
        self._epoch = INITIAL_EPOCH
