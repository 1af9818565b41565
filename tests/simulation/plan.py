"""What one run is made of, drawn from its seed: how many replicas, which faults, how long, and what is then promised.

process crash   the page cache survives; whatever crashes, however often, what was acknowledged with acks=all stays
power loss      un-fsynced bytes go. A power loss hits a broker only while another live broker is in the ISR of each
                of its partitions (a failure at a time, as f = replicas - 1 promises); what was acknowledged with
                acks=all stays, as long as min.insync.replicas is 2 or more
"""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from tests.simulation.history import Promises
from tests.simulation.network import CALM, Weather

CRASH, POWER, PAUSE, CUT, CUT_ONE_WAY, ISOLATE, SESSION, STOP, SKEW, SLOW_DISK, ELECT, REASSIGN, REFUSE = (
    "crash", "power", "pause", "cut", "cut one way", "isolate", "session", "stop", "skew", "slow disk", "elect",
    "reassign", "refuse",
)  # fmt: skip


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

    readers: int = 2
    reads_followers: bool = False
    """Whether one of the readers tells its rack, and is sent to the replica in it (KIP-392)."""

    has_group: bool = False
    settings: Mapping[str, str] = {}
    topic_settings: Mapping[str, str] = {}
    promises: Promises = Promises()

    def __str__(self) -> str:
        faults = ", ".join(self.faults) or "no faults"
        spare = f" of {self.replicas + self.spare_brokers} brokers" if self.spare_brokers else ""
        return (
            f"{self.replicas} replicas{spare}, min.insync.replicas={self.min_insync_replicas}, "
            f"{self.partitions} partitions, {faults}, up to {self.failures_max} at a time, "
            f"for {self.duration_ms / 1000:g} s"
        )


SOFT = (PAUSE, CUT, CUT_ONE_WAY, ISOLATE, SESSION, STOP, SKEW, SLOW_DISK, ELECT, REASSIGN, REFUSE)
HARMLESS = frozenset({SKEW, SLOW_DISK})
"""Faults that leave leaders where they are."""


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
    return Plan(
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
