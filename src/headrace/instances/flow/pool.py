"""The master's side of one direction of one instance: what each broker may be using, and what it is to get. Pure.

Each broker of the instance is a member. Of each the pool knows an upper bound of the rate in force there (`leases` says
why it is one), and the sum of the bounds. A grant raises a member only by what the sum leaves of the limit:

    grant = min(target, max(held, limit - bounds of the others))

As targets sum to the limit, a member that holds no more than its target is never cut: those that hold more are.

An instance of which no broker uses 80 % of its F costs nothing here: the pool is idle, and F stands everywhere.
"""

from collections.abc import Mapping

from headrace.instances.flow.allotment import STANDS_BELOW, Allocator, Branch, Share, blocked, fair_rates
from headrace.instances.flow.leases import ACTIVE_FROM, BrokerStanding, Standing
from headrace.instances.flow.max_min import demand

NEVER = float("-inf")

MOSTLY = 0.5
"""The share of an interval that was throttled above which clients want any rate there is."""

AS_HELD = -1.0
"""A target: what the broker holds already, whatever that is. For a master that takes over, and does not know all
yet."""


class Timing:
    """What follows from the interval."""

    __slots__ = ("fallen_s", "interval_s", "lease_s", "lookahead_s", "rises_s")

    def __init__(self, interval_s: float, lease_intervals: int, fall_intervals: int) -> None:
        self.interval_s = interval_s
        self.lease_s = interval_s * lease_intervals
        self.fallen_s = interval_s * (lease_intervals + fall_intervals)
        """After so long without an answer every rate is F."""
        self.rises_s = 2 * self.lease_s + interval_s
        """After so long without an answer a rate may begin to rise."""
        self.lookahead_s = 2 * interval_s
        """Bounds are computed this far ahead, as they are not looked at in between."""


class PoolBroker:
    """A broker as the master hears it. Times by the master's clock."""

    __slots__ = (
        "acknowledged_at", "answered_at", "answers", "broker_id", "epoch", "heard_at", "is_ours", "number", "to_tell",
    )  # fmt: skip

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = self.number = -1
        self.heard_at = self.answered_at = NEVER
        self.is_ours = False
        """Whether it has accepted an answer of this master. Before, its reports may be older than its rates: it may
        have accepted an answer of a former master after it sent them."""
        self.acknowledged_at = NEVER
        """When the last answer was sent that the broker is known to have accepted."""
        self.answers: dict[int, float] = {}
        """When each report was answered that may yet be acknowledged."""
        self.to_tell: dict[str, None] = {}
        """Instances that are not idle: an answer must list them, whether or not the report did."""


class PoolMember:
    """One broker's part in a pool. Rates in bytes/s."""

    __slots__ = (
        "bound", "broker", "fair", "fair_least", "fair_most", "flowed", "granted", "granted_at", "leased", "partitions",
        "rate", "report", "serves", "settles_at", "target", "throttled", "wanted",
    )  # fmt: skip

    def __init__(self, broker: PoolBroker) -> None:
        self.broker = broker
        self.partitions = 0
        self.fair = self.fair_least = self.fair_most = 0.0
        self.settles_at = NEVER
        """Until then the broker may take for its F what it was before, down to `fair_least` and up to `fair_most`."""
        self.report = -2
        """The number of the last report that listed the instance; what follows is from it."""
        self.flowed = self.throttled = self.wanted = self.rate = 0.0
        self.leased = False
        self.granted, self.granted_at = 0.0, -1
        """What was granted in the answer to which report."""
        self.target = self.bound = 0.0
        self.serves = True

    def set_fair(self, fair: float, now: float, settles_at: float) -> None:
        """Sets F. Several changes may be on their way to the broker at once."""
        known = self.known_fair(now)
        self.fair, self.settles_at = fair, settles_at
        self.fair_least, self.fair_most = min(fair, *known), max(fair, *known)

    def known_fair(self, now: float) -> tuple[float, float]:
        """The least and the most that the broker may take for its F."""
        return (self.fair, self.fair) if now >= self.settles_at else (self.fair_least, self.fair_most)

    def is_listed(self) -> bool:
        """Whether the last report of the broker listed the instance."""
        return self.report == self.broker.number

    def held(self, now: float) -> float:
        """The rate in force when the broker sent its last report, or less, if the broker may not know its F yet."""
        if self.is_listed():
            return self.rate
        return self.known_fair(now)[0]

    def used(self) -> tuple[float, float]:
        """What flowed and what was wanted, in bytes/s; of an unlisted one the most that it may be."""
        if self.is_listed():
            return self.flowed, self.wanted
        return self.fair * ACTIVE_FROM, self.fair * ACTIVE_FROM


