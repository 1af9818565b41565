"""Measures how long a controller's requests about many partitions hold up a broker's other clients.

A broker in a process of its own gets the requests that a controller sends: LeaderAndIsr of partitions that are new,
that it leads, that it follows, and that are as before, UpdateMetadata of all partitions of the cluster, and StopReplica
with deletion. Then it is fenced while it leads. Another client produces one record after the other meanwhile, with
acks=1, to a partition that none of the requests names. For each kind of request the time until its answer is reported,
and the longest and the 99th percentile of the produces' latencies until then: the longest is as long as the event loop
was held at a time. Between them come some seconds of the broker's periodic work over all partitions, and scrapes of
its metrics.

    python benchmarks/broker/control_requests.py [--partitions 50000] [--replicas 15000] [--per-topic 100]
                                                 [--per-request 5000] [--json]
"""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.request_load import produce_frame
from headrace.metadata import znodes
from headrace.metastore.store import Create
from headrace.metastore.zookeeper.connection import open_store
from headrace.metastore.zookeeper.ensemble import Ensemble
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.testing import Broker
from tests.asker import Asker
from tests.harness import free_ports, receive_frame
from tests.wire import Wire
from tests.zookeeper_server import ZooKeeperServer

TOPIC = "beside"
OWN_ID, OTHER_ID = 0, 2
"""The broker that is measured, and one that does not answer."""
EPOCH = 1000
"""Above the controller epoch of the broker's own controller, whose requests are refused from then on."""
PAUSE_S = 0.001
AFTER_S = 0.3
"""What a request leaves behind it, such as fetchers that start."""
PERIODIC_S = 8.0

Partitions = Sequence[tuple[str, Sequence[int]]]
"""Topics with their partitions."""


class Held(NamedTuple):
    """What a client beside it has waited, in ms; `took_s` until the last answer."""

    took_s: float
    longest_ms: float
    p99_ms: float
    produces: int


