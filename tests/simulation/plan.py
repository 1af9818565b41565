"""What one run is made of, drawn from its seed: how many replicas, which faults, how long, and what is then promised.

process crash   the page cache survives; whatever crashes, however often, what was acknowledged with acks=all stays
power loss      un-fsynced bytes go. A power loss hits a broker only while another live broker is in the ISR of each
                of its partitions (a failure at a time, as f = replicas - 1 promises); what was acknowledged with
                acks=all stays, as long as min.insync.replicas is 2 or more
blackout        the same for all brokers at once; what was acknowledged in a reliable topic stays
"""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from headrace.config.message_format import DEFAULT, NEWEST_MAGIC, magic_of
from tests.simulation.history import Promises
from tests.simulation.network import CALM, Weather

CRASH, POWER, PAUSE, CUT, CUT_ONE_WAY, ISOLATE, SESSION, STOP, SKEW, SLOW_DISK, ELECT, REASSIGN, REFUSE = (
    "crash", "power", "pause", "cut", "cut one way", "isolate", "session", "stop", "skew", "slow disk", "elect",
    "reassign", "refuse",
)  # fmt: skip
ROLL = "rolling restart"
CONTROLLER = "controller"
"""The controller dies between a decision and its write, or between the write and its answer, and around that a member
of the ISR loses its power and comes back."""

FULL_DISK = "full disk"
"""A disk has no room for a while. One that is plain has room for ever."""

BLACKOUT = "blackout"
"""All brokers lose their power at once. Only what is flushed everywhere before it is acknowledged survives this."""


class Plan(NamedTuple):
    """One run's shape."""

    replicas: int = 3
    spare_brokers: int = 0
    min_insync_replicas: int = 2
    partitions: int = 2
    duration_ms: int = 12_000
    faults: tuple[str, ...] = ()
    failures_max: int = 1
    """Brokers that are down at one time."""

    gap_ms: int = 1500
    weather: Weather = CALM
    session_timeout_ms: int = 3000
    producers: tuple[tuple[int, bool], ...] = ((-1, True), (-1, False), (1, False))
    pipelines: int = 0
    """Producers besides these that have several batches under way."""

    damage: float = 0.0
    """How many of a pipeline's batches have a wrong byte when they arrive."""

    readers: int = 2
    reads_followers: bool = False
    """Whether one of the readers tells its rack, and is sent to the replica in it (KIP-392)."""

    checks_positions: bool = False
    """Whether the readers ask in each new leader epoch whether their positions still exist (KIP-320)."""

    plain_disks: frozenset[int] = frozenset()
    """The brokers whose disk is plain: to them, produces, fetches and followers take the compiled ways."""

    has_group: bool = False
    writers: tuple[int, ...] = ()
    """The transaction.version of each transactional writer."""

    processors: tuple[int, ...] = ()
    """The same of each processor: it consumes, transforms and produces."""

    members: int = 0
    """Members of a consumer group of KIP-848, or of a streams group of KIP-1071."""

    members_are_threads: bool = False
    """Whether the members are threads of Kafka Streams, in a streams group."""

    sharers: int = 0
    """Members of a share group (KIP-932)."""

    instances: bool = False
    """Whether there are instances (`tenancy`)."""

    instance_capacity: int = 0
    """What one of them may store, for each of its replicas; 0 for any amount."""

    deletes_records: bool = False
    """Whether the oldest records are deleted, again and again."""

    side_topic: bool = False
    """Whether there is a second topic, which is deleted and made anew (`side_topic`)."""

    committed_readers: int = 0
    transaction_timeout_ms: int = 3000
    transaction_partitions: int = 2
    """Partitions of `__transaction_state`."""

    settings: Mapping[str, str] = {}
    topic_settings: Mapping[str, str] = {}
    promises: Promises = Promises()

    @property
    def has_transactions(self) -> bool:
        """Whether any client uses transactions."""
        return bool(self.writers or self.processors)

    @property
    def has_epochs(self) -> bool:
        """Whether its topic stores batches: they carry a leader epoch, and the sequences of idempotent producers."""
        return magic_of(self.topic_settings.get("message.format.version", DEFAULT)) == NEWEST_MAGIC

    def with_format(self, version: str) -> "Plan":
        """The same with another message format; messages of the older ones cannot be idempotent."""
        changed = self._replace(topic_settings={**self.topic_settings, "message.format.version": version})
        if changed.has_epochs:
            return changed
        return changed._replace(producers=tuple((acks, False) for acks, _ in self.producers), pipelines=0)

    def __str__(self) -> str:
        faults = ", ".join(self.faults) or "no faults"
        spare = f" of {self.replicas + self.spare_brokers} brokers" if self.spare_brokers else ""
        return (
            f"{self.replicas} replicas{spare}, min.insync.replicas={self.min_insync_replicas}, "
            f"{self.partitions} partitions, {faults}, up to {self.failures_max} at a time, "
            f"for {self.duration_ms / 1000:g} s{'' if self.has_epochs else f', {self.topic_settings}'}"
            f"{f', plain disks at {sorted(self.plain_disks)}' if self.plain_disks else ''}"
            f"{self._transactions()}{self._members()}{self._sharers()}{self._instances()}{self._operator()}"
        )

    def _instances(self) -> str:
        return "; instances" if self.instances else ""

    def _operator(self) -> str:
        deletions = "; records are deleted" if self.deletes_records else ""
        return f"{deletions}{'; a topic is made anew' if self.side_topic else ''}"

    def _members(self) -> str:
        kind = "streams " if self.members_are_threads else ""
        return f"; {self.members} members of a {kind}group" if self.members else ""

    def _sharers(self) -> str:
        return f"; {self.sharers} members of a share group" if self.sharers else ""

    def _transactions(self) -> str:
        if not self.has_transactions:
            return ""
        writers = f"writers of transaction.version {[*self.writers]}, processors of {[*self.processors]}"
        return f"; {writers}{f', {dict(self.settings)}' if self.settings else ''}"