class Pool:
    """One direction of one instance."""

    __slots__ = (
        "_allocate", "_allot_at", "_bounds", "_has_partitions", "_hot", "_timing", "blocked", "branch", "idle", "limit",
        "members", "since", "started_at",
    )  # fmt: skip

    def __init__(self, limit: float, allocate: Allocator, timing: Timing, now: float, started_at: float) -> None:
        """`started_at`: when this master began, and knew no lease."""
        self.limit = limit
        self.members: dict[int, PoolMember] = {}
        self.blocked = False
        self.branch = Branch.FAIR
        self.since = now
        self.idle = True
        """F stands, nobody holds a lease, and nobody has begun to use more than 80 % of F."""
        self.started_at = started_at
        self._allocate, self._timing = allocate, timing
        self._allot_at = NEVER
        self._bounds = 0.0
        self._hot = False
        self._has_partitions = False

    def set_members(self, limit: float, brokers: Mapping[int, tuple[PoolBroker, int]], now: float) -> None:
        """Sets the limit, and the brokers that serve the instance with the partitions that each leads. Those that no
        longer do stay until their bound is 0."""
        self.limit = limit
        is_new = not self.members
        for broker_id, (broker, _) in brokers.items():
            if broker_id not in self.members:
                self.members[broker_id] = PoolMember(broker)
        fair = fair_rates(limit, [partitions for _, partitions in brokers.values()]) if brokers else []
        shares = dict(zip(brokers, fair, strict=True))
        self._has_partitions = any(partitions for _, partitions in brokers.values())
        if not self._has_partitions:
            shares = dict.fromkeys(shares, 0.0)
        for broker_id, member in self.members.items():
            member.serves = broker_id in brokers
            member.partitions = brokers[broker_id][1] if member.serves else 0
            new = shares.get(broker_id, 0.0)
            if new != member.fair:
                member.set_fair(new, now, NEVER if is_new else now + self._timing.lookahead_s)
                # A target of F stands without being computed again.
                member.target = new if self.idle else member.target
        self._allot_at = NEVER

    def observe(self, member: PoolMember, flowed: float, throttled: float, rate: float, *, leased: bool) -> None:
        """Takes what a report says of this direction; `throttled` as a share of the interval."""
        # While a debt is paid little flows, and says little. Such a broker gets what the others leave.
        wanted = max(flowed, self.limit) if throttled > MOSTLY else demand(flowed, throttled, member.fair)
        member.wanted = wanted
        member.report = member.broker.number
        member.flowed, member.throttled, member.rate, member.leased = flowed, throttled, rate, leased
        # Without partitions there is nothing to share out, whatever clients ask for.
        if leased or (self._has_partitions and (flowed >= STANDS_BELOW * member.fair > 0 or throttled > 0)):
            self._hot = True
            self.idle = False

    def bound(self, member: PoolMember, now: float) -> float:
        """The most that the broker may use from now on until the bounds are computed again."""
        broker, timing = member.broker, self._timing
        if broker.heard_at == NEVER:
            # Only brokers that this master never heard: what they hold of a former master ends in time.
            return self.limit if now < self._takeover_ends() else member.known_fair(now)[1]
        if now >= max(broker.answered_at, broker.heard_at) + timing.fallen_s:
            return member.known_fair(now)[1]
        most = member.held(now) if member.is_listed() else member.known_fair(now)[1]
        if member.granted_at == broker.number:
            most = max(most, member.granted)
        elif not member.leased:
            most = max(most, member.known_fair(now)[1])  # Answered without a lease.
        if self._is_lost(member, now):
            most = max(most, member.known_fair(now)[1])
        return most

    def _is_lost(self, member: PoolMember, now: float) -> bool:
        """Whether the broker may be on its way to F before it hears of another lease."""
        return now + self._timing.lookahead_s >= member.broker.acknowledged_at + self._timing.rises_s

    def allot(self, now: float) -> None:
        """Computes targets and bounds, at most once in an interval."""
        if now < self._allot_at:
            return
        # A little early, so that the same broker's reports do not slip into the next interval by jitter.
        self._allot_at = now + 0.9 * self._timing.interval_s
        bounds = unreachable = 0.0
        fair_everywhere, reached, gone, unheard = True, [], [], False
        for member in self.members.values():
            bound = member.bound = self.bound(member, now)
            bounds += bound
            if bound != member.fair or now < member.settles_at:
                fair_everywhere = False
            unheard = unheard or not member.broker.is_ours
            if member.serves and not self._is_lost(member, now):
                reached.append(member)
                continue
            # What brokers may use that cannot be told otherwise is not there to be allotted.
            unreachable += bound
            member.target = bound if member.serves else 0.0
            if not member.serves and bound <= 0:
                gone.append(member.broker.broker_id)
        for broker_id in gone:
            del self.members[broker_id]
        if unheard and now < self._takeover_ends():
            for member in self.members.values():
                member.target = AS_HELD
        else:
            self._aim(reached, max(self.limit - unreachable, 0.0), now)
        self._bounds = bounds
        self.idle = fair_everywhere and self.branch is Branch.FAIR and not self._hot
        self._hot = False

    def _takeover_ends(self) -> float:
        """From when on no lease of a former master is in force, also on brokers that this one never heard."""
        return self.started_at + self._timing.fallen_s + self._timing.interval_s

    def _aim(self, reached: list[PoolMember], limit: float, now: float) -> None:
        """Sets the targets of the brokers that can be reached."""
        shares = [Share(member.partitions, *member.used()) for member in reached]
        if self.blocked:
            rates, branch = blocked(len(reached))
        elif not self._has_partitions:
            rates, branch = [0.0] * len(reached), Branch.FAIR  # as each broker has it by the metadata
        else:
            rates, branch = self._allocate(limit, shares)
        for member, rate in zip(reached, rates, strict=True):
            # Without any partition F is 0: the allocators share out in equal parts. The factor is for rounding.
            member.target = min(rate * (1 + 1e-9), member.fair) if branch is Branch.FAIR else rate
        if branch is not self.branch:
            self.branch, self.since = branch, now

    def grant(self, member: PoolMember, now: float) -> float:
        """What the answer to a broker's report gives it, in bytes/s. Call `allot` before."""
        others = self._bounds - member.bound
        held = member.held(now)
        granted = held if member.target == AS_HELD else min(member.target, max(held, self.limit - others))
        member.granted, member.granted_at = granted, member.broker.number
        member.bound = self.bound(member, now)
        self._bounds = others + member.bound
        return granted

    def stands(self, member: PoolMember, granted: float, now: float) -> bool:
        """Whether the broker needs no lease for what it was granted, as it is F, and the broker knows it. One that does
        not serve the instance any more may have missed the metadata that say so, as one without a session does."""
        knows_fair = member.serves and now >= member.settles_at
        return self.branch is Branch.FAIR and not self.blocked and granted == member.fair and knows_fair

    def standing(self, now: float) -> Standing:
        """What `headrace instance why` tells of it."""
        brokers = []
        for broker_id, member in sorted(self.members.items()):
            flowed, wanted, throttled = 0.0, 0.0, 0.0
            if member.is_listed():
                flowed, wanted, throttled = member.flowed, member.wanted, member.throttled
            brokers.append(
                BrokerStanding(
                    broker_id,
                    member.partitions,
                    member.fair,
                    member.fair if self.idle else member.target if member.target != AS_HELD else member.held(now),
                    self.bound(member, now),
                    flowed,
                    wanted,
                    throttled,
                    now - member.broker.heard_at,
                )
            )
        return Standing(self.limit, self.branch.value, self.since, brokers)
