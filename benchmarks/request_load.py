"""Produce requests over raw sockets, with one in flight on each connection: a load that takes little CPU of its own.

The client is one thread with some 10 µs of work for a request, because it shares the machine with the brokers.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import psutil

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch

VERSION = 9


class Loaded(NamedTuple):
    """The result of one round of requests."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_s: float


def produce_frame(topic_name: str, index: int = 0, records: int = 1, record_bytes: int = 100, acks: int = 1) -> bytes:
    """A complete Produce request of one batch."""
    now_ms = int(time.time() * 1000)
    batch = encode_batch([Record(number, now_ms, None, b"x" * record_bytes, ()) for number in range(records)])
    partition = m.ProduceRequest.PartitionProduceData(index=index, records=bytes(batch))
    topic = m.ProduceRequest.TopicProduceData(name=topic_name, partition_data=[partition])
    body = m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic]).encode(VERSION)
    head = write_request_header(ApiKey.PRODUCE, VERSION, 1, "bench")
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """The CPU seconds of all these processes so far."""
    used = [each.cpu_times() for each in processes]
    return float(sum(each.user + each.system for each in used))


def kernel_seconds(processes: Sequence[psutil.Process]) -> float:
    """The part of it that the kernel has used for them."""
    return float(sum(each.cpu_times().system for each in processes))


def load(targets: Sequence[tuple[int, bytes]], connections: int, seconds: float, cpu_s: Callable[[], float]) -> Loaded:
    """Sends on every connection as soon as the answer is there, for `seconds`. `targets`: ports and frames, which the
    connections take in turns. `cpu_s`: the CPU seconds of the brokers so far."""
    latencies: list[float] = []
    note, clock = latencies.append, time.perf_counter
    with select.epoll() as poll, ExitStack() as stack:
        calls, sent = {}, {}
        for number in range(connections):
            port, frame = targets[number % len(targets)]
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(connection, select.EPOLLIN)
            calls[connection.fileno()] = connection.recv, connection.sendall, frame
            sent[connection.fileno()] = clock()
            connection.sendall(frame)
        before, now, end = cpu_s(), 0.0, clock() + seconds
        while now < end:
            for number, _ in poll.poll(1):
                receive, send, frame = calls[number]
                if not receive(4096):
                    raise ConnectionError("a broker closed the connection")
                now = clock()
                note(now - sent[number])
                sent[number] = now
                send(frame)
        after = cpu_s()
    latencies.sort()
    count = len(latencies)
    return Loaded(count / seconds, latencies[count // 2] * 1e3, latencies[int(count * 0.99)] * 1e3, after - before)