SOFT = (PAUSE, CUT, CUT_ONE_WAY, ISOLATE, SESSION, STOP, SKEW, SLOW_DISK, ELECT, REASSIGN, REFUSE)
FORMATS = ("0.9.0", "0.10.2", "3.0", "3.0", "3.0", "3.0")
HARMLESS = frozenset({SKEW, SLOW_DISK})
"""Faults that leave leaders where they are."""

GENTLE = (ROLL, STOP, ELECT)
"""What an operator does to a cluster that must go on taking writes."""

PAUSE_MAX_MS = 1000
HEARTBEAT_MS, MEMBER_SESSION_TIMEOUT_MS = 300, 3000
MEMBER_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.streams.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.streams.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.streams.min.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.streams.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.streams.initial.rebalance.delay.ms": "0",
}
SHARE_STATE_PARTITIONS = 2
SHARE_LOCK_MS, SHARE_DELIVERIES_MAX = 1500, 5
SHARE_SETTINGS = {
    "group.share.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.share.session.timeout.ms": str(MEMBER_SESSION_TIMEOUT_MS),
    "group.share.assignment.interval.ms": "0",
    "group.share.initialize.retry.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": str(SHARE_LOCK_MS),
    "group.share.record.lock.duration.ms": str(SHARE_LOCK_MS),
    "group.share.delivery.count.limit": str(SHARE_DELIVERIES_MAX),
}
ID_EXPIRATION_MS = 4000
"""Where unused transactional ids expire within a run."""

LAG_MAX_MS = 10_000
"""Where pauses are bounded, far longer than a pause may last: else the end of the lag would hide what causes one."""