class Beside:
    """A client that produces one record after the other, on a thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._latencies: list[float] = []
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopping = True
        self._thread.join()
        self._socket.close()

    def during(self, work: Callable[[], object]) -> Held:
        """What this client waits while the work is done."""
        self._latencies = latencies = []
        began = time.perf_counter()
        work()
        took_s = time.perf_counter() - began
        time.sleep(AFTER_S)
        found = sorted(latencies)
        p99 = found[int(len(found) * 0.99)]
        return Held(round(took_s, 2), round(found[-1] * 1000, 1), round(p99 * 1000, 1), len(found))

    def _run(self) -> None:
        frame, clock = produce_frame(TOPIC), time.perf_counter
        while not self._is_stopping:
            began, latencies = clock(), self._latencies
            self._socket.sendall(frame)
            receive_frame(self._socket)
            latencies.append(clock() - began)
            time.sleep(PAUSE_S)


def topic_id(name: str) -> bytes:
    """The id of a topic: its name."""
    return name.encode().ljust(16, b".")[:16]


def leader_and_isr(of: Partitions, leader: int, leader_epoch: int, *, is_new: bool = False) -> m.LeaderAndIsrRequest:
    """LeaderAndIsr of these partitions."""
    state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    return m.LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=EPOCH,
        broker_epoch=-1,
        topic_states=[
            m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=topic_id(topic),
                partition_states=[
                    state(
                        partition_index=number,
                        controller_epoch=EPOCH,
                        leader=leader,
                        leader_epoch=leader_epoch,
                        isr=[OWN_ID, OTHER_ID],
                        partition_epoch=leader_epoch,
                        replicas=[OWN_ID, OTHER_ID],
                        is_new=is_new,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in of
        ],
        live_leaders=[m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=OTHER_ID, host_name="127.0.0.1", port=1)],
    )


def update_metadata(of: Partitions, leader_epoch: int, port: int, *, is_full: bool = False) -> m.UpdateMetadataRequest:
    """UpdateMetadata of these partitions."""
    state = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint
    return m.UpdateMetadataRequest(
        controller_id=9,
        controller_epoch=EPOCH,
        broker_epoch=-1,
        type=2 if is_full else 0,
        topic_states=[
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=topic_id(topic),
                partition_states=[
                    state(
                        partition_index=number,
                        controller_epoch=EPOCH,
                        leader=OWN_ID,
                        leader_epoch=leader_epoch,
                        isr=[OWN_ID, OTHER_ID],
                        zk_version=leader_epoch,
                        replicas=[OWN_ID, OTHER_ID],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in of
        ],
        live_brokers=[
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=number,
                endpoints=[endpoint(port=at, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)],
            )
            for number, at in ((OWN_ID, port), (OTHER_ID, 1))
        ],
    )


def stop_replicas(of: Partitions) -> m.StopReplicaRequest:
    """StopReplica that deletes these partitions."""
    return m.StopReplicaRequest(
        controller_id=9,
        controller_epoch=EPOCH,
        broker_epoch=-1,
        topic_states=[
            m.StopReplicaRequest.StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    m.StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=number, leader_epoch=-2, delete_partition=True
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in of
        ],
    )


def codes(answer: Any) -> list[int]:
    """All error codes of an answer."""
    found = [answer.error_code]
    if isinstance(answer, m.LeaderAndIsrResponse):
        found.extend(each.error_code for topic in answer.topics for each in topic.partition_errors)
    elif isinstance(answer, m.StopReplicaResponse):
        found.extend(each.error_code for each in answer.partition_errors)
    return found


class Size(NamedTuple):
    """How many partitions the cluster has, and a request and a topic; and how many have a replica at the broker."""

    partitions: int
    replicas: int
    per_topic: int
    per_request: int


class Bench:
    """One broker, its controller, and the client beside it."""

    def __init__(self, broker: Broker, metrics: str, zookeeper: str, size: "Size") -> None:
        self._broker, self._metrics, self._zookeeper = broker, metrics, zookeeper
        topics = [(f"topic-{number:05}", range(size.per_topic)) for number in range(size.partitions // size.per_topic)]
        self._all: Partitions = topics
        self._here: Partitions = topics[: size.replicas // size.per_topic]
        step = max(1, size.per_request // size.per_topic)
        self._parts: list[Partitions] = [self._here[start : start + step] for start in range(0, len(self._here), step)]

    def run(self) -> Iterator[tuple[str, Held]]:
        """All kinds of requests, in the order in which a cluster may see them."""
        port = self._broker.port
        with Wire(self._broker.bootstrap) as wire:
            wire.create_topic(TOPIC)
        with Asker(self._broker.bootstrap) as controller, Beside(port) as beside:
            controller.socket.settimeout(300)
            time.sleep(0.5)

            def send(name: str, requests: Sequence[Message]) -> tuple[str, Held]:
                version = type(requests[0]).VERSIONS[-1]
                for each in requests:
                    each.encode(version)  # builds the encoder
                answers: list[Any] = []
                held = beside.during(lambda: answers.extend(controller.ask(each, version) for each in requests))
                for answer in answers:
                    assert not any(codes(answer)), (name, Counter(codes(answer)))
                return name, held

            yield "nothing", beside.during(lambda: time.sleep(2))
            made = [leader_and_isr(each, OWN_ID, 0, is_new=True) for each in self._parts]
            yield send("LeaderAndIsr, new", made)
            yield send("UpdateMetadata, all new", [update_metadata(self._all, 0, port)])
            yield send("UpdateMetadata, one changed", [update_metadata([(self._all[0][0], [0])], 1, port)] * 5)
            yield send("UpdateMetadata, brokers only", [update_metadata([], 1, port)] * 5)
            yield send("LeaderAndIsr, unchanged", [leader_and_isr(each, OWN_ID, 0) for each in self._parts])
            yield send("LeaderAndIsr, leads again", [leader_and_isr(each, OWN_ID, 1) for each in self._parts])
            yield send("LeaderAndIsr, follows", [leader_and_isr(each, OTHER_ID, 2) for each in self._parts])
            yield send("LeaderAndIsr, leads again, one request", [leader_and_isr(self._here, OWN_ID, 3)])
            yield send("UpdateMetadata, all changed", [update_metadata(self._all, 3, port)])
            yield send("UpdateMetadata, full, unchanged", [update_metadata(self._all, 3, port, is_full=True)])
            yield "periodic work", beside.during(lambda: time.sleep(PERIODIC_S))
            yield "metrics", beside.during(self._scrape)
            yield send("StopReplica, deletes", [stop_replicas(each) for each in self._parts])
            made = [leader_and_isr(each, OWN_ID, 4, is_new=True) for each in self._parts]
            yield send("LeaderAndIsr, new again", made)
            yield send("UpdateMetadata, all led", [update_metadata(self._all, 4, port)])
            yield "fenced", beside.during(lambda: asyncio.run(self._fence()))
            yield send("UpdateMetadata, full, none left", [update_metadata([], 4, port, is_full=True)])

    async def _fence(self) -> None:
        """Marks the broker as fenced, as a controller does, and waits until it has registered again."""
        store = await open_store(Ensemble(self._zookeeper))
        path = znodes.broker(OWN_ID)
        before = await store.get(path)
        await store.multi([Create(znodes.fenced(OWN_ID), znodes.encode_fenced(before.czxid))])
        while (now := await store.exists(path)) is None or now.czxid == before.czxid:  # noqa: ASYNC110 - no watch
            await asyncio.sleep(0.01)
        await store.close()

    def _scrape(self) -> None:
        for _ in range(2):
            with urllib.request.urlopen(f"http://{self._metrics}/metrics") as page:
                page.read()


@contextmanager
def a_bench(size: Size) -> Iterator[Bench]:
    """A broker that serves metrics, and whose periodic work is due every few seconds."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    settings: dict[str, str | int | float | bool] = {
        "broker.id": OWN_ID,
        "headrace.metrics.listen": metrics,
        "replica.lag.time.max.ms": 600_000,
        "log.retention.check.interval.ms": 3_000,
        "log.flush.offset.checkpoint.interval.ms": 3_000,
        "log.flush.start.offset.checkpoint.interval.ms": 3_000,
        "replica.high.watermark.checkpoint.interval.ms": 3_000,
    }
    with (
        tempfile.TemporaryDirectory() as data,
        ZooKeeperServer(Path(data) / "zookeeper") as zookeeper,
        Broker(
            data=Path(data) / "log", settings={**settings, "zookeeper.connect": zookeeper.address}, subprocess=True
        ) as broker,
    ):
        yield Bench(broker, metrics, zookeeper.address, size)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--replicas", type=int, default=15_000, help="partitions of the broker; each has a descriptor")
    parser.add_argument("--per-topic", type=int, default=100)
    parser.add_argument("--per-request", type=int, default=5_000, help="partitions of a LeaderAndIsr or StopReplica")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {}
    size = Size(options.partitions, options.replicas, options.per_topic, options.per_request)
    with a_bench(size) as bench:
        for name, held in bench.run():
            found[name] = held._asdict()
            if not options.json:
                print(f"{name:40}", "  ".join(f"{key} {value}" for key, value in found[name].items()), flush=True)
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
