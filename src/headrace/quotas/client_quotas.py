"""The quotas of one kind for users and clients: which applies to a request, and its bucket. Pure.

    kind                  the config                 counts
    PRODUCE               producer_byte_rate         bytes of Produce requests
    FETCH                 consumer_byte_rate         bytes of records in Fetch responses
    REQUEST               request_percentage         time of the event loop, 100 is all of it
    CONTROLLER_MUTATION   controller_mutation_rate   partitions created and deleted

A quota changes while the broker runs: each change begins a new generation, and a bucket is brought up to date at its
next request, so that neither a change nor a request depends on the number of entities. Buckets that are full are
dropped when there are many, since they are equal to new ones; with `QUOTA_BUCKETS_MAX` so are those that are full
soonest. Buckets of long names are kept by a digest of the name: clients choose their ids.
"""

from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from heapq import nlargest
from typing import NamedTuple

from headrace.limits import QUOTA_BUCKETS_MAX
from headrace.quotas.entities import Entity, Sharers, candidates
from headrace.quotas.token_bucket import TokenBucket

BUCKETS_BEFORE_SWEEP = 10_000
"""Buckets above which full ones are looked for, again whenever the number has doubled."""

NAME_CHARS_MAX = 250
"""Characters of a name above which its digest takes its place as a key."""


class QuotaKind(Enum):
    """A kind of quota; its value is the config that sets it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


class Throttled:
    """How often, and for how long, clients were told to wait. Grows in place."""

    __slots__ = ("count", "total_ms")

    def __init__(self) -> None:
        self.count = self.total_ms = 0

    def add(self, wait_ms: int) -> None:
        """Counts one throttled response."""
        self.count += 1
        self.total_ms += wait_ms


class _Resolved(NamedTuple):
    """What applied to a user and client in a generation."""

    generation: int
    bucket: TokenBucket | None


class ClientQuotas:
    """The quotas of one kind."""

    def __init__(self, kind: QuotaKind, burst_s: Callable[[], float], now: Callable[[], float]) -> None:
        """`burst_s`: what a bucket holds, in seconds of its rate. `now`: the clock, in seconds."""
        self.kind = kind
        self.throttled = Throttled()
        self._burst_s, self._now = burst_s, now
        self._rates: dict[Entity, float] = {}
        self._buckets: dict[Sharers, TokenBucket] = {}
        self._resolved: dict[tuple[str, str], _Resolved] = {}
        self._generation = 0
        self._sweep_at = BUCKETS_BEFORE_SWEEP

    @property
    def is_active(self) -> bool:
        """Whether any quota of this kind is set."""
        return bool(self._rates)

    @property
    def rates(self) -> dict[Entity, float]:
        """The quotas that are set, by entity."""
        return self._rates

    def __len__(self) -> int:
        """The number of buckets."""
        return len(self._buckets)

    def set_rate(self, entity: Entity, rate: float | None) -> None:
        """Sets the quota of an entity, above 0; None removes it."""
        if rate is None:
            self._rates.pop(entity, None)
        else:
            self._rates[entity] = rate
        self.changed()

    def changed(self) -> None:
        """Applies another burst, or other rates, from the next request on."""
        self._generation += 1

    def bucket(self, user: str, client: str) -> TokenBucket | None:
        """The bucket of a request's user and client; None if no quota applies to them."""
        key = _short(user), _short(client)
        found = self._resolved.get(key)
        if found is not None and found.generation == self._generation:
            return found.bucket
        return self._resolve(user, client, key)

    def _resolve(self, user: str, client: str, key: tuple[str, str]) -> TokenBucket | None:
        bucket = None
        for entity, sharers in candidates(user, client):
            rate = self._rates.get(entity)
            if rate is not None:
                bucket = self._bucket(Sharers(_short(sharers.user), _short(sharers.client)), rate)
                break
        if len(self._resolved) > self._sweep_at:
            self._resolved.clear()
        self._resolved[key] = _Resolved(self._generation, bucket)
        return bucket

    def _bucket(self, sharers: Sharers, rate: float) -> TokenBucket:
        now, burst = self._now(), rate * self._burst_s()
        bucket = self._buckets.get(sharers)
        if bucket is None:
            self._sweep(now)
            bucket = self._buckets[sharers] = TokenBucket(rate, burst, now)
        elif (bucket.rate, bucket.burst) != (rate, burst):
            bucket.change(rate, burst, now)
        return bucket

    def _sweep(self, now: float) -> None:
        if len(self._buckets) < self._sweep_at:
            return
        self._buckets = {sharers: each for sharers, each in self._buckets.items() if not each.is_full(now)}
        kept = QUOTA_BUCKETS_MAX // 2
        if len(self._buckets) > kept:
            self._buckets = dict(nlargest(kept, self._buckets.items(), key=_full_in_s))
        self._resolved.clear()
        self._sweep_at = max(BUCKETS_BEFORE_SWEEP, 2 * len(self._buckets))


def _short(name: str) -> str:
    if len(name) <= NAME_CHARS_MAX:
        return name
    return "digest " + blake2b(name.encode(errors="surrogatepass"), digest_size=32).hexdigest()


def _full_in_s(item: tuple[Sharers, TokenBucket]) -> float:
    bucket = item[1]
    return (bucket.burst - bucket.tokens) / bucket.rate