def draw(seed: int | str) -> Plan:
    """The plan of a seed."""
    chance = Random(f"{seed}/plan")
    replicas = chance.choice((2, 3, 3))
    hard = chance.choice(((CRASH,), (CRASH,), (POWER,), (CRASH, POWER), ()))
    soft = tuple(sorted(chance.sample(SOFT, chance.randrange(1, 4))))
    if chance.random() < 0.04:
        hard, soft = (), tuple(sorted(HARMLESS))
    has_power_loss = POWER in hard
    min_insync = chance.choice((1, 2)) if not has_power_loss else 2
    is_rough = chance.random() < 0.6
    segment_bytes = chance.choice(("1048576", "600"))
    plan = Plan(
        replicas=replicas,
        min_insync_replicas=min_insync,
        partitions=chance.choice((1, 2, 3)),
        duration_ms=chance.choice((8_000, 12_000)),
        faults=hard + soft,
        failures_max=chance.choice((1, replicas - 1) if has_power_loss else (1, replicas - 1, replicas)),
        gap_ms=chance.choice((500, 1200, 2500)),
        weather=Weather() if is_rough else CALM,
        has_group=chance.random() < 0.35,
        topic_settings={"segment.bytes": segment_bytes},
        spare_brokers=1 if REASSIGN in soft and chance.random() < 0.6 else 0,
        reads_followers=chance.random() < 0.4,
        pipelines=int(chance.random() < 0.5),
        promises=Promises(acks_one_kept=set(hard + soft) <= HARMLESS),
    )
    plan = plan.with_format(chance.choice(FORMATS))
    plan = plan._replace(damage=chance.choice((0.0, 0.0, 0.05)))
    plan = _with_transactions(_with_more(plan, Random(f"{seed}/plan/more")), Random(f"{seed}/plan/transactions"))
    plan = _with_members(plan, Random(f"{seed}/plan/members"))
    plan = _with_sharers(plan, Random(f"{seed}/plan/sharers"))
    plan = _of_a_reliable_topic(plan, Random(f"{seed}/plan/reliable"))
    plan = _with_instances(plan, Random(f"{seed}/plan/instances"))
    plan = _with_plain_disks(plan, Random(f"{seed}/plan/disks"))
    plan = _with_deletions(plan, Random(f"{seed}/plan/deletions"))
    plan = _with_full_disks(plan, Random(f"{seed}/plan/full disks"))
    if not plan.instances:
        plan = plan._replace(side_topic=Random(f"{seed}/plan/side topic").random() < 1 / 8)
    return plan._replace(checks_positions=plan.has_epochs and Random(f"{seed}/plan/positions").random() < 0.5)


def _with_plain_disks(plan: Plan, chance: Random) -> Plan:
    """Half of the plans with plain disks, at some brokers or all."""
    share = chance.choice((0.0, 0.0, 0.5, 1.0))
    brokers = range(1, plan.replicas + plan.spare_brokers + 1)
    return plan._replace(plain_disks=frozenset(each for each in brokers if chance.random() < share))


def _with_deletions(plan: Plan, chance: Random) -> Plan:
    """A fourth of the plans without members of groups, transactions and instances, with deletions of records."""
    is_plain = not (plan.members or plan.sharers or plan.has_transactions or plan.instances)
    return with_deletions(plan, chance.choice((0, 3_000))) if is_plain and chance.random() < 1 / 4 else plan


def with_deletions(plan: Plan, retention_bytes: int = 0) -> Plan:
    """The plan with deletions of records on request, and by size if a number of bytes is to stay."""
    plan = plan._replace(deletes_records=True)
    if not retention_bytes:
        return plan
    return plan._replace(
        topic_settings={**plan.topic_settings, "segment.bytes": "600", "retention.bytes": str(retention_bytes)},
        settings={**plan.settings, "log.retention.check.interval.ms": "400"},
    )


def _with_full_disks(plan: Plan, chance: Random) -> Plan:
    """An eighth of the plans in which writes may stand still, with disks that are full for a while."""
    if plan.promises.pause_max_ms or chance.random() >= 1 / 8:
        return plan
    return plan._replace(faults=(*plan.faults, FULL_DISK))


def _with_instances(plan: Plan, chance: Random) -> Plan:
    """A fourth of the plans without members of groups, transactions and blackouts, with instances."""
    is_plain = not (plan.members or plan.sharers or plan.has_transactions or plan.damage)
    if not is_plain or not plan.has_epochs or BLACKOUT in plan.faults or chance.random() >= 1 / 4:
        return plan
    return with_instances(plan._replace(instance_capacity=chance.choice((0, 4_000, 10_000))))


def with_instances(plan: Plan) -> Plan:
    """The plan with instances, and longer: leases end, and begin again, in seconds."""
    return plan._replace(
        instances=True,
        producers=plan.producers[:1],
        pipelines=0,
        readers=1,
        duration_ms=max(plan.duration_ms, 16_000),
        gap_ms=max(plan.gap_ms, 1200),
        settings={
            **plan.settings,
            "min.insync.replicas": str(plan.min_insync_replicas),
            "log.retention.check.interval.ms": "1000",
        },
    )


def _of_a_reliable_topic(plan: Plan, chance: Random) -> Plan:
    """A twelfth of the plans without members of groups and transactions, with a reliable topic and blackouts."""
    is_plain = not (plan.members or plan.sharers or plan.has_transactions or plan.damage) and plan.has_epochs
    return reliable(plan) if is_plain and chance.random() < 1 / 12 else plan


