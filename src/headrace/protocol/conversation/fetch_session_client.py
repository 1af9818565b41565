# cython: language_level=3, annotation_typing=False, binding=False
"""The side of a fetch session (KIP-227) that fetches, in which requests name only partitions that changed.

    no session yet, or it broke      all partitions, epoch 0, and the old session's id, which closes it
    the leader gave a session        partitions that changed or are no longer fetched; epoch 1, 2, ...
    the leader gave none (id 0)      all partitions, in every request

Followers and consumers have one for each broker. The broker's side is `broker.fetch.fetch_sessions`. Source: Kafka's
FetchSessionHandler. Compiled, since a follower asks it in every fetch; it also runs uncompiled.
"""

from headrace.errors import ErrorCode
from headrace.limits import INT32_MAX

NO_SESSION, INITIAL_EPOCH, FINAL_EPOCH = 0, 0, -1
_NO_SESSION, _INITIAL_EPOCH, _EPOCH_MAX = NO_SESSION, INITIAL_EPOCH, INT32_MAX  # C integers


class FetchSessionClient:
    """The fetch session of one fetcher with one leader."""

    __slots__ = ("epoch", "id")

    def __init__(self) -> None:
        self.id, self.epoch = _NO_SESSION, _INITIAL_EPOCH
        """The session id and the epoch of the next request."""

    @property
    def is_full(self) -> bool:
        """Whether the next request must name all partitions."""
        return self.epoch == _INITIAL_EPOCH

    @property
    def session(self) -> tuple[int, int]:
        """The session id and epoch of the next request."""
        return self.id, self.epoch

    def answered(self, error_code: int, session_id: int) -> bool:
        """Takes in a response. Whether it has data; if not, the session broke or was refused."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = _NO_SESSION
            self.epoch = _INITIAL_EPOCH
            return False
        if session_id == _NO_SESSION:
            self.id, self.epoch = _NO_SESSION, _INITIAL_EPOCH
        elif self.epoch == _INITIAL_EPOCH or session_id == self.id:
            self.id, self.epoch = session_id, 1 if self.epoch >= _EPOCH_MAX else self.epoch + 1
        else:
            self.epoch = _INITIAL_EPOCH
            return False
        return True

    def handle_error(self) -> None:
        """Ends the session after a request without a response: the leader may or may not have received it."""
        self.epoch = _INITIAL_EPOCH
