"""Eligible leader replicas (ELR, KIP-966): replicas that left the ISR and still have every committed record. Pure.

While the ISR is smaller than `min.insync.replicas`, the leader commits nothing: its high watermark does not advance. A
replica that was in the ISR before therefore has every committed record, however long ago it left, and may lead when no
member of the ISR can. It loses that right

    when the ISR reaches min.insync.replicas again      commits go on without the replica
    after an unclean shutdown                           the end of its log may be lost
    when it is a replica no more

The brokers' default of `min.insync.replicas` may differ, for example while a new one is rolled out. A leader goes by
its own, so the least one counts, and no replica is eligible by a larger one.

Left out: a `min.insync.replicas` that is lowered and raised again before a controller reads it. The leader may have
committed without an eligible replica meanwhile, and nothing in the store says so.

An Apache Kafka 3.9 leader commits with any ISR, so a partition that it leads has no eligible replicas.
Source: KRaft's `PartitionChangeBuilder`.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace.metadata.entity_configs import DEFAULT
from headrace.metadata.model import Broker, PartitionLeadership
from headrace.types import NO_LEADER, BrokerId

Live = Mapping[BrokerId, Broker]

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def eligible_after(
    state: PartitionLeadership,
    leader: BrokerId,
    isr: Collection[BrokerId],
    *,
    replicas: Sequence[BrokerId],
    live: Live,
    min_isr: int,
) -> tuple[BrokerId, ...]:
    """The eligible replicas, in assignment order, once `leader` and `isr` take the place of those of `state`.

    `min_isr`: `min.insync.replicas`, but at most the number of replicas.
    """
    if len(isr) >= min(min_isr, len(replicas)) or not _counts_min_isr(leader, live):
        return ()
    complete = {*state.eligible, *state.isr}
    return tuple(each for each in replicas if each in complete and each not in isr and not _has_crashed(each, live))


def still_eligible(
    state: PartitionLeadership, *, replicas: Sequence[BrokerId], live: Live, min_isr: int
) -> tuple[BrokerId, ...]:
    """The eligible replicas of a state that stays: without those that returned from a crash, and none if the ISR
    suffices by now, because `min.insync.replicas` was lowered."""
    if not state.eligible or len(state.isr) >= min(min_isr, len(replicas)):
        return ()
    return tuple(each for each in state.eligible if each in replicas and not _has_crashed(each, live))


def least_min_insync_replicas(live: Live, dynamic: Mapping[str, Mapping[str, str]]) -> int:
    """The least default of a live broker. `dynamic`: what `/config/brokers` sets for a broker and for `<default>`."""
    for_all = _whole(dynamic.get(DEFAULT))
    defaults = (
        _whole(dynamic.get(str(broker.id))) or for_all or broker.min_insync_replicas for broker in live.values()
    )
    return min(defaults, default=1)


def _whole(configs: Mapping[str, str] | None) -> int | None:
    """The number that is set; None for none, and for what brokers ignore."""
    try:
        return int(configs[MIN_INSYNC_REPLICAS]) if configs and MIN_INSYNC_REPLICAS in configs else None
    except ValueError:
        return None


def _counts_min_isr(leader: BrokerId, live: Live) -> bool:
    """Whether the leader commits nothing while the ISR is too small. Apache Kafka's brokers do not name their data
    directory. Without a leader nothing is committed."""
    if leader == NO_LEADER:
        return True
    broker = live.get(leader)
    return broker is not None and broker.directory is not None


def _has_crashed(broker_id: BrokerId, live: Live) -> bool:
    broker = live.get(broker_id)
    return broker is not None and not broker.is_clean