def reliable(plan: Plan) -> Plan:
    """The plan with a reliable topic, and blackouts besides its faults. Only idempotent producers may write to it;
    acks=1 is kept as acks=all is. Commits of a group are not, which are in another topic."""
    return plan._replace(
        faults=(*(each for each in plan.faults if each not in (ROLL, CONTROLLER)), BLACKOUT),
        producers=((-1, True), (1, True)),
        has_group=False,
        topic_settings={**plan.topic_settings, "headrace.reliable": "true"},
        promises=Promises(acks_one_kept=True),
    )


def _with_more(plan: Plan, chance: Random) -> Plan:
    """Some of the plans with what was added later, which leaves the others, and what chance says of them, alone."""
    which = chance.random()
    if which < 0.06:
        return gentle(plan._replace(faults=tuple(sorted(chance.sample(GENTLE, chance.randrange(1, 4))))))
    if which < 0.12:
        return plan._replace(faults=(*plan.faults, ROLL), promises=Promises())  # leaders move: acks=1 is not kept
    if which < 0.20 and POWER in plan.faults and plan.failures_max >= 2:
        return plan._replace(faults=(*plan.faults, CONTROLLER))
    return plan


def _with_transactions(plan: Plan, chance: Random) -> Plan:
    """A fourth of the plans with transactions, instead of other producers."""
    if not plan.has_epochs or chance.random() >= 0.25:
        return plan
    versions = [chance.choice((2, 2, 0)) for _ in range(3)]
    processors = chance.randrange(3)
    plan = plan._replace(
        producers=(chance.choice(plan.producers),),
        pipelines=0,
        readers=1,
        writers=tuple(versions[processors:]),
        processors=tuple(versions[:processors]),
        committed_readers=1,
        transaction_timeout_ms=chance.choice((1500, 3000)),
    )
    if SKEW in plan.faults or chance.random() < 0.8:
        return plan
    return plan._replace(
        settings={
            **plan.settings,
            "transactional.id.expiration.ms": str(ID_EXPIRATION_MS),
            "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        },
        promises=plan.promises._replace(unused_id_kept_ms=ID_EXPIRATION_MS),
    )


def _with_members(plan: Plan, chance: Random) -> Plan:
    """A sixth of the plans with members of a group. They are judged by their clocks, which must agree. Their offsets
    are in a topic whose ISR may shrink to one replica: a power loss of that one loses what the others once had."""
    if {SKEW, POWER} & set(plan.faults) or chance.random() >= 1 / 6:
        return plan
    given = with_members(plan, chance.choice((2, 3)), interval_ms=chance.choice((0, 0, 1000)))
    return given._replace(members_are_threads=chance.random() < 0.5)


def _with_sharers(plan: Plan, chance: Random) -> Plan:
    """A sixth of the plans without members of other groups and transactions, with members of a share group. Where power
    may fail, `__consumer_offsets` needs as many replicas as the topic."""
    if plan.members or plan.has_transactions or not plan.has_epochs or chance.random() >= 1 / 6:
        return plan
    plan = with_sharers(plan._replace(producers=(chance.choice(plan.producers),), readers=1), chance.choice((2, 3)))
    updates = {"share.coordinator.snapshot.update.records.per.snapshot": str(chance.choice((3, 500)))}
    return plan._replace(settings={**plan.settings, **updates})


def with_sharers(plan: Plan, sharers: int) -> Plan:
    """The plan with members of a share group."""
    settings = {**plan.settings, **SHARE_SETTINGS, "min.insync.replicas": str(plan.min_insync_replicas)}
    return plan._replace(sharers=sharers, settings=settings)


def with_members(plan: Plan, members: int, *, interval_ms: int = 0) -> Plan:
    """The plan with members of a group, whose assignments are `interval_ms` apart at least."""
    interval = {f"group.{kind}.assignment.interval.ms": str(interval_ms) for kind in ("consumer", "streams")}
    return plan._replace(members=members, settings={**plan.settings, **MEMBER_SETTINGS, **interval})


def gentle(plan: Plan) -> Plan:
    """Three replicas, one of which may be stopped at a time: writes with acks=all do not stand still."""
    return plan._replace(
        replicas=3,
        min_insync_replicas=min(plan.min_insync_replicas, 2),
        failures_max=1,
        weather=CALM,
        damage=0.0,
        settings={**plan.settings, "replica.lag.time.max.ms": str(LAG_MAX_MS)},
        promises=Promises(pause_max_ms=PAUSE_MAX_MS),
    )
