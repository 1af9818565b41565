"""Metrics of instances: what flows, how it is limited on this broker, and what is stored.

Everything but the storage's sum is of this broker: bytes and rates add up over brokers to those of the instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.metrics.family import SUMMARY, Family, Sample, counter, gauge
from headrace.instances.flow.leases import UNLIMITED

if TYPE_CHECKING:
    from headrace.broker.instances.flow import InstanceFlow
    from headrace.broker.instances.flow_gate import FlowGate
    from headrace.instances.definition import Instance

Rows = list[tuple[Mapping[str, str], float]]
PREFIX = "headrace_instance"


def families(instances: Iterable[Instance], flow: InstanceFlow) -> Iterable[Family]:
    """The metrics of all instances; none without any."""
    limits: Rows = []
    rates: Rows = []
    totals: Rows = []
    held: Rows = []
    held_s: Rows = []
    told: list[Sample] = []
    storage: dict[str, Rows] = {each: [] for each in ("stored", "capacity", "full", "refused")}
    for instance in instances:
        name = instance.name
        known, in_force = flow.flows().get(name), flow.rates.rates(name)
        for direction, limit, rate in (
            ("in", instance.bytes_in, in_force.rate_in),
            ("out", instance.bytes_out, in_force.rate_out),
        ):
            labels = {"instance": name, "direction": direction}
            if limit is not None:
                limits.append((labels, limit))
            if rate < UNLIMITED:
                rates.append((labels, rate))
            if known is not None:
                totals.append((labels, known.bytes_in if direction == "in" else known.bytes_out))
        gates: Mapping[str, FlowGate | None] = {} if known is None else known.gates
        for direction, gate in gates.items():
            if gate is not None:
                labels = {"instance": name, "direction": direction}
                held.append((labels, gate.waiting_count))
                held_s.append((labels, gate.held_s))
                told.append(Sample("_count", labels, gate.throttled.count))
                told.append(Sample("_sum", labels, gate.throttled.total_ms))
        if instance.capacity is not None:
            of = {"instance": name}
            storage["stored"].append((of, flow.counts.stored(name) or 0))
            storage["capacity"].append((of, instance.capacity))
            storage["full"].append((of, flow.counts.is_full(name)))
            storage["refused"].append((of, flow.counts.refused(name)))
    yield gauge(f"{PREFIX}_limit_bytes_per_second", "The limit of an instance, over all brokers.", limits)
    yield gauge(f"{PREFIX}_rate_bytes_per_second", "The rate that is in force on this broker.", rates)
    yield counter(f"{PREFIX}_bytes", "Bytes of Produce requests, and of records in Fetch responses.", totals)
    yield gauge(f"{PREFIX}_connections_held", "Connections that wait for their turn.", held)
    yield counter(f"{PREFIX}_held_seconds", "How long connections were held, in sum.", held_s)
    yield Family(f"{PREFIX}_throttletimems", SUMMARY, "Milliseconds that clients were told to wait.", told)
    yield gauge(
        f"{PREFIX}_stored_bytes", "Bytes that an instance with a capacity has stored, over all brokers.",
        storage["stored"],
    )  # fmt: skip
    yield gauge(f"{PREFIX}_capacity_bytes", "The capacity of an instance.", storage["capacity"])
    yield gauge(f"{PREFIX}_is_full", "1 while full storage blocks production.", storage["full"])
    yield counter(f"{PREFIX}_refused_produces", "Produce requests that full storage refused.", storage["refused"])
