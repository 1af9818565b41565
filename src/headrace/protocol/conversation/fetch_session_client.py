"""The side of a fetch session (KIP-227) that fetches, in which requests name only partitions that changed.

    no session yet, or it broke      all partitions, epoch 0, and the old session's id, which closes it
    the leader gave a session        partitions that changed or are no longer fetched; epoch 1, 2, ...
    the leader gave none (id 0)      all partitions, in every request

Followers and consumers have one for each broker. The broker's side is `broker.fetch.fetch_sessions`. Source: Kafka's
FetchSessionHandler.
"""

from headrace.errors import ErrorCode
from headrace.limits import INT32_MAX

NO_SESSION, INITIAL_EPOCH, FINAL_EPOCH = 0, 0, -1


class FetchSessionClient:
    """The fetch session of one fetcher with one leader."""

    __slots__ = ("_epoch", "_id")

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the next request must name all partitions."""
        return self._epoch == INITIAL_EPOCH

    @property
    def session(self) -> tuple[int, int]:
        """The session id and epoch of the next request."""
        return self._id, self._epoch

    def answered(self, error_code: int, session_id: int) -> bool:
        """Takes in a response. Whether it has data; if not, the session broke or was refused."""
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

    def handle_error(self) -> None:
        """Ends the session after a request without a response: the leader may or may not have received it."""
        self._epoch = INITIAL_EPOCH
