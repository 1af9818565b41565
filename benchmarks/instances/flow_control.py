"""Simulates the flow control of instances with both allocators, in virtual time, and measures what the master costs.

    python benchmarks/instances/flow_control.py             quality and cost, as tables
    python benchmarks/instances/flow_control.py --json      the same as JSON (flow_control.json is the last full run)
    python benchmarks/instances/flow_control.py --picture docs/flow-control.svg

Quality: one instance on 3 to 200 brokers, the state machines of `headrace.instances.flow` in the cluster of
tests/instances/flow/cluster.py, real token buckets, 4 connections for each broker, a network with delays. Loads:

    skew         from second 5 on one broker is asked for twice the limit, the others for 0.1 % of it
    shift        as skew, but another broker each 10 seconds
    zipf         twice the limit in all, by 1 / rank, with the ranks drawn anew each 10 seconds
    bursts       each broker is silent, or for 2 to 6 seconds asked for its part of the limit, threefold
    moves        the partitions, and the load with them, gather on other brokers each 10 seconds
    controller   zipf that stays; no controller from second 15 to 25

Cost: CPU seconds of the master for each second of reports, of up to 10,000 instances, limited in both directions.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.instances.flow.allotment import Allocator
from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.leases import Report
from headrace.instances.flow.master import ALLOCATORS, FlowMaster
from headrace.instances.flow.max_min import water_level
from headrace.instances.flow.meter import Metered
from tests.instances.flow.cluster import FlowCluster, Load

LIMIT = 100e6
SECONDS = 45
CHANGE_S = 10
SIZES = (3, 10, 50, 200)
LOADS = ("skew", "shift", "zipf", "bursts", "moves", "controller")


def load_of(kind: str, cluster: FlowCluster, seed: int) -> Load:
    """The demand in bytes/s on a broker at a time."""
    brokers = list(cluster.brokers)
    if kind == "skew":
        return lambda _, broker, now: 2 * LIMIT if broker == brokers[0] and now >= 5 else 0.001 * LIMIT
    if kind == "shift":
        return lambda _, broker, now: (
            2 * LIMIT if broker == brokers[int(now // CHANGE_S) % len(brokers)] else 0.001 * LIMIT
        )
    if kind in ("zipf", "controller"):
        total = sum(1 / rank for rank in range(1, len(brokers) + 1))
        drawn: dict[int, dict[int, float]] = {}

        def zipf(_: str, broker: int, now: float) -> float:
            epoch = 0 if kind == "controller" else int(now // CHANGE_S)
            if epoch not in drawn:
                ranked = random.Random(seed * 1000 + epoch).sample(brokers, len(brokers))
                drawn[epoch] = {each: 2 * LIMIT / rank / total for rank, each in enumerate(ranked, 1)}
            return drawn[epoch][broker]

        return zipf
    if kind == "bursts":
        switches: dict[int, list[float]] = {}
        for broker in brokers:
            rng, at, times = random.Random(seed * 1000 + broker), 0.0, []
            while at < SECONDS:
                at += rng.uniform(2, 16)
                times.append(at)
                at += rng.uniform(2, 6)
                times.append(at)
            switches[broker] = times
        part = 3 * LIMIT / len(brokers)
        return lambda _, broker, now: part if sum(at <= now for at in switches[broker]) % 2 else 0.0
    return lambda name, broker, now: 2 * LIMIT * cluster.share(name, broker)


def gathered(brokers: list[int], epoch: int) -> Mapping[int, int]:
    """60 partitions: half of them on one broker, the other half on the next few."""
    few = [brokers[(epoch * 3 + index) % len(brokers)] for index in range(min(4, len(brokers)))]
    counts = dict.fromkeys(brokers, 0)
    for index in range(60):
        counts[few[0] if index < 30 else few[index % len(few)]] += 1
    return counts


class Second:
    """What flowed in one second, what could have, and on which broker."""

    def __init__(self, cluster: FlowCluster, before: dict[int, float]) -> None:
        now = cluster.now - 0.5
        demands = {each: cluster.load("a", each, now) for each in cluster.brokers}
        weights = [max(cluster.partitions["a"][each], 0.1) for each in cluster.brokers]
        level = water_level(LIMIT, list(demands.values()), weights)
        ideal = [min(want, level * weight) for want, weight in zip(demands.values(), weights, strict=True)]
        flowed = [cluster.total("a", each) - before[each] for each in cluster.brokers]
        self.used = sum(flowed)
        self.possible = min(LIMIT, sum(demands.values()))
        self.share = self.used / self.possible if self.possible else 1.0
        got = [min(f / i, 1.0) for f, i in zip(flowed, ideal, strict=True) if i > 0]
        self.jain = sum(got) ** 2 / (len(got) * sum(each * each for each in got)) if any(got) else 1.0


def simulate(kind: str, brokers: int, allocate: Allocator, seed: int = 1) -> dict[str, Any]:
    """One run."""
    cluster = FlowCluster(brokers, seed=seed, allocate=allocate)
    cluster.start_master()
    cluster.add_instance("a", LIMIT, dict.fromkeys(cluster.brokers, 2))
    cluster.load = load_of(kind, cluster, seed)
    ids = list(cluster.brokers)
    most = over = looked = 0.0

    def look() -> None:
        nonlocal most, over, looked
        share = cluster.rates("a") / LIMIT
        most, over, looked = max(most, share), over + (share > 1.001), looked + 1

    cluster.watch = look
    seconds: list[Second] = []
    for second in range(SECONDS):
        if kind == "moves" and second % CHANGE_S == 5:
            cluster.move("a", gathered(ids, second // CHANGE_S))
        if kind == "controller" and second == 15:
            cluster.stop_master()
        if kind == "controller" and second == 25:
            cluster.start_master()
        before = {each: cluster.total("a", each) for each in ids}
        cluster.run(second + 1.0)
        seconds.append(Second(cluster, before))
    changes = {"skew": [5], "controller": [0], "moves": [15, 25, 35]}.get(kind, [10, 20, 30])
    ends = [*changes[1:], 15 if kind == "controller" else changes[-1] + CHANGE_S]
    settled = [each for at, end in zip(changes, ends, strict=True) for each in seconds[at + 5 : max(end, at + 6)]]
    if kind == "bursts":
        settled = seconds[5:]
    found: dict[str, Any] = {
        "load": kind,
        "brokers": brokers,
        "used_percent": round(100 * sum(each.used for each in settled) / sum(each.possible for each in settled), 1),
        "seconds_to_95_percent": None if kind == "bursts" else [to_95(seconds[at:]) for at in changes],
        "jain": round(sum(each.jain for each in settled) / len(settled), 3),
        "rates_most_percent": round(100 * most, 2),
        "rates_over_percent_of_looks": round(100 * over / looked, 3),
        "messages_per_s": round(cluster.messages / SECONDS, 1),
        "rows_per_message": round(cluster.rows / max(cluster.messages, 1), 2),
        "used_by_second_percent": [round(100 * each.share, 1) for each in seconds],
    }
    if kind == "controller":
        found["used_without_controller_percent"] = round(
            100 * sum(each.used for each in seconds[15:25]) / sum(each.possible for each in seconds[15:25]), 1
        )
    return found


def to_95(seconds: list[Second]) -> int | None:
    """Seconds until 95 % of what is possible flow; None if that is never so."""
    return next((at for at, each in enumerate(seconds, 1) if each.share >= 0.95), None)


def cost(
    instances: int, brokers: int, brokers_each: int, hot: float, active: float, allocate: Allocator
) -> dict[str, Any]:
    """CPU of the master for a second of reports. `hot` instances are skewed and throttled on one broker, `active` ones
    use half of their F everywhere, the others nothing."""
    rng = random.Random(1)
    master = FlowMaster(1, 0.0, allocate)
    leases = {each: BrokerLeases(each, 1) for each in range(brokers)}
    demands: dict[int, list[tuple[str, float]]] = {each: [] for each in leases}
    for index in range(instances):
        name = f"instance-{index}"
        serving = rng.sample(range(brokers), brokers_each)
        master.set_instance(name, LIMIT, LIMIT, dict.fromkeys(serving, 2), 0.0)
        draw = index / instances
        for place, broker in enumerate(serving):
            leases[broker].set_share(name, LIMIT, LIMIT, 2, 2 * brokers_each, 0.0)
            fair = LIMIT / brokers_each
            if draw < hot:
                demands[broker].append((name, 2 * LIMIT if place == 0 else 0.5 * fair))
            elif draw < hot + active:
                demands[broker].append((name, 0.5 * fair))
    reports: list[Report] = []
    spent, rows, granted, worst = [], [], [], 0.0
    broker_cpu = []
    for second in range(8):
        cpu = row_count = lease_count = 0.0
        broker_began = time.process_time()
        master_cpu = 0.0
        for broker, each in leases.items():
            now = 1.0 + second + broker / brokers
            used = []
            for name, demand in demands[broker]:
                rate = each.rates(name, now).rate_in
                metered = Metered(min(demand, rate), max(1 - rate / demand, 0.0))
                used.append((name, metered, metered))
            report = each.report(used, now)
            began = time.process_time()
            answer = master.answer(report, now)
            took = time.process_time() - began
            assert answer is not None
            each.accept(answer, now)
            master_cpu += took
            worst = max(worst, took)
            row_count += len(report.usages)
            lease_count += len(answer.leases)
        cpu = master_cpu
        broker_cpu.append((time.process_time() - broker_began - master_cpu) / brokers)
        spent.append(cpu)
        rows.append(row_count)
        granted.append(lease_count)
    reports.clear()
    # The first seconds lead to the steady state.
    return {
        "instances": instances,
        "brokers": brokers,
        "brokers_of_an_instance": brokers_each,
        "hot_percent": round(100 * hot),
        "active_percent": round(100 * active),
        "rows_per_s": int(rows[-1]),
        "leases_per_s": int(granted[-1]),
        "master_cpu_ms_per_s": round(1000 * min(spent[4:]), 1),
        "longest_answer_ms": round(1000 * worst, 1),
        "broker_cpu_ms_per_s": round(1000 * min(broker_cpu[4:]), 2),
    }


COSTS = (
    (10_000, 200, 3, 0.0, 0.0),
    (10_000, 200, 3, 0.01, 0.2),
    (10_000, 200, 3, 0.1, 0.4),
    (10_000, 200, 3, 1.0, 0.0),
    (10_000, 200, 12, 0.1, 0.4),
    (10_000, 200, 12, 1.0, 0.0),
    (1_000, 200, 200, 0.01, 0.1),
    (1_000, 200, 200, 1.0, 0.0),
    (10_000, 3, 3, 0.1, 0.4),
    (10_000, 3, 3, 1.0, 0.0),
)


def measure(progress: Callable[[str], None], sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Everything."""
    found: dict[str, Any] = {"quality": {}, "cost": {}}
    for name, allocate in ALLOCATORS.items():
        found["quality"][name] = []
        for kind in LOADS:
            for brokers in sizes:
                found["quality"][name].append(simulate(kind, brokers, allocate))
                progress(f"{name} {row(found['quality'][name][-1])}")
    for name, allocate in ALLOCATORS.items():
        found["cost"][name] = []
        for each in COSTS:
            found["cost"][name].append(cost(*each, allocate))
            progress(f"{name} {row(found['cost'][name][-1])}")
    return found


def row(found: dict[str, Any]) -> str:
    """A line of what was found."""
    return "  ".join(f"{key}={value}" for key, value in found.items() if key != "used_by_second_percent")


def as_json(found: dict[str, Any]) -> str:
    """JSON with a line for each run."""
    parts = []
    for part, by_allocator in found.items():
        lists = [f'"{name}": [\n ' + ",\n ".join(map(json.dumps, runs)) + "]" for name, runs in by_allocator.items()]
        parts.append(f'"{part}": {{' + ",\n".join(lists) + "}")
    return "{" + ",\n".join(parts) + "}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--picture", type=Path, help="draw the picture of the stored results, and measure nothing")
    arguments = parser.parse_args()
    if arguments.picture:
        from benchmarks.instances.picture import draw

        arguments.picture.write_text(draw(json.loads(Path(__file__).with_suffix(".json").read_text())))
        return
    found = measure(lambda line: print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True))
    if arguments.json:
        print(as_json(found))


if __name__ == "__main__":
    main()
