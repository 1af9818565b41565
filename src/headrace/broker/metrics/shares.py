"""Metrics of share groups and of the share coordinator. Source: Kafka's `ShareGroupMetrics`, `SharePartitionMetrics`,
`ShareSessionCache`, `ShareCoordinatorMetrics`, `CoordinatorRuntimeMetrics`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.broker.metrics.family import SUMMARY, Family, Sample, counter, gauge, number
from headrace.limits import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.share_state_service import ShareStateService
    from headrace.broker.share.share_manager import ShareManager

_ACKNOWLEDGE_TYPES = ("Gap", "Accept", "Release", "Reject", "Renew")
_NS_PER_MS = 1_000_000


async def families(manager: ShareManager | None, coordinator: ShareStateService | None) -> list[Family]:
    """The metrics of what a broker has; none of share groups that it has not served."""
    found = [] if manager is None else await _of_groups(manager)
    return found if coordinator is None else [*found, *_of_coordinator(coordinator)]


async def _of_groups(manager: ShareManager) -> list[Family]:
    counts = manager.counts
    rows: list[tuple[dict[str, str], int]] = []
    for number_, led in enumerate(list(manager.share_partitions), 1):
        labels = {
            "group": led.key.group_id,
            "topic": led.partition.key.topic,
            "partition": str(led.key.partition),
        }
        rows.append((labels, 0 if led.state is None else led.state.in_flight_count))
        if number_ % ELEMENTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return [
        counter(
            "kafka_server_sharegroupmetrics_recordacknowledgements",
            "Records that members of share groups have acknowledged, by type.",
            [({"ackType": name}, count) for name, count in zip(_ACKNOWLEDGE_TYPES, counts.acknowledged, strict=True)],
        ),
        _summary(
            "kafka_server_sharegroupmetrics_partitionloadtimems",
            "Milliseconds of reading the state of share partitions.",
            counts.loaded,
            counts.load_ns,
        ),
        counter(
            "kafka_server_sharepartitionmetrics_acquisitionlocktimeout",
            "Records that nobody acknowledged in time.",
            [({}, counts.lock_timeouts)],
        ),
        gauge(
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            "Records in flight, of share partitions that this broker leads.",
            rows,
        ),
        number("kafka_server_sharesessioncache_sharesessionscount", "Open share sessions.", len(manager.sessions)),
        number(
            "kafka_server_sharesessioncache_sharepartitionscount",
            "Partitions of open share sessions.",
            manager.sessions.partitions,
        ),
    ]


def _of_coordinator(coordinator: ShareStateService) -> list[Family]:
    prefix, states = "kafka_server_share_coordinator_metrics", coordinator.partition_states
    return [
        counter(f"{prefix}_write", "Writes of the state of a share partition.", [({}, coordinator.writes)]),
        _summary(
            f"{prefix}_write_latency",
            "Milliseconds of requests that write share state, until it is stored.",
            coordinator.write_requests,
            coordinator.write_ns,
        ),
        gauge(
            f"{prefix}_num_partitions",
            "Partitions of __share_group_state that this broker leads, by state.",
            [({"state": name}, count) for name, count in states.items()],
        ),
    ]


def _summary(name: str, text: str, count: int, total_ns: int) -> Family:
    return Family(name, SUMMARY, text, [Sample("_count", {}, count), Sample("_sum", {}, total_ns / _NS_PER_MS)])
