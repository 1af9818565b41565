"""Measures one broker with many instances: 1,000 with ten topics each, beside the same topics without an instance.

Reports the time to create them, the time and processor time from process start to `ready HOST:PORT` and until every
instance has its listener, the resident memory of the idle broker, and the time of a Metadata request for a client's ten
topics: through the listener of an instance, and by name through the ordinary one. Each figure of
instances stands beside that of a broker with the same topics that has none.

    python benchmarks/instances/many_instances.py [--instances 1000] [--topics 10] [--requests 2000] [--json]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.harness import HeadraceServer

SETTLE_SECONDS = 2
TOPICS_PER_REQUEST = 1_000
WAIT_SECONDS = 300
METADATA_VERSION = 12


class Start(NamedTuple):
    """One start of a broker."""

    ready_s: float
    cpu_s: float
    """Until it is ready, and all listeners are open."""
    listening_s: float
    idle_mib: float


def names(instances: int, topics: int) -> list[list[str]]:
    """The qualified names of each instance's topics."""
    return [[f"tenant-{number}.topic-{each}" for each in range(topics)] for number in range(instances)]


def open_listeners(cluster: Cluster) -> int:
    """How many instances have a listener."""
    return sum(bool(each.endpoints) for each in InstanceAdmin(cluster).describe_instances())


def fill(data: Path, instances: int, topics: int, *, has_instances: bool) -> dict[str, float]:
    """Creates everything; returns the seconds that each kind took."""
    server = HeadraceServer(data).start()
    took: dict[str, float] = {}
    with Cluster(server.bootstrap) as cluster, Admin(server.bootstrap) as admin:
        if has_instances:
            began = time.perf_counter()
            creator = InstanceAdmin(cluster)
            for number in range(instances):
                creator.create_instance(f"tenant-{number}")
            took["instances_s"] = time.perf_counter() - began
            while open_listeners(cluster) < instances:
                time.sleep(0.2)
            took["listening_s"] = time.perf_counter() - began
        began = time.perf_counter()
        wanted = [NewTopic(name, 1, 1) for each in names(instances, topics) for name in each]
        for first in range(0, len(wanted), TOPICS_PER_REQUEST):
            admin.create_topics(wanted[first : first + TOPICS_PER_REQUEST])
        took["topics_s"] = time.perf_counter() - began
    server.stop()
    return took


def start(data: Path, instances: int) -> tuple[HeadraceServer, Start]:
    """Starts a broker; returns it with the measured start. `instances`: those that are to have listeners."""
    began = time.perf_counter()
    server = HeadraceServer(data).start()
    ready_s = listening_s = time.perf_counter() - began
    if instances:
        with Cluster(server.bootstrap) as cluster:
            while open_listeners(cluster) < instances:
                if time.perf_counter() - began > WAIT_SECONDS:
                    raise SystemExit(f"not all of {instances} listeners are open after {WAIT_SECONDS} s")
                time.sleep(0.05)
        listening_s = time.perf_counter() - began
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    used = process.cpu_times()
    time.sleep(SETTLE_SECONDS)
    return server, Start(ready_s, used.user + used.system, listening_s, process.memory_info().rss / (1 << 20))


def metadata_ms(bootstrap: str, topics: Sequence[str] | None, requests: int, expected: int) -> dict[str, float]:
    """Percentiles of the time of a Metadata request; None asks for all topics that the client sees."""
    wanted = None
    if topics is not None:
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=each) for each in topics]
    request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    took = []
    with Asker(bootstrap) as asker:
        for _ in range(requests):
            began = time.perf_counter()
            answer = asker.ask(request, METADATA_VERSION)
            took.append((time.perf_counter() - began) * 1e3)
            assert len(answer.topics) == expected
    took.sort()
    return {"p50_ms": took[len(took) // 2], "p99_ms": took[int(len(took) * 0.99)]}


def measure(instances: int, topics: int, requests: int, directory: Path) -> dict[str, object]:
    """Both brokers, one after the other."""
    found: dict[str, object] = {}
    for name, count in (("with instances", instances), ("without", 0)):
        data = directory / name
        made = fill(data, instances, topics, has_instances=bool(count))
        server, started = start(data, count)
        if count:
            with Cluster(server.bootstrap) as cluster:
                [described] = InstanceAdmin(cluster).describe_instances([f"tenant-{instances // 2}"])
            asked = metadata_ms(described.bootstrap, None, requests, topics)
        else:
            asked = metadata_ms(server.bootstrap, names(instances, topics)[instances // 2], requests, topics)
        server.stop()
        found[name] = {"creation": made, "start": started._asdict(), "metadata": asked}
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(options.instances, options.topics, options.requests, Path(directory))
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, figures in found.items():
        print(name)
        for kind, values in figures.items():  # type: ignore[attr-defined]
            print(f"  {kind:9} {json.dumps({key: round(value, 2) for key, value in values.items()})}")


if __name__ == "__main__":
    main()
