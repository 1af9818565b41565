"""The quota of one request that creates or deletes partitions (KIP-599). Pure.

    strict       the request's version has THROTTLING_QUOTA_EXCEEDED: a change is refused while the bucket is overdrawn,
                 and allowed whole otherwise, however many partitions it has
    permissive   older versions: every change is allowed and counted, and the client waits afterwards

Source: Kafka's `StrictControllerMutationQuota`, `PermissiveControllerMutationQuota`.
"""

from headrace.quotas.token_bucket import TokenBucket


class MutationQuota:
    """The changes of one request."""

    __slots__ = ("_bucket", "_is_strict", "is_exceeded")

    def __init__(self, bucket: TokenBucket, *, is_strict: bool) -> None:
        self._bucket, self._is_strict = bucket, is_strict
        self.is_exceeded = False
        """Whether the client has to wait: a change was refused, or allowed beyond the quota."""

    def allows(self, partitions: int, now: float) -> bool:
        """Whether a change of so many partitions may be made; counts it if so."""
        if self._is_strict and self._bucket.wait_s(now) > 0:
            self.is_exceeded = True
            return False
        overdrawn = self._bucket.spend(partitions, now) > 0
        if overdrawn and not self._is_strict:
            self.is_exceeded = True
        return True

    def wait_s(self, now: float) -> float:
        """How long the client has to wait now, in seconds."""
        return self._bucket.wait_s(now) if self.is_exceeded else 0.0
