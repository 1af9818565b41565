"""Measures the phases of one produce and one fetch in microseconds, in process, without the network.

Each phase is a function of the broker, called many times with the result of the phase before. Reports the best round.
A whole produce or fetch is measured too, from the readable event to the response, without the calls of the socket.

    python benchmarks/broker/phases.py [--json]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.broker.app import running
from headrace.broker.handlers import fetch, produce
from headrace.broker.produce.plain_produce import append_plainly
from headrace.broker.request.context import RequestContext, encode_response
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.network.connection import Connection
from headrace.network.receive_pass import ReceivePass
from headrace.network.request_times import RequestTimes
from headrace.network.response_memory import UNLIMITED, ResponseMemory
from headrace.network.transport import PlainTransport
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.frames import SCRATCH_BYTES, FrameReader
from headrace.protocol.headers import read_request_header, write_request_header
from headrace.protocol.plain_produce import read_plain_produce, write_plain_answer
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import BatchHeader
from headrace.records.format2.validation import check_produced

TOPIC = "phases"
ROUNDS, CALLS = 60, 500
PRODUCE_VERSION, FETCH_VERSION = 9, 12


class Loopback:
    """Replaces a socket: each read returns the same request, and responses are dropped."""

    def __init__(self, frame: bytes) -> None:
        self._frame, self._size = frame, len(frame)

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Accepts and drops all bytes."""
        return sum(map(len, parts))

    def getpeername(self) -> tuple[str, int]:
        """An arbitrary peer."""
        return "127.0.0.1", 0

    def recv_into(self, target: memoryview) -> int:
        """Returns the request again."""
        target[: self._size] = self._frame
        return self._size

    def send(self, data: bytes, flags: int = 0) -> int:
        """Accepts and drops all bytes."""
        return len(data)

    def fileno(self) -> int:
        """No descriptor."""
        return -1


class Dropping(PlainTransport):
    """A transport over a `Loopback`."""

    def send_file(self, fd: int, position: int, size: int) -> int:
        """Accepts and drops all bytes."""
        return size


class Still:
    """Replaces the event loop and the server, which the measured code does not need."""

    def add_reader(self, *_: object) -> None:
        """Does nothing."""

    def connection_closed(self, _: Connection, reason: str) -> None:
        """Fails: the connection must not close."""
        raise AssertionError(reason)


def micros(call: Callable[[], object]) -> float:
    """The microseconds of one call in the best round, since other load on the machine can only add time."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - started) / CALLS * 1e6)
    return min(rounds)


def framed(key: ApiKey, version: int, request: m.ProduceRequest | m.FetchRequest) -> bytearray:
    """A request as it is in the buffer of a connection."""
    payload = write_request_header(key, version, 7, "phases") + request.encode(version)
    return bytearray(len(payload).to_bytes(4, "big") + payload)


def produce_frame() -> bytearray:
    """A Produce request with one 100-byte record."""
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())]))
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
    return framed(ApiKey.PRODUCE, PRODUCE_VERSION, m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]))


def fetch_frame(offset: int) -> bytearray:
    """A Fetch request from an offset, of at most 64 KiB."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=64 << 10)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=64 << 10, topics=[topic])
    return framed(ApiKey.FETCH, FETCH_VERSION, request)


def connected(
    broker: Services,
    frame: bytearray,
    *,
    has_shortcut: bool = True,
    loopback: Callable[[bytes], Loopback] = Loopback,
) -> Connection:
    """A connection on which `frame` comes whenever it is read."""
    dispatcher = Dispatcher(broker)
    if not has_shortcut:
        dispatcher.shortcut = None
    inbound = FrameReader(memoryview(bytearray(SCRATCH_BYTES)), 1 << 20)
    still = Still()
    transport = Dropping(loopback(bytes(frame)))  # type: ignore[arg-type]
    memory, receive_pass = ResponseMemory(UNLIMITED), ReceivePass(still)  # type: ignore[arg-type]
    return Connection(transport, "PLAINTEXT", inbound, dispatcher, still, still, memory, receive_pass)  # type: ignore[arg-type]


def framing(frame: bytearray) -> float:
    """The framing of a complete request."""
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    scratch[: len(frame)] = frame
    inbound = FrameReader(scratch, 1 << 20)
    return micros(lambda: inbound.received(len(frame)))


def general(broker: Services, key: ApiKey, version: int, frame: bytearray) -> dict[str, float]:
    """The general path of requests: decode, handle, encode."""
    payload = memoryview(frame)[4:]
    _, body_at = read_request_header(payload)
    request_class = m.ProduceRequest if key is ApiKey.PRODUCE else m.FetchRequest
    module = produce if key is ApiKey.PRODUCE else fetch
    request, _ = request_class.decode(version, payload, body_at)
    connection = connected(broker, frame)
    context = RequestContext(broker, connection, key, version, 7, "phases", RequestTimes(module.VERSIONS))
    answer = module.handle(context, request)
    return {
        "header": micros(lambda: read_request_header(payload)),
        "decode": micros(lambda: request_class.decode(version, payload, body_at)),
        "handler": micros(lambda: module.handle(context, request)),
        "encode": micros(lambda: encode_response(key, version, 7, answer)),
    }


def short(broker: Services, frame: bytearray) -> dict[str, float]:
    """The path of a plain produce."""
    payload = memoryview(frame)[4:]
    request = read_plain_produce(payload)
    assert request is not None
    (each,) = request.batches
    partition = broker.replicas.leader(TOPIC, 0)
    config, now = partition.log.config, broker.now_ms()

    def check() -> BatchHeader:
        return check_produced(each.records, max_message_bytes=config.max_message_bytes)

    header = check()
    written = partition.log.active
    return {
        "frame": framing(frame),
        "read": micros(lambda: read_plain_produce(payload)),
        "all between": micros(lambda: append_plainly(broker, request)),
        "  of it: CRC, header, records": micros(check),
        "  of it: append": micros(lambda: partition.append(each.records, header, now_ms=now, acks=-1)),
        "    of that: the write": micros(lambda: written.file.write(each.records, written.size)),
        "  of it: answer": micros(lambda: write_plain_answer(request, [(1, -1, 0)])),
        "whole": micros(connected(broker, frame).on_readable),
    }


async def measure() -> dict[str, dict[str, float]]:
    """Measure both requests with a broker in this process."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"listeners": "127.0.0.1:0", "log.dirs": directory}
        async with running(parse_broker(settings)) as (broker, _):
            await broker.controller.create_topics([RequestedTopic(TOPIC)])
            frame = produce_frame()
            results = {"produce, the short way": short(broker, frame)}
            results["produce, the general way"] = general(broker, ApiKey.PRODUCE, PRODUCE_VERSION, frame)
            log = broker.replicas.leader(TOPIC, 0).log
            end = log.log_end_offset
            frame = fetch_frame(end - 100)
            fetched = {"frame": framing(frame)} | general(broker, ApiKey.FETCH, FETCH_VERSION, frame)
            fetched["  of the handler: read"] = micros(
                lambda: log.read(end - 100, 64 << 10, end_offset=end, at_least_one=True)
            )
            fetched["whole, the general way"] = micros(connected(broker, frame, has_shortcut=False).on_readable)
            fetched["whole, the shortest way"] = micros(connected(broker, frame).on_readable)
            return results | {"fetch": fetched}


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
            print(f"  {phase:30} {value:6.2f}")


if __name__ == "__main__":
    main()
