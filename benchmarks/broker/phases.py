"""Where the time of one produce and one fetch goes: microseconds per phase, in process, without the network.

Each phase is the broker's own function, called many times on what the phase before it left; the median of the rounds.
The whole request is measured too, through the dispatcher, so that what is between the phases shows.

    python benchmarks/broker/phases.py [--json]
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.broker.app import running
from headrace.broker.connection import Chunks, Connection, Slot
from headrace.broker.context import RequestContext, encode_response
from headrace.broker.dispatch import Dispatcher
from headrace.broker.handlers import MODULES, fetch, produce
from headrace.broker.inbound import SCRATCH_BYTES, Inbound
from headrace.broker.metrics.request_times import RequestTimes, Timed
from headrace.broker.parts import Broker
from headrace.broker.produce_checks import checked_batch
from headrace.config import parse_broker
from headrace.coordination.topics import NewTopic
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header, write_request_header
from headrace.records.batch import Record, encode_batch

TOPIC = "phases"
ROUNDS, CALLS = 9, 3000
PRODUCE_VERSION, FETCH_VERSION = 9, 12


class Sink(Connection):
    """A connection whose answers go nowhere."""

    def __init__(self) -> None:  # no socket
        self.host, self.peer, self.listener, self.software = "127.0.0.1", "127.0.0.1:0", "PLAINTEXT", ""
        self._is_closed = False
        self.received_ns = self.looked_ns = time.monotonic_ns()

    def answer(self, chunks: Chunks, request: Timed) -> None:
        """Takes it."""
        request.times.add(request, time.monotonic_ns())

    def place(self) -> Slot:
        """A place in no order."""
        return Slot()


def micros(call: Callable[[], object]) -> float:
    """Median microseconds of one call."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - started) / CALLS * 1e6)
    return statistics.median(rounds)


def framed(key: ApiKey, version: int, request: m.ProduceRequest | m.FetchRequest) -> bytearray:
    """A request as it stands in a connection's buffer."""
    payload = write_request_header(key, version, 7, "phases") + request.encode(version)
    return bytearray(len(payload).to_bytes(4, "big") + payload)


def produce_frame() -> bytearray:
    """One 100-byte record."""
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())]))
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
    return framed(ApiKey.PRODUCE, PRODUCE_VERSION, m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]))


def fetch_frame(offset: int) -> bytearray:
    """From an offset to the end, at most 64 KiB."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=64 << 10)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=64 << 10, topics=[topic])
    return framed(ApiKey.FETCH, FETCH_VERSION, request)


def phases_of(broker: Broker, key: ApiKey, version: int, frame: bytearray) -> dict[str, float]:
    """What both kinds of request have in common, and the handler as a whole."""
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    scratch[: len(frame)] = frame
    inbound = Inbound(scratch, 1 << 20)
    payload = memoryview(frame)[4:]
    dispatcher = Dispatcher(MODULES)
    dispatcher.broker = broker
    sink = Sink()
    _, body_at = read_request_header(payload)
    request_class = m.ProduceRequest if key is ApiKey.PRODUCE else m.FetchRequest
    module = produce if key is ApiKey.PRODUCE else fetch
    request, _ = request_class.decode(version, payload, body_at)
    context = RequestContext(broker, sink, key, version, 7, "phases", RequestTimes(module.VERSIONS))
    answer = module.handle(context, request)  # type: ignore[arg-type]
    return {
        "frame": micros(lambda: inbound.received(len(frame))),
        "header": micros(lambda: read_request_header(payload)),
        "decode": micros(lambda: request_class.decode(version, payload, body_at)),
        "handler": micros(lambda: module.handle(context, request)),  # type: ignore[arg-type]
        "encode": micros(lambda: encode_response(key, version, 7, answer)),  # type: ignore[arg-type]
        "whole request": micros(lambda: dispatcher(sink, payload)),
    }


async def measure() -> dict[str, dict[str, float]]:
    """Both requests, against a broker of this process."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"listeners": "127.0.0.1:0", "log.dirs": directory}
        async with running(parse_broker(settings)) as (broker, _):
            await broker.controller.create_topics([NewTopic(TOPIC)])
            frame = produce_frame()
            produced = phases_of(broker, ApiKey.PRODUCE, PRODUCE_VERSION, frame)
            partition = broker.replicas.leader(TOPIC, 0)
            payload = memoryview(frame)[4:]
            _, at = read_request_header(payload)
            request, _ = m.ProduceRequest.decode(PRODUCE_VERSION, payload, at)
            records, now = request.topic_data[0].partition_data[0].records, broker.now_ms()
            batch = checked_batch(records, partition.log.config, now, True)
            produced["  of the handler: check"] = micros(
                lambda: checked_batch(records, partition.log.config, now, True)
            )
            produced["  of the handler: append"] = micros(
                lambda: partition.append(batch.records, batch.header, now_ms=now, acks=-1)
            )
            end = partition.log.log_end_offset
            fetched = phases_of(broker, ApiKey.FETCH, FETCH_VERSION, fetch_frame(end - 100))
            fetched["  of the handler: read"] = micros(
                lambda: partition.log.read(end - 100, 64 << 10, end_offset=end, at_least_one=True)
            )
            return {"produce": produced, "fetch": fetched}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    results = asyncio.run(measure())
    if parser.parse_args().json:
        print(json.dumps(results, indent=1))
        return
    for name, phases in results.items():
        print(f"{name} (microseconds)")
        for phase, value in phases.items():
            print(f"  {phase:26} {value:6.2f}")


if __name__ == "__main__":
    main()
