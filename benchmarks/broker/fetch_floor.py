"""Measures fetches of a log in the page cache, beside a program in C that sends the same by `sendfile` (`floor.c`).

A raw client asks for one answer of up to a mebibyte after the other and throws the bytes away, in turns: a ratio of two
rates in one round. Both logs have the same batches of 64 KiB. CPU seconds are those of the broker, for each gigabyte.
With `--receive-buffer 65536`, that of Java's consumer, an answer does not fit into the client's socket: what the least
is that a broker has to do for such a client.

    python benchmarks/broker/fetch_floor.py [--rounds 7] [--megabytes 256] [--receive-buffer BYTES] [--json]
"""

import argparse
import shutil
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import TOPIC, Peer, floor, headrace
from benchmarks.paired import report, summarise
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch

RECORDS, RECORD_BYTES, ANSWER_BYTES = 64, 1000, 1 << 20
PRODUCE, FETCH = 9, 12


class Round(NamedTuple):
    """One reading of the whole log."""

    megabytes_per_s: float
    cpu_s_per_gigabyte: float


def framed(key: ApiKey, version: int, body: bytes) -> bytes:
    """A complete request."""
    head = write_request_header(key, version, 1, "bench")
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def fetch_frame(offset: int) -> bytes:
    """A Fetch of one partition."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=ANSWER_BYTES)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=ANSWER_BYTES, topics=[topic])
    return framed(ApiKey.FETCH, FETCH, request.encode(FETCH))


def answer(connection: socket.socket, into: memoryview) -> int:
    """Receives one answer; returns its size."""
    filled = size = 0
    while not size or filled < size:
        count = connection.recv_into(into[filled:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        filled += count
        if not size and filled >= 4:
            size = 4 + int.from_bytes(into[:4], "big")
    return size


def fill(peer: Peer, megabytes: int) -> int:
    """Produces so many bytes; returns the number of answers that a reader needs."""
    batch = encode_batch([Record(i, int(time.time() * 1000), None, b"x" * RECORD_BYTES, ()) for i in range(RECORDS)])
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
    frame = framed(
        ApiKey.PRODUCE, PRODUCE, m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]).encode(PRODUCE)
    )
    batches_an_answer = ANSWER_BYTES // len(batch)
    answers = (megabytes << 20) // (batches_an_answer * len(batch))
    into = memoryview(bytearray(4096))
    with socket.create_connection(("127.0.0.1", peer.port)) as connection:
        for _ in range(answers * batches_an_answer):
            connection.sendall(frame)
            answer(connection, into)
    return answers


def read(peer: Peer, answers: int, receive_buffer: int | None) -> Round:
    """Reads the log once. Each answer is cut off within a batch; the next request asks from that batch on."""
    frames = [
        fetch_frame(number * (ANSWER_BYTES // (RECORDS * (RECORD_BYTES + 12))) * RECORDS) for number in range(answers)
    ]
    into = memoryview(bytearray(2 * ANSWER_BYTES))
    before, started, total = cpu_seconds(peer), time.perf_counter(), 0
    with socket.socket() as connection:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect(("127.0.0.1", peer.port))
        for frame in frames:
            connection.sendall(frame)
            total += answer(connection, into)
    elapsed, after = time.perf_counter() - started, cpu_seconds(peer)
    return Round(total / elapsed / 1e6, (after - before) / total * 1e9)


def cpu_seconds(peer: Peer) -> float:
    """What all threads of the broker have used, as the scheduler counts it: a tick of `cpu_times` is 10 ms, and the
    floor reads the whole log in a few."""
    tasks = Path(f"/proc/{peer.process.pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument(
        "--receive-buffer", type=int, help="of the client's socket, in bytes; the kernel's choice without"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("this needs a C compiler")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = [headrace(stack, directory / "headrace"), floor(stack, directory, compiler)]
        answers = [fill(each, options.megabytes) for each in found]
        rounds: dict[str, list[Round]] = {each.name: [] for each in found}
        for _ in range(options.rounds):
            for peer, count in zip(found, answers, strict=True):
                rounds[peer.name].append(read(peer, count, options.receive_buffer))
    report({"fetch": summarise(rounds)}, as_json=options.json)


if __name__ == "__main__":
    main()
